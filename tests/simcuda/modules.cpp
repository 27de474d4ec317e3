// Modules, libraries, functions and launches: they exist so that programs run on. Kernels do nothing. Code and
// variables cost device memory that no call announces, where settings or a text module say so.
#include "modules.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "activity.h"
#include "capture.h"
#include "contexts.h"
#include "streams.h"

namespace fragscope::sim {
namespace {

struct FunctionObject {
    std::string name;
    void* owner = nullptr;  // CUmodule or CUlibrary
};

struct Variable {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the memory of its module
};

// A module, or a library, which is a module in each context that uses it.
struct Owner {
    Context* context = nullptr;  // of a module; null: a library
    std::deque<FunctionObject> functions;
    std::uint64_t bytes = 0;     // of code and variables in a context
    std::uint64_t stack = 0;     // bytes that a thread of its kernels needs
    std::vector<Variable> variables;
    std::map<Context*, std::uint64_t> loaded;  // base of its memory; 0: it has none
};

// Functions and modules live in maps keyed by their handle, so that a wrong handle is only not found.
struct Modules {
    std::unordered_map<void*, Owner> owners;
    std::unordered_set<const void*> functions;  // CUfunction and CUkernel
    std::uintptr_t next = 0x5100'0000'0000;
};

Modules& modules() {
    static Modules* const state = new Modules;
    return *state;
}

constexpr char kTextModule[] = "fragscope-sim-module";
constexpr std::uint64_t kVariableAlignment = 256;

// A text that stands for a module: the line kTextModule, then "code BYTES", "stack BYTES" and "variable NAME BYTES"
// lines. False when a line is none of these.
bool read_text(const std::string& text, Owner& owner) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        std::string kind, name, size, rest;
        if (!(words >> kind)) continue;
        if (kind == "variable" && !(words >> name)) return false;
        std::uint64_t bytes = 0;
        if (!(words >> size) || !parse_bytes(size, bytes) || (words >> rest)) return false;
        if (kind == "code") {
            owner.bytes = bytes;
        } else if (kind == "stack") {
            owner.stack = bytes;
        } else if (kind == "variable" && bytes != 0) {
            owner.variables.push_back({name, bytes, 0});
        } else {
            return false;
        }
    }
    for (Variable& each : owner.variables) {
        each.offset = (owner.bytes + kVariableAlignment - 1) / kVariableAlignment * kVariableAlignment;
        if (each.bytes > driver().settings.va_bytes || each.offset > driver().settings.va_bytes) return false;
        owner.bytes = each.offset + each.bytes;
    }
    return true;
}

void tell_variables_locked(const char* operation, const Owner& owner, std::uint64_t base, int device) {
    for (const Variable& each : owner.variables) {
        note_variable_locked(operation, each.name.c_str(), base + each.offset, each.bytes, device);
    }
}

// The owner's code and variables in a context, where they are not yet.
CUresult load_into_locked(void* handle, Owner& owner, Context& context) {
    if (owner.loaded.contains(&context)) return CUDA_SUCCESS;
    if (owner.bytes == 0) return owner.loaded[&context] = 0, CUDA_SUCCESS;
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const CUresult result = make_region_locked(Region::Kind::Global, context.device, owner.bytes, true, false, region,
                                               free_after);
    if (result != CUDA_SUCCESS) return result;
    region->context = &context;
    region->object = reinterpret_cast<std::uint64_t>(handle);
    owner.loaded[&context] = region->base;
    ledger({"code_load", region->base, owner.bytes, static_cast<std::int64_t>(region->size), region->device, free_after,
            region->object});
    tell_variables_locked("variable_load", owner, region->base, region->device);
    return CUDA_SUCCESS;
}

void drop_from_locked(const Owner& owner, std::uint64_t base) {
    if (base == 0) return;
    Region& region = driver().regions.find(base)->second;
    const std::uint64_t bytes = region.requested, handle = region.object;
    const auto size = static_cast<std::int64_t>(region.size);
    const int device = region.device;
    tell_variables_locked("variable_unload", owner, base, device);
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"code_unload", base, bytes, -size, device, free_after, handle});
}

// Without taking it out of the list.
void end_owner_locked(void* handle, Owner& owner) {
    for (const FunctionObject& function : owner.functions) modules().functions.erase(&function);
    for (const auto& [context, base] : owner.loaded) drop_from_locked(owner, base);
    ledger({owner.context != nullptr ? "module_unload" : "library_unload", reinterpret_cast<std::uint64_t>(handle),
            owner.bytes, 0, -1, 0});
}

// `text`: the image when it is a text module, otherwise empty.
CUresult load(void** handle, bool given, const std::string& text, bool is_module) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); is_module && error != CUDA_SUCCESS) return error;
    if (handle == nullptr || !given) return CUDA_ERROR_INVALID_VALUE;
    Owner owner;
    owner.context = is_module ? context : nullptr;
    owner.bytes = driver().settings.module_bytes;
    if (!text.empty() && !read_text(text, owner)) return CUDA_ERROR_INVALID_IMAGE;
    Locked guard(driver().lock);
    modules().next += 64;
    void* const made = reinterpret_cast<void*>(modules().next);
    // A library goes into a context when that first needs it.
    if (is_module && !driver().settings.lazy_loading) {
        if (const CUresult error = load_into_locked(made, owner, *context); error != CUDA_SUCCESS) return error;
    }
    *handle = made;
    ledger({is_module ? "module_load" : "library_load", modules().next, owner.bytes, 0, -1, 0,
            is_module ? context->id : 0});
    modules().owners.emplace(made, std::move(owner));
    return CUDA_SUCCESS;
}

CUresult load_image(void** handle, const void* image, bool is_module) {
    const bool text = image != nullptr &&
                      std::strncmp(static_cast<const char*>(image), kTextModule, sizeof kTextModule - 1) == 0;
    return load(handle, image != nullptr, text ? static_cast<const char*>(image) : "", is_module);
}

CUresult load_file(void** handle, const char* path, bool is_module) {
    std::string text;
    if (path != nullptr) {
        std::ifstream file(path, std::ios::binary);
        std::string magic(sizeof kTextModule - 1, '\0');
        if (file.read(magic.data(), static_cast<std::streamsize>(magic.size())) && magic == kTextModule) {
            std::ostringstream rest;
            rest << file.rdbuf();
            text = magic + rest.str();
        }
    }
    return load(handle, path != nullptr, text, is_module);
}

CUresult unload(void* handle) {
    Locked guard(driver().lock);
    const auto found = modules().owners.find(handle);
    if (found == modules().owners.end()) return CUDA_ERROR_INVALID_HANDLE;
    end_owner_locked(handle, found->second);
    modules().owners.erase(found);
    return CUDA_SUCCESS;
}

// Code is not read: every name is taken to be in it.
CUresult get_function(void** function, void* owner, const char* name) {
    if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const auto found = modules().owners.find(owner);
    if (found == modules().owners.end()) return CUDA_ERROR_INVALID_HANDLE;
    auto& functions = found->second.functions;
    for (FunctionObject& each : functions) {
        if (each.name == name) return *function = &each, CUDA_SUCCESS;
    }
    functions.push_back({name, owner});
    modules().functions.insert(&functions.back());
    *function = &functions.back();
    return CUDA_SUCCESS;
}

// Needs the memory that it lies in, so that a module that waited for its first use is loaded now.
CUresult get_variable(CUdeviceptr* address, size_t* bytes, void* handle, const char* name) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const auto found = modules().owners.find(handle);
    if (found == modules().owners.end()) return CUDA_ERROR_INVALID_HANDLE;
    Owner& owner = found->second;
    for (const Variable& each : owner.variables) {
        if (each.name != name) continue;
        Context& where = owner.context != nullptr ? *owner.context : *context;
        if (const CUresult error = load_into_locked(handle, owner, where); error != CUDA_SUCCESS) return error;
        if (address != nullptr) *address = owner.loaded[&where] + each.offset;
        if (bytes != nullptr) *bytes = each.bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

const FunctionObject* find_function_locked(const void* handle) {
    return modules().functions.contains(handle) ? static_cast<const FunctionObject*>(handle) : nullptr;
}

CUresult load_function_locked(const FunctionObject& function, Context& context) {
    Owner& owner = modules().owners.find(function.owner)->second;
    return load_into_locked(function.owner, owner, owner.context != nullptr ? *owner.context : context);
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
    const FunctionObject& found = *find_function_locked(function);
    CUresult result = load_function_locked(found, *stream->context);
    if (result == CUDA_SUCCESS) {
        result = raise_stack_locked(*stream->context, modules().owners.find(found.owner)->second.stack);
    }
    if (result == CUDA_SUCCESS && stream->capture) result = capture_work_locked(*stream, CU_GRAPH_NODE_TYPE_KERNEL);
    if (result == CUDA_SUCCESS) ++stream->issued;
    return result;
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

void destroy_modules_locked(Context& context) {
    auto& owners = modules().owners;
    for (auto at = owners.begin(); at != owners.end();) {
        Owner& owner = at->second;
        if (owner.context == &context) {
            end_owner_locked(at->first, owner);
            at = owners.erase(at);
            continue;
        }
        const auto loaded = owner.loaded.find(&context);
        if (loaded != owner.loaded.end()) {
            drop_from_locked(owner, loaded->second);
            owner.loaded.erase(loaded);
        }
        ++at;
    }
}

namespace impl {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
    return load_file(reinterpret_cast<void**>(module), fname, true);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return load_image(reinterpret_cast<void**>(module), image, true);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
    return load_image(reinterpret_cast<void**>(module), image, true);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
    return load_image(reinterpret_cast<void**>(module), fatCubin, true);
}
CUresult cuModuleUnload(CUmodule hmod) { return unload(hmod); }
CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
    return get_function(reinterpret_cast<void**>(hfunc), hmod, name);
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = driver().settings.lazy_loading ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
    return get_variable(dptr, bytes, hmod, name);
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
    return load_image(reinterpret_cast<void**>(library), code, false);
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option*, void**, unsigned int,
                               CUlibraryOption*, void**, unsigned int) {
    return load_file(reinterpret_cast<void**>(library), fileName, false);
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
CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
    return get_variable(dptr, bytes, library, name);
}
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
CUresult cuFuncLoad(CUfunction function) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const FunctionObject* found = find_function_locked(function);
    return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : load_function_locked(*found, *context);
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const FunctionObject* found = find_function_locked(function);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Owner& owner = modules().owners.find(found->owner)->second;
    const bool loaded = owner.loaded.contains(owner.context != nullptr ? owner.context : context);
    *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
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
