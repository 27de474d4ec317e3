// Memory of other interfaces, imported by an opaque descriptor and mapped as a buffer or a mipmapped array.
#include <cuda_runtime_api.h>

#include "arrays.h"
#include "state.h"

using namespace fragscope::simrt;

static_assert(int{cudaExternalMemoryHandleTypeOpaqueFd} == int{CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD});
static_assert(int{cudaExternalMemoryHandleTypeNvSciBuf} == int{CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF});

cudaError_t cudaImportExternalMemory(cudaExternalMemory_t* extMem_out,
                                     const cudaExternalMemoryHandleDesc* memHandleDesc) {
    if (memHandleDesc == nullptr) return record(cudaErrorInvalidValue);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {};
    desc.type = static_cast<CUexternalMemoryHandleType>(memHandleDesc->type);
    desc.handle.win32.handle = memHandleDesc->handle.win32.handle;
    desc.handle.win32.name = memHandleDesc->handle.win32.name;
    if (memHandleDesc->type == cudaExternalMemoryHandleTypeOpaqueFd) desc.handle.fd = memHandleDesc->handle.fd;
    desc.size = memHandleDesc->size;
    desc.flags = memHandleDesc->flags;
    return call_in_context(&DriverTable::ImportExternalMemory,
                           reinterpret_cast<CUexternalMemory*>(extMem_out), &desc);
}

cudaError_t cudaExternalMemoryGetMappedBuffer(void** devPtr, cudaExternalMemory_t extMem,
                                              const cudaExternalMemoryBufferDesc* bufferDesc) {
    if (devPtr == nullptr || bufferDesc == nullptr) return record(cudaErrorInvalidValue);
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc = {};
    desc.offset = bufferDesc->offset;
    desc.size = bufferDesc->size;
    desc.flags = bufferDesc->flags;
    CUdeviceptr address = 0;
    const cudaError_t error = call_in_context(&DriverTable::ExternalMemoryGetMappedBuffer, &address,
                                              reinterpret_cast<CUexternalMemory>(extMem), &desc);
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaExternalMemoryGetMappedMipmappedArray(cudaMipmappedArray_t* mipmap, cudaExternalMemory_t extMem,
                                                      const cudaExternalMemoryMipmappedArrayDesc* mipmapDesc) {
    if (mipmapDesc == nullptr) return record(cudaErrorInvalidValue);
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc = {};
    desc.offset = mipmapDesc->offset;
    desc.numLevels = mipmapDesc->numLevels;
    if (!describe_array(&mipmapDesc->formatDesc, mipmapDesc->extent, mipmapDesc->flags, &desc.arrayDesc))
        return record(cudaErrorInvalidValue);
    return call_in_context(&DriverTable::ExternalMemoryGetMappedMipmappedArray,
                           reinterpret_cast<CUmipmappedArray*>(mipmap),
                           reinterpret_cast<CUexternalMemory>(extMem), &desc);
}

cudaError_t cudaDestroyExternalMemory(cudaExternalMemory_t extMem) {
    return call_in_context(&DriverTable::DestroyExternalMemory, reinterpret_cast<CUexternalMemory>(extMem));
}
