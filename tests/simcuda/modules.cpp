// Modules, libraries, functions and launches: they exist so that programs run on. Kernels do nothing.
#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "capture.h"
#include "driver.h"
#include "streams.h"

namespace fragscope::sim {
namespace {

struct FunctionObject {
    std::string name;
    void* owner = nullptr;  // CUmodule or CUlibrary
};

// Functions and modules live in maps keyed by their handle, so that a wrong handle is only not found.
struct Modules {
    std::unordered_map<void*, std::deque<FunctionObject>> owners;  // modules and libraries
    std::unordered_set<const void*> functions;                     // CUfunction and CUkernel
    std::uintptr_t next = 0x5100'0000'0000;
};

Modules& modules() {
    static Modules* const state = new Modules;
    return *state;
}

CUresult load(void** handle, const void* image, bool needs_context) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); needs_context && error != CUDA_SUCCESS) return error;
    if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    modules().next += 64;
    *handle = reinterpret_cast<void*>(modules().next);
    modules().owners[*handle];
    return CUDA_SUCCESS;
}

CUresult unload(void* handle) {
    Locked guard(driver().lock);
    const auto found = modules().owners.find(handle);
    if (found == modules().owners.end()) return CUDA_ERROR_INVALID_HANDLE;
    for (const FunctionObject& function : found->second) modules().functions.erase(&function);
    modules().owners.erase(found);
    return CUDA_SUCCESS;
}

// The image is not read: every name is taken to be in it.
CUresult get_function(void** function, void* owner, const char* name) {
    if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const auto found = modules().owners.find(owner);
    if (found == modules().owners.end()) return CUDA_ERROR_INVALID_HANDLE;
    for (FunctionObject& each : found->second) {
        if (each.name == name) return *function = &each, CUDA_SUCCESS;
    }
    found->second.push_back({name, owner});
    modules().functions.insert(&found->second.back());
    *function = &found->second.back();
    return CUDA_SUCCESS;
}

const FunctionObject* find_function_locked(const void* handle) {
    return modules().functions.contains(handle) ? static_cast<const FunctionObject*>(handle) : nullptr;
}

CUresult check_function(const void* handle) {
    Locked guard(driver().lock);
    return find_function_locked(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult launch(const void* function, CUstream handle, unsigned long long grid, unsigned long long block) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (grid == 0 || block == 0 || block > 1024) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    if (find_function_locked(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Stream* stream = find_stream_locked(handle, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ++stream->issued;
    return CUDA_SUCCESS;
}

unsigned long long product(unsigned x, unsigned y, unsigned z) {
    return static_cast<unsigned long long>(x) * y * z;
}

CUresult attribute_of(int* value, CUfunction_attribute attribute, const void* function) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_function(function); error != CUDA_SUCCESS) return error;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = 48 << 10; break;
        default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

CUresult occupancy(int* blocks, const void* function, int block_size, size_t shared) {
    if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_function(function); error != CUDA_SUCCESS) return error;
    const int by_threads = block_size > 1024 ? 0 : std::min(32, 2048 / block_size);
    const int by_shared = static_cast<int>(std::min<size_t>(32, (228 << 10) / (shared + 1024)));
    *blocks = std::min(by_threads, by_shared);
    return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
    return load(reinterpret_cast<void**>(module), fname, true);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return load(reinterpret_cast<void**>(module), image, true);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
    return load(reinterpret_cast<void**>(module), image, true);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
    return load(reinterpret_cast<void**>(module), fatCubin, true);
}
CUresult cuModuleUnload(CUmodule hmod) { return unload(hmod); }
CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
    return get_function(reinterpret_cast<void**>(hfunc), hmod, name);
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
// The image is not read, so the size of a variable is not known.
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) { return CUDA_ERROR_NOT_FOUND; }

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
    return load(reinterpret_cast<void**>(library), code, false);
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option*, void**, unsigned int,
                               CUlibraryOption*, void**, unsigned int) {
    return load(reinterpret_cast<void**>(library), fileName, false);
}
CUresult cuLibraryUnload(CUlibrary library) { return unload(library); }
CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
    return get_function(reinterpret_cast<void**>(pKernel), library, name);
}
CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
    if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    if (!modules().owners.contains(library)) return CUDA_ERROR_INVALID_HANDLE;
    *pMod = reinterpret_cast<CUmodule>(library);
    return CUDA_SUCCESS;
}
CUresult cuLibraryGetGlobal(CUdeviceptr*, size_t*, CUlibrary, const char*) { return CUDA_ERROR_NOT_FOUND; }
CUresult cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary, const char*) { return CUDA_ERROR_NOT_FOUND; }

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
    if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pFunc = reinterpret_cast<CUfunction>(kernel);
    return check_function(kernel);
}
CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice) {
    return attribute_of(pi, attrib, kernel);
}
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel kernel, CUdevice) { return check_function(kernel); }
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice) { return check_function(kernel); }
CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
    return impl::cuFuncGetName(name, reinterpret_cast<CUfunction>(hfunc));
}
CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
    if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const FunctionObject* found = find_function_locked(kernel);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pLib = static_cast<CUlibrary>(found->owner);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
    return attribute_of(pi, attrib, hfunc);
}
CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute, int) { return check_function(hfunc); }
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache) { return check_function(hfunc); }
CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) { return check_function(hfunc); }
CUresult cuFuncLoad(CUfunction function) { return check_function(function); }
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
    if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return check_function(function);
}
CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const FunctionObject* found = find_function_locked(hfunc);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *name = found->name.c_str();
    return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
    if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const FunctionObject* found = find_function_locked(hfunc);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *hmod = static_cast<CUmodule>(found->owner);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int,
                        CUstream hStream, void**, void**) {
    return launch(f, hStream, product(gridDimX, gridDimY, gridDimZ), product(blockDimX, blockDimY, blockDimZ));
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void**, void**) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return launch(f, config->hStream, product(config->gridDimX, config->gridDimY, config->gridDimZ),
                  product(config->blockDimX, config->blockDimY, config->blockDimZ));
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int, CUstream hStream, void**) {
    return launch(f, hStream, product(gridDimX, gridDimY, gridDimZ), product(blockDimX, blockDimY, blockDimZ));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
    return occupancy(numBlocks, func, blockSize, dynamicSMemSize);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int) {
    return occupancy(numBlocks, func, blockSize, dynamicSMemSize);
}
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func, int numBlocks, int) {
    if (dynamicSmemSize == nullptr || numBlocks <= 0) return CUDA_ERROR_INVALID_VALUE;
    *dynamicSmemSize = std::min<size_t>(48 << 10, (228 << 10) / static_cast<size_t>(numBlocks));
    return check_function(func);
}
CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func, CUoccupancyB2DSize,
                                          size_t, int blockSizeLimit) {
    if (minGridSize == nullptr || blockSize == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *blockSize = blockSizeLimit > 0 ? std::min(blockSizeLimit, 1024) : 1024;
    *minGridSize = 132 * (2048 / *blockSize);
    return check_function(func);
}

CUresult cuProfilerStart() {
    Context* context = nullptr;
    return require_context(context);
}
CUresult cuProfilerStop() {
    Context* context = nullptr;
    return require_context(context);
}

}  // namespace impl
}  // namespace fragscope::sim
