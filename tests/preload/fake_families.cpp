// The fake driver's functions that hand something out besides those of fake_driver.cpp: arrays, sharing,
// graphs, code, streams. Each gives a value of its own that a test can name, and leaves rubbish where it
// fails.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <bit>
#include <cstring>

#include "fake_driver.h"

namespace {

template <typename Handle>
CUresult give(const char* function, Handle* out, std::uintptr_t value) {
    const CUresult result = fake_outcome(function);
    if (out == nullptr) return result;
    const std::uintptr_t given = result == CUDA_SUCCESS ? value : 0xdead;
    *out = std::bit_cast<Handle>(given);
    return result;
}

template <typename Description>
CUresult describe(const char* function, Description* out, int byte) {
    const CUresult result = fake_outcome(function);
    if (out != nullptr) std::memset(out, result == CUDA_SUCCESS ? byte : 0xdd, sizeof *out);
    return result;
}

CUresult give_extent(const char* function, CUdeviceptr* out, std::size_t* bytes, CUdeviceptr address) {
    give("", bytes, 256);
    return give(function, out, address);
}

}  // namespace

#define FAKE(name, ...) CUresult CUDAAPI name(__VA_ARGS__)

extern "C" {

// ------------------------------------------------------------------------------------ arrays

FAKE(cuArrayCreate_v2, CUarray* out, const CUDA_ARRAY_DESCRIPTOR*) {
    return give("cuArrayCreate_v2", out, 0xa1);
}
FAKE(cuArray3DCreate_v2, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR*) {
    return give("cuArray3DCreate_v2", out, 0xa2);
}
FAKE(cuArray3DCreate, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1*) {
    return give("cuArray3DCreate", out, 0xa9);
}
FAKE(cuMipmappedArrayCreate, CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned) {
    return give("cuMipmappedArrayCreate", out, 0xa3);
}
FAKE(cuMipmappedArrayGetLevel, CUarray* out, CUmipmappedArray, unsigned) {
    return give("cuMipmappedArrayGetLevel", out, 0xa4);
}
FAKE(cuArrayGetPlane, CUarray* out, CUarray, unsigned) { return give("cuArrayGetPlane", out, 0xa5); }

// ----------------------------------------------------------------------------------- sharing

FAKE(cuIpcGetMemHandle, CUipcMemHandle* out, CUdeviceptr) { return describe("cuIpcGetMemHandle", out, 0x11); }
FAKE(cuIpcOpenMemHandle_v2, CUdeviceptr* out, CUipcMemHandle, unsigned) {
    return give("cuIpcOpenMemHandle_v2", out, 0x7100000);
}
FAKE(cuMemPoolImportFromShareableHandle, CUmemoryPool* out, void*, CUmemAllocationHandleType,
     unsigned long long) {
    return give("cuMemPoolImportFromShareableHandle", out, 0xb1);
}
FAKE(cuMemPoolExportPointer, CUmemPoolPtrExportData* out, CUdeviceptr) {
    return describe("cuMemPoolExportPointer", out, 0x22);
}
FAKE(cuMemPoolImportPointer, CUdeviceptr* out, CUmemoryPool, CUmemPoolPtrExportData*) {
    return give("cuMemPoolImportPointer", out, 0x7200000);
}
FAKE(cuImportExternalMemory, CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*) {
    return give("cuImportExternalMemory", out, 0xe1);
}
FAKE(cuExternalMemoryGetMappedBuffer, CUdeviceptr* out, CUexternalMemory,
     const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*) {
    return give("cuExternalMemoryGetMappedBuffer", out, 0x7300000);
}
FAKE(cuExternalMemoryGetMappedMipmappedArray, CUmipmappedArray* out, CUexternalMemory,
     const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC*) {
    return give("cuExternalMemoryGetMappedMipmappedArray", out, 0xa6);
}
FAKE(cuGraphicsResourceGetMappedPointer_v2, CUdeviceptr* out, std::size_t* bytes, CUgraphicsResource) {
    return give_extent("cuGraphicsResourceGetMappedPointer_v2", out, bytes, 0x7400000);
}
FAKE(cuGraphicsSubResourceGetMappedArray, CUarray* out, CUgraphicsResource, unsigned, unsigned) {
    return give("cuGraphicsSubResourceGetMappedArray", out, 0xa7);
}
FAKE(cuGraphicsResourceGetMappedMipmappedArray, CUmipmappedArray* out, CUgraphicsResource) {
    return give("cuGraphicsResourceGetMappedMipmappedArray", out, 0xa8);
}
FAKE(cuMulticastCreate, CUmemGenericAllocationHandle* out, const CUmulticastObjectProp*) {
    return give("cuMulticastCreate", out, 0xc1);
}

// ------------------------------------------------------------------------------------ graphs

FAKE(cuGraphAddMemAllocNode, CUgraphNode* out, CUgraph, const CUgraphNode*, std::size_t,
     CUDA_MEM_ALLOC_NODE_PARAMS* wanted) {
    give("", &wanted->dptr, 0x7500000);
    return give("cuGraphAddMemAllocNode", out, 0xd1);
}
FAKE(cuGraphAddMemFreeNode, CUgraphNode* out, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr) {
    return give("cuGraphAddMemFreeNode", out, 0xd2);
}
FAKE(cuGraphAddNode, CUgraphNode* out, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams* wanted) {
    if (wanted->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) give("", &wanted->alloc.dptr, 0x7600000);
    return give("cuGraphAddNode", out, 0xd3);
}
FAKE(cuGraphInstantiateWithFlags, CUgraphExec* out, CUgraph, unsigned long long) {
    return give("cuGraphInstantiateWithFlags", out, 0xd4);
}
FAKE(cuGraphInstantiateWithParams, CUgraphExec* out, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
    return give("cuGraphInstantiateWithParams", out, 0xd5);
}

// ------------------------------------------------------------------- code, streams, contexts

FAKE(cuModuleLoad, CUmodule* out, const char*) { return give("cuModuleLoad", out, 0xf1); }
FAKE(cuModuleLoadData, CUmodule* out, const void*) { return give("cuModuleLoadData", out, 0xf2); }
FAKE(cuLibraryLoadData, CUlibrary* out, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
     void**, unsigned) {
    return give("cuLibraryLoadData", out, 0xf3);
}
FAKE(cuLibraryLoadFromFile, CUlibrary* out, const char*, CUjit_option*, void**, unsigned, CUlibraryOption*,
     void**, unsigned) {
    return give("cuLibraryLoadFromFile", out, 0xf4);
}
FAKE(cuModuleGetGlobal_v2, CUdeviceptr* out, std::size_t* bytes, CUmodule, const char*) {
    return give_extent("cuModuleGetGlobal_v2", out, bytes, 0x7700000);
}
FAKE(cuLibraryGetManaged, CUdeviceptr* out, std::size_t* bytes, CUlibrary, const char*) {
    return give_extent("cuLibraryGetManaged", out, bytes, 0x7800000);
}
FAKE(cuStreamCreate, CUstream* out, unsigned) { return give("cuStreamCreate", out, 0x91); }
FAKE(cuStreamCreateWithPriority, CUstream* out, unsigned, int) {
    return give("cuStreamCreateWithPriority", out, 0x92);
}
FAKE(cuGreenCtxStreamCreate, CUstream* out, CUgreenCtx, unsigned, int) {
    return give("cuGreenCtxStreamCreate", out, 0x93);
}
FAKE(cuGreenCtxCreate, CUgreenCtx* out, CUdevResourceDesc, CUdevice, unsigned) {
    return give("cuGreenCtxCreate", out, 0x94);
}

}  // extern "C"
