// A program that makes the calls of one family, each once, with arguments that test_families.cpp knows:
// `families FAMILY [null|failing]`. null: wherever a result would be stored, nowhere is given. failing: every
// call fails for want of memory, and lists lie where nothing can be read.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "fake_driver.h"

namespace {

bool nowhere = false, failing = false;

template <typename Type>
Type as(std::uintptr_t value) {
    return std::bit_cast<Type>(value);
}

// Where a call may store a result.
template <typename Type>
Type* to() {
    static Type result;
    result = {};
    return nowhere ? nullptr : &result;
}

template <typename Type>
Type* list(Type* entries) {
    return failing ? as<Type*>(16) : entries;
}

CUmemLocation at_device(int device) { return {CU_MEM_LOCATION_TYPE_DEVICE, {device}}; }

const auto kStream = as<CUstream>(0x60);

void arrays() {
    const CUDA_ARRAY_DESCRIPTOR flat{100, 10, CU_AD_FORMAT_FLOAT, 2};
    cuArrayCreate_v2(to<CUarray>(), &flat);
    CUDA_ARRAY3D_DESCRIPTOR layers{64, 32, 6, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_LAYERED};
    cuArray3DCreate_v2(to<CUarray>(), &layers);
    layers.Format = CU_AD_FORMAT_BC1_UNORM;
    cuArray3DCreate_v2(to<CUarray>(), &layers);
    const CUDA_ARRAY3D_DESCRIPTOR_v1 old{8, 4, 2, CU_AD_FORMAT_UNSIGNED_INT16, 2, CUDA_ARRAY3D_SURFACE_LDST};
    cuArray3DCreate(to<CUarray>(), &old);
    const CUDA_ARRAY3D_DESCRIPTOR sparse{16, 8, 0, CU_AD_FORMAT_HALF, 1, CUDA_ARRAY3D_SPARSE};
    cuMipmappedArrayCreate(to<CUmipmappedArray>(), &sparse, 99);
    cuMipmappedArrayGetLevel(to<CUarray>(), as<CUmipmappedArray>(0xa3), 1);
    cuArrayGetPlane(to<CUarray>(), as<CUarray>(0xa2), 0);
    CUarrayMapInfo parts[2] = {};
    parts[0].resourceType = CU_RESOURCE_TYPE_ARRAY;
    parts[0].resource.array = as<CUarray>(0xa2);
    parts[0].memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    parts[0].memHandle.memHandle = 0x77;
    parts[1].resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    parts[1].resource.mipmap = as<CUmipmappedArray>(0xa3);
    parts[1].subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    parts[1].subresource.miptail.size = 65536;
    parts[1].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    parts[1].memHandle.memHandle = 0x78;
    cuMemMapArrayAsync(list(parts), 2, kStream);
    cuMemMapArrayAsync_ptsz(nullptr, 0, nullptr);
    cuArrayDestroy(as<CUarray>(0xa1));
    cuMipmappedArrayDestroy(as<CUmipmappedArray>(0xa3));
}

void sharing() {
    cuIpcGetMemHandle(to<CUipcMemHandle>(), 0x7000000);
    CUipcMemHandle handle;
    std::memset(&handle, 0x33, sizeof handle);
    cuIpcOpenMemHandle_v2(to<CUdeviceptr>(), handle, 1);
    cuIpcCloseMemHandle(0x7100000);
    cuMemGetHandleForAddressRange(to<int>(), 0x7000000, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    cuMemPoolExportToShareableHandle(to<int>(), as<CUmemoryPool>(0xb0),
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    cuMemPoolImportFromShareableHandle(to<CUmemoryPool>(), nullptr, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    cuMemPoolExportPointer(to<CUmemPoolPtrExportData>(), 0x7000000);
    CUmemPoolPtrExportData data;
    std::memset(&data, 0x44, sizeof data);
    cuMemPoolImportPointer(to<CUdeviceptr>(), as<CUmemoryPool>(0xb1), list(&data));
}

void interfaces() {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted{};
    wanted.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    wanted.size = 1u << 20;
    cuImportExternalMemory(to<CUexternalMemory>(), &wanted);
    const auto external = as<CUexternalMemory>(0xe1);
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
    buffer.offset = 4096;
    buffer.size = 8192;
    cuExternalMemoryGetMappedBuffer(to<CUdeviceptr>(), external, &buffer);
    cuExternalMemoryGetMappedMipmappedArray(to<CUmipmappedArray>(), external, nullptr);
    cuDestroyExternalMemory(external);
    CUgraphicsResource resources[] = {as<CUgraphicsResource>(0x51), as<CUgraphicsResource>(0x52)};
    cuGraphicsMapResources(2, list(resources), kStream);
    cuGraphicsResourceGetMappedPointer_v2(to<CUdeviceptr>(), to<std::size_t>(), resources[0]);
    cuGraphicsSubResourceGetMappedArray(to<CUarray>(), resources[1], 0, 0);
    cuGraphicsResourceGetMappedMipmappedArray(to<CUmipmappedArray>(), resources[1]);
    cuGraphicsUnmapResources_ptsz(2, list(resources), nullptr);
    cuGraphicsUnregisterResource(resources[0]);
}

void devices() {
    CUmemAccessDesc access[] = {{at_device(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                {at_device(1), CU_MEM_ACCESS_FLAGS_PROT_NONE}};
    cuMemPoolSetAccess(as<CUmemoryPool>(0xb0), list(access), 2);
    CUmulticastObjectProp wanted{2, 4u << 20, 1, 0};
    cuMulticastCreate(to<CUmemGenericAllocationHandle>(), &wanted);
    cuMulticastAddDevice(0xc1, 1);
    cuMulticastBindMem(0xc1, 2u << 20, 0x77, 0, 1u << 20, 0);
    cuMulticastBindAddr(0xc1, 0, 0x7000000, 1u << 20, 0);
    cuMulticastUnbind(0xc1, 1, 2u << 20, 1u << 20);
    cuCtxEnablePeerAccess(as<CUcontext>(0xc0001), 0);
    cuCtxDisablePeerAccess(as<CUcontext>(0xc0001));
}

void graphs() {
    const auto graph = as<CUgraph>(0xd0);
    const auto executable = as<CUgraphExec>(0xd4);
    // Of a graph that allocates nothing.
    cuGraphLaunch(executable, kStream);
    cuGraphUpload(executable, kStream);
    CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
    allocation.poolProps.location = at_device(1);
    allocation.bytesize = 1000;
    cuGraphAddMemAllocNode(to<CUgraphNode>(), graph, nullptr, 0, &allocation);
    CUgraphNodeParams node{};
    node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    node.alloc.poolProps.location = at_device(0);
    node.alloc.bytesize = 2000;
    cuGraphAddNode(to<CUgraphNode>(), graph, nullptr, 0, &node);
    node.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    node.free.dptr = 0x7500000;
    cuGraphAddNode(to<CUgraphNode>(), graph, nullptr, 0, &node);
    cuGraphAddMemFreeNode(to<CUgraphNode>(), graph, nullptr, 0, 0x7600000);
    cuGraphInstantiateWithFlags(to<CUgraphExec>(), graph, 1);
    CUDA_GRAPH_INSTANTIATE_PARAMS wanted{};
    wanted.flags = 2;
    cuGraphInstantiateWithParams(to<CUgraphExec>(), graph, &wanted);
    cuGraphUpload(executable, kStream);
    cuGraphLaunch(executable, kStream);
    cuGraphLaunch_ptsz(executable, nullptr);
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    cuDeviceGraphMemTrim(1);
}

// Nodes of other types, and captured allocations.
void captured() {
    CUgraphNodeParams node{};
    node.type = CU_GRAPH_NODE_TYPE_EMPTY;
    cuGraphAddNode(to<CUgraphNode>(), as<CUgraph>(0xd0), nullptr, 0, &node);
    cuGraphLaunch(as<CUgraphExec>(0xd4), kStream);
    const auto stream = as<CUstream>(0x50);
    CUgraph graph = nullptr;
    cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuMemAllocAsync(to<CUdeviceptr>(), 100, stream);
    cuMemPrefetchAsync_v2(0x7000000, 4096, at_device(0), 0, stream);
    cuGraphLaunch(as<CUgraphExec>(0xd4), stream);
    cuStreamEndCapture(stream, &graph);
    cuGraphLaunch(as<CUgraphExec>(0xd4), kStream);
}

std::vector<char> own_file() {
    std::vector<char> bytes;
    char some[4096];
    const int file = open("/proc/self/exe", O_RDONLY);
    for (ssize_t got = 0; (got = read(file, some, sizeof some)) > 0;)
        bytes.insert(bytes.end(), some, some + got);
    close(file);
    return bytes;
}

void code() {
    cuModuleLoad(to<CUmodule>(), "/proc/self/exe");
    cuModuleLoad(to<CUmodule>(), "/no/such/file");
    const std::vector<char> elf = own_file();
    cuModuleLoadData(to<CUmodule>(), elf.data());
    cuModuleLoadData(to<CUmodule>(), ".version 8.0\n.target sm_80\n");
    // As nvcc embeds it.
    struct {
        std::uint32_t magic = 0xba55ed50;
        std::uint16_t version = 1, header_bytes = 16;
        std::uint64_t bytes = 1000;
    } binary;
    struct {
        std::uint32_t magic = 0x466243b1, version = 1;
        const void* data = nullptr;
        const void* file = nullptr;
    } wrapper;
    wrapper.data = &binary;
    cuModuleLoadData(to<CUmodule>(), &wrapper);
    cuModuleLoadData(to<CUmodule>(), "\x7f\x01 something else");
    cuLibraryLoadData(to<CUlibrary>(), &binary, nullptr, nullptr, 0, nullptr, nullptr, 0);
    cuLibraryLoadFromFile(to<CUlibrary>(), "/no/such/file", nullptr, nullptr, 0, nullptr, nullptr, 0);
    cuModuleGetGlobal_v2(to<CUdeviceptr>(), to<std::size_t>(), as<CUmodule>(0xf1), "some");
    cuLibraryGetManaged(to<CUdeviceptr>(), to<std::size_t>(), as<CUlibrary>(0xf3), "some");
    cuModuleUnload(as<CUmodule>(0xf1));
    cuLibraryUnload(as<CUlibrary>(0xf3));
}

void streams() {
    cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64u << 20);
    cuStreamCreate(to<CUstream>(), 0);
    cuStreamCreateWithPriority(to<CUstream>(), 0, -1);
    cuGreenCtxCreate(to<CUgreenCtx>(), nullptr, 1, 1);
    cuGreenCtxStreamCreate(to<CUstream>(), as<CUgreenCtx>(0x94), 0, 0);
    cuStreamDestroy_v2(as<CUstream>(0x91));
    cuGreenCtxDestroy(as<CUgreenCtx>(0x94));
    cuCheckpointProcessLock(77, nullptr);
    cuCheckpointProcessCheckpoint(77, nullptr);
    cuCheckpointProcessRestore(77, nullptr);
    cuCheckpointProcessUnlock(77, nullptr);
}

void contexts() {
    auto context = as<CUcontext>(0xc0000);
    cuCtxAttach(nowhere ? nullptr : &context, 0);
    cuCtxDetach(context);
    cuCtxDetach(context);
}

void advice() {
    cuMemAdvise(0x7000000, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
    cuMemAdvise_v2(0x7000000, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, at_device(1));
    cuMemPrefetchAsync(0x7000000, 8192, 1, kStream);
    cuMemPrefetchAsync_v2_ptsz(0x7000000, 8192, at_device(0), 0, nullptr);
    CUdeviceptr addresses[] = {0x7000000, 0x7100000, 0x7200000};
    std::size_t sizes[] = {4096, 8192, 12288};
    CUmemLocation locations[] = {at_device(0), at_device(1)};
    std::size_t indices[] = {0, 2};
    cuMemPrefetchBatchAsync(list(addresses), list(sizes), 3, list(locations), list(indices), 2, 0, kStream);
    cuMemDiscardBatchAsync(list(addresses), list(sizes), 2, 0, kStream);
    cuMemDiscardAndPrefetchBatchAsync(list(addresses), list(sizes), 1, list(locations), list(indices), 1, 0,
                                      kStream);
    cuStreamAttachMemAsync(kStream, 0x7000000, 0, CU_MEM_ATTACH_SINGLE);
}

// More of a list than is told.
void long_list() {
    std::vector<CUdeviceptr> addresses(1000, 0x7000000);
    std::vector<std::size_t> sizes(1000, 4096);
    cuMemDiscardBatchAsync(addresses.data(), sizes.data(), sizes.size(), 0, kStream);
}

// What is noted only where the session wants all calls, or where memory was short.
void questions() {
    cuMemGetAddressRange_v2(to<CUdeviceptr>(), to<std::size_t>(), 0x7000000);
    cuPointerGetAttribute(to<int>(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x7000000);
    int integrated = 0;
    cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0);
    cuMemcpyDtoH_v2(nullptr, 0x7000000, 16);
    cuMemcpyHtoD_v2(0x7000000, nullptr, 16);
    CUDA_MEMCPY2D copy{};
    cuMemcpy2D_v2(&copy);
    cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    cuEventCreate(to<CUevent>(), 0);
    cuMemGetMemPool(to<CUmemoryPool>(), nullptr, CU_MEM_ALLOCATION_TYPE_PINNED);
    cuModuleGetFunction(to<CUfunction>(), nullptr, "some");
}

struct Family {
    const char* name;
    void (*call)();
};
const Family kFamilies[] = {
    {"arrays", arrays},     {"sharing", sharing},     {"interfaces", interfaces},
    {"devices", devices},   {"graphs", graphs},       {"captured", captured},
    {"code", code},         {"streams", streams},     {"advice", advice},
    {"contexts", contexts}, {"long_list", long_list}, {"questions", questions},
};

}  // namespace

int main(int count, char** values) {
    const std::string name = count > 1 ? values[1] : "", way = count > 2 ? values[2] : "";
    nowhere = way == "null";
    failing = way == "failing";
    cuInit(0);
    cuCtxSetCurrent(as<CUcontext>(0xc0000));
    if (failing) fake_fail_all(CUDA_ERROR_OUT_OF_MEMORY);
    for (const Family& family : kFamilies)
        if (name == family.name) {
            family.call();
            return 0;
        }
    std::fprintf(stderr, "no family called '%s'\n", name.c_str());
    return 2;
}
