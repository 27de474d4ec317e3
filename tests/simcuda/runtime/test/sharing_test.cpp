// Arrays, graphs, external memory and sharing through the runtime: each call reaches the driver function that
// has the same meaning, and what it costs is the driver's.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace {

constexpr size_t kMiB = 1 << 20;

size_t free_bytes() {
    size_t free = 0;
    size_t total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    return free;
}

// Whether the runtime function named by the argument is on the stack of the driver call that runs this.
struct Walk {
    const char* wanted;
    bool found;
};
void walk(void* data) {
    auto& outcome = *static_cast<Walk*>(data);
    void* frames[64];
    const int depth = ::backtrace(frames, 64);
    for (int i = 0; i < depth; ++i) {
        Dl_info info = {};
        if (::dladdr(frames[i], &info) == 0 || info.dli_sname == nullptr) continue;
        outcome.found = outcome.found || std::strcmp(info.dli_sname, outcome.wanted) == 0;
    }
}

}  // namespace

TEST_CASE("sharing: the runtime function is on the stack of the driver call") {
    Walk outcome = {"cudaLaunchHostFunc", false};
    REQUIRE(cudaLaunchHostFunc(nullptr, walk, &outcome) == cudaSuccess);
    CHECK(outcome.found);
}

TEST_CASE("sharing: arrays of every kind cost what their elements need") {
    const cudaChannelFormatDesc floats = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    const size_t before = free_bytes();
    cudaArray_t plane = nullptr, layered = nullptr, level = nullptr, sparse = nullptr;
    cudaMipmappedArray_t chain = nullptr;
    REQUIRE(cudaMallocArray(&plane, &floats, 1024, 1024) == cudaSuccess);
    CHECK(before - free_bytes() == 4 * kMiB);
    REQUIRE(cudaMalloc3DArray(&layered, &floats, {512, 512, 2}, cudaArrayLayered) == cudaSuccess);
    CHECK(before - free_bytes() == 6 * kMiB);
    REQUIRE(cudaMallocMipmappedArray(&chain, &floats, {1024, 1024, 0}, 2) == cudaSuccess);
    CHECK(before - free_bytes() == 12 * kMiB);  // 4 MiB and 1 MiB in pages of 2 MiB
    REQUIRE(cudaGetMipmappedArrayLevel(&level, chain, 1) == cudaSuccess);
    cudaExtent extent = {};
    CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, level) == cudaSuccess);
    CHECK(extent.width == 512);
    REQUIRE(cudaMalloc3DArray(&sparse, &floats, {512, 512, 0}, cudaArraySparse) == cudaSuccess);
    cudaArraySparseProperties properties = {};
    CHECK(cudaArrayGetSparseProperties(&properties, sparse) == cudaSuccess);
    CHECK(properties.tileExtent.width == 128);
    CHECK(before - free_bytes() == 12 * kMiB);
    CHECK(cudaFreeMipmappedArray(chain) == cudaSuccess);
    for (const cudaArray_t each : {plane, layered, sparse}) CHECK(cudaFreeArray(each) == cudaSuccess);
    CHECK(free_bytes() == before);
}

TEST_CASE("sharing: graph memory nodes") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    const size_t before = free_bytes();
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaGraphCreate(&graph, 0) == cudaSuccess);
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = 2 * kMiB;
    cudaGraphNode_t first = nullptr, second = nullptr;
    REQUIRE(cudaGraphAddMemAllocNode(&first, graph, nullptr, 0, &params) == cudaSuccess);
    REQUIRE(params.dptr != nullptr);
    cudaGraphNodeParams any = {};
    any.type = cudaGraphNodeTypeMemFree;
    any.free.dptr = params.dptr;
#if CUDART_VERSION >= 13000
    REQUIRE(cudaGraphAddNode(&second, graph, &first, nullptr, 1, &any) == cudaSuccess);
#else
    REQUIRE(cudaGraphAddNode_v2(&second, graph, &first, nullptr, 1, &any) == cudaSuccess);
#endif
    void* freed = nullptr;
    CHECK(cudaGraphMemFreeNodeGetParams(second, &freed) == cudaSuccess);
    CHECK(freed == params.dptr);
    cudaGraphInstantiateParams how = {};
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaGraphInstantiateWithParams(&exec, graph, &how) == cudaSuccess);
    CHECK(how.result_out == cudaGraphInstantiateSuccess);
    CHECK(cudaGraphLaunch(exec, nullptr) == cudaSuccess);
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(cudaDeviceGraphMemTrim(0) == cudaSuccess);
    CHECK(free_bytes() == before);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("sharing: pools, pointers and external memory") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    props.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool = nullptr, imported = nullptr;
    REQUIRE(cudaMemPoolCreate(&pool, &props) == cudaSuccess);
    int fd = -1;
    REQUIRE(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0) ==
            cudaSuccess);
    REQUIRE(cudaMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{fd}),
                                                 cudaMemHandleTypePosixFileDescriptor, 0) == cudaSuccess);
    void* memory = nullptr;
    void* alias = nullptr;
    REQUIRE(cudaMallocFromPoolAsync(&memory, 1000, pool, nullptr) == cudaSuccess);
    cudaMemPoolPtrExportData data = {};
    CHECK(cudaMemPoolExportPointer(&data, memory) == cudaSuccess);
    CHECK(cudaMemPoolImportPointer(&alias, imported, &data) == cudaSuccess);
    CHECK(cudaFree(alias) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
    ::close(fd);

    cudaIpcMemHandle_t handle = {};
    REQUIRE(cudaMalloc(&memory, 4 * kMiB) == cudaSuccess);
    CHECK(cudaIpcGetMemHandle(&handle, memory) == cudaSuccess);
    CHECK(cudaIpcOpenMemHandle(&alias, handle, cudaIpcMemLazyEnablePeerAccess) ==
          cudaErrorDeviceUninitialized);
    CHECK(cudaFree(memory) == cudaSuccess);

    cudaExternalMemoryHandleDesc desc = {};
    desc.type = cudaExternalMemoryHandleTypeOpaqueFd;
    desc.handle.fd = ::memfd_create("external", MFD_CLOEXEC);
    desc.size = 2 * kMiB;
    REQUIRE(::ftruncate(desc.handle.fd, 2 * kMiB) == 0);
    cudaExternalMemory_t external = nullptr;
    REQUIRE(cudaImportExternalMemory(&external, &desc) == cudaSuccess);
    cudaExternalMemoryBufferDesc buffer = {};
    buffer.size = kMiB;
    REQUIRE(cudaExternalMemoryGetMappedBuffer(&memory, external, &buffer) == cudaSuccess);
    CHECK(cudaDestroyExternalMemory(external) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("sharing: a batch of copies") {
    int from[2] = {5, 6};
    int back[2] = {};
    void* memory = nullptr;
    cudaStream_t stream = nullptr;
    REQUIRE(cudaMalloc(&memory, sizeof from) == cudaSuccess);
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    void* to[] = {memory, static_cast<int*>(memory) + 1};
#if CUDART_VERSION >= 13000
    const void* sources[] = {&from[1], &from[0]};
#else
    void* sources[] = {&from[1], &from[0]};
    size_t failed = 0;
#endif
    size_t sizes[] = {sizeof(int), sizeof(int)};
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
#if CUDART_VERSION >= 13000
    CHECK(cudaMemcpyBatchAsync(to, sources, sizes, 2, &attributes, &first, 1, stream) == cudaSuccess);
#else
    CHECK(cudaMemcpyBatchAsync(to, sources, sizes, 2, &attributes, &first, 1, &failed, stream) ==
          cudaSuccess);
#endif
    CHECK(cudaMemcpy(back, memory, sizeof back, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(back[0] == 6);
    CHECK(back[1] == 5);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}
