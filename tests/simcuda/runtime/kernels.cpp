// Kernels and libraries as objects: handles, attributes, occupancy, and the <<<...>>> configuration that the
// compiler pushes before a launch and pops inside it.
#include <cuda_runtime_api.h>

#include <vector>

#include "symbols.h"

using namespace fragscope::simrt;

static_assert(int{cudaFuncAttributeMaxDynamicSharedMemorySize} ==
              int{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES});

extern "C" {
unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr);
}

namespace {

struct CallConfiguration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
};

// A stack, because the arguments of one launch may contain another.
thread_local std::vector<CallConfiguration> t_configurations;

}  // namespace

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, cudaStream_t stream) {
    t_configurations.push_back({gridDim, blockDim, sharedMem, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem, void* stream) {
    if (t_configurations.empty()) return record(cudaErrorMissingConfiguration);
    const CallConfiguration top = t_configurations.back();
    t_configurations.pop_back();
    *gridDim = top.grid;
    *blockDim = top.block;
    *sharedMem = top.shared_bytes;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
    if (kernelPtr == nullptr) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    cudaError_t load_error = cudaSuccess;
    const KernelLookup kernel = find_kernel(entryFuncAddr, &load_error);
    if (!kernel.registered) return record(cudaErrorInvalidDeviceFunction);
    if (load_error != cudaSuccess) return record(load_error);
    *kernelPtr = kernel.kernel != nullptr ? kernel.kernel : unloadable_kernel();
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
    return cudaGetKernel(kernelPtr, entryFuncAddr);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* functionPtr, const void* symbolPtr) {
    return function_of(symbolPtr, functionPtr);
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
    CUfunction function = nullptr;
    if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
    return call(driver().FuncGetName, name, function);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, const void* func) {
    if (attr == nullptr) return record(cudaErrorInvalidValue);
    CUfunction function = nullptr;
    if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
    *attr = {};
    struct Row {
        CUfunction_attribute attribute;
        int* as_int;
        size_t* as_size;
    };
    const Row rows[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, nullptr, &attr->sharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, nullptr, &attr->constSizeBytes},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, nullptr, &attr->localSizeBytes},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attr->maxThreadsPerBlock, nullptr},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &attr->numRegs, nullptr},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, &attr->ptxVersion, nullptr},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &attr->binaryVersion, nullptr},
        {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &attr->cacheModeCA, nullptr},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &attr->maxDynamicSharedSizeBytes, nullptr},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &attr->preferredShmemCarveout, nullptr},
    };
    for (const Row& row : rows) {
        int value = 0;
        const cudaError_t error = call(driver().FuncGetAttribute, &value, row.attribute, function);
        if (error != cudaSuccess) return error;
        if (row.as_int != nullptr)
            *row.as_int = value;
        else
            *row.as_size = value < 0 ? 0 : static_cast<size_t>(value);
    }
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
    CUfunction function = nullptr;
    if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
    return call(driver().FuncSetAttribute, function, static_cast<CUfunction_attribute>(attr), value);
}

cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache cacheConfig) {
    CUfunction function = nullptr;
    if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
    return call(driver().FuncSetCacheConfig, function, static_cast<CUfunc_cache>(cacheConfig));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, const void* func,
                                                                   int blockSize, size_t dynamicSMemSize,
                                                                   unsigned int flags) {
    CUfunction function = nullptr;
    if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
    return call(driver().OccupancyMaxActiveBlocksPerMultiprocessorWithFlags, numBlocks, function, blockSize,
                dynamicSMemSize, flags);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void* func, int blockSize,
                                                          size_t dynamicSMemSize) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize,
                                                                  cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, const void* func,
                                                      int numBlocks, int blockSize) {
    CUfunction function = nullptr;
    if (const cudaError_t error = function_of(func, &function); error != cudaSuccess) return error;
    return call(driver().OccupancyAvailableDynamicSMemPerBlock, dynamicSmemSize, function, numBlocks,
                blockSize);
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption* jitOptions,
                                void** jitOptionsValues, unsigned int numJitOptions,
                                cudaLibraryOption* libraryOptions, void** libraryOptionValues,
                                unsigned int numLibraryOptions) {
    return call_in_context(&DriverTable::LibraryLoadData, library, code,
                           reinterpret_cast<CUjit_option*>(jitOptions), jitOptionsValues, numJitOptions,
                           reinterpret_cast<CUlibraryOption*>(libraryOptions), libraryOptionValues,
                           numLibraryOptions);
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* fileName, cudaJitOption* jitOptions,
                                    void** jitOptionsValues, unsigned int numJitOptions,
                                    cudaLibraryOption* libraryOptions, void** libraryOptionValues,
                                    unsigned int numLibraryOptions) {
    return call_in_context(&DriverTable::LibraryLoadFromFile, library, fileName,
                           reinterpret_cast<CUjit_option*>(jitOptions), jitOptionsValues, numJitOptions,
                           reinterpret_cast<CUlibraryOption*>(libraryOptions), libraryOptionValues,
                           numLibraryOptions);
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    return call_in_context(&DriverTable::LibraryUnload, library);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* pKernel, cudaLibrary_t library, const char* name) {
    return call_in_context(&DriverTable::LibraryGetKernel, pKernel, library, name);
}

cudaError_t cudaLibraryGetGlobal(void** dptr, size_t* bytes, cudaLibrary_t library, const char* name) {
    return call_in_context(&DriverTable::LibraryGetGlobal, reinterpret_cast<CUdeviceptr*>(dptr), bytes,
                           library, name);
}

cudaError_t cudaLibraryGetManaged(void** dptr, size_t* bytes, cudaLibrary_t library, const char* name) {
    return call_in_context(&DriverTable::LibraryGetManaged, reinterpret_cast<CUdeviceptr*>(dptr), bytes,
                           library, name);
}

cudaError_t cudaLibraryGetKernelCount(unsigned int* count, cudaLibrary_t lib) {
    return call_in_context(&DriverTable::LibraryGetKernelCount, count, lib);
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned int numKernels, cudaLibrary_t lib) {
    return call_in_context(&DriverTable::LibraryEnumerateKernels, kernels, numKernels, lib);
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attr, int value,
                                            int device) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call_in_context(&DriverTable::KernelSetAttribute, static_cast<CUfunction_attribute>(attr), value,
                           kernel, handle);
}
