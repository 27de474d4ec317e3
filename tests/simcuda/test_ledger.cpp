// The ledger is enough to rebuild every number: a program that uses each kind of memory and gives all of it back is
// followed by its lines alone. What is free is the capacity less all charges so far, on each line; whatever begins
// ends once, with the size it began with; in the end nothing is left.
#include <sys/mman.h>

#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "sim_test.h"

using namespace sim_test;

namespace {

constexpr std::uint64_t kCapacity = 512 * kMiB;

struct Line {
    std::string operation, object, other;
    std::uint64_t bytes = 0, free = 0;
    std::int64_t charged = 0;
    int device = -1;
};

std::vector<Line> read(const std::string& path) {
    std::vector<Line> lines;
    std::ifstream file(path);
    std::string text;
    while (std::getline(file, text)) {
        std::istringstream fields(text);
        std::string time, pid, tid;
        Line line;
        REQUIRE((fields >> time >> pid >> tid >> line.operation >> line.object >> line.bytes >> line.charged >>
                 line.device >> line.free >> line.other));
        lines.push_back(line);
    }
    return lines;
}

// What begins and what ends it. An end without a size of its own takes that of the beginning.
struct Pair {
    const char* begin;
    const char* end;
    bool sized;
    bool by_other;  // the object and the other one together are what begins
};
constexpr Pair kPairs[] = {
    {"context_create", "context_destroy", true, false},
    {"linear_alloc", "linear_free", true, false},
    {"pitch_alloc", "linear_free", true, false},
    {"managed_alloc", "managed_free", true, false},
    {"host_alloc", "host_free", true, false},
    {"host_register", "host_unregister", true, false},
    {"array_create", "array_destroy", true, false},
    {"mipmap_create", "mipmap_destroy", true, false},
    {"external_import", "external_destroy", true, false},
    {"external_map", "external_unmap", true, true},
    {"reserve", "unreserve", true, false},
    {"map", "unmap", true, true},
    {"pool_create", "pool_gone", false, false},
    {"pool_import", "pool_gone", false, false},
    {"pool_grow", "pool_shrink", true, true},
    {"pool_alloc", "pool_free", true, true},
    {"pool_alloc", "pool_free_asked", true, true},
    {"pool_import_pointer", "pool_import_free", true, true},
    {"graph_create", "graph_destroy", true, false},
    {"graph_instantiate", "graph_exec_destroy", true, false},
    {"graph_node_alloc", "graph_gone", true, false},
    {"multicast_create", "multicast_destroy", true, false},
    {"multicast_bind", "multicast_unbind", true, true},
    {"module_load", "module_unload", true, false},
    {"library_load", "library_unload", true, false},
    {"code_load", "code_unload", true, true},
    {"green_create", "green_destroy", true, false},
};

// Each line that ends something finds it; the kinds that were left.
void follow(const std::vector<Line>& lines) {
    std::map<std::array<std::string, 3>, std::uint64_t> live;  // kind of beginning, object, other
    for (const Line& line : lines) {
        CAPTURE(line.operation);
        CAPTURE(line.object);
        bool ends = false, ended = false;
        for (const Pair& pair : kPairs) {
            const std::array<std::string, 3> key{pair.begin, line.object, pair.by_other ? line.other : ""};
            if (line.operation == pair.begin && live.count(key) == 0) {
                live[key] = line.bytes;
                break;
            }
            if (line.operation != pair.end) continue;
            ends = true;
            const auto found = live.find(key);
            if (found == live.end() || ended) continue;
            if (pair.sized) CHECK(found->second == line.bytes);
            live.erase(found);
            ended = true;
        }
        CHECK(ends == ended);
    }
    for (const auto& [key, bytes] : live) {
        CAPTURE(key[0]);
        CAPTURE(key[1]);
        CHECK(bytes == SIZE_MAX);  // it never ended
    }
}

CUDA_ARRAY3D_DESCRIPTOR square(std::size_t side, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = side;
    description.Height = side;
    description.Format = CU_AD_FORMAT_FLOAT;
    description.NumChannels = 1;
    description.Flags = flags;
    return description;
}

void use_arrays() {
    CUarray plain = nullptr, sparse = nullptr;
    CUmipmappedArray chain = nullptr, mapped = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR description = square(512, 0), tiled = square(512, CUDA_ARRAY3D_SPARSE);
    REQUIRE(cuArray3DCreate(&plain, &description) == CUDA_SUCCESS);
    REQUIRE(cuArray3DCreate(&sparse, &tiled) == CUDA_SUCCESS);
    REQUIRE(cuMipmappedArrayCreate(&chain, &description, 3) == CUDA_SUCCESS);
    CUmemAllocationProp properties = device_memory();
    properties.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    CUmemGenericAllocationHandle pool = 0;
    REQUIRE(cuMemCreate(&pool, 2 * kMiB, &properties, 0) == CUDA_SUCCESS);
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = sparse;
    info.subresource.sparseLevel.extentWidth = 256;
    info.subresource.sparseLevel.extentHeight = 256;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandle.memHandle = pool;
    info.deviceBitMask = 1;
    REQUIRE(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemRelease(pool) == CUDA_SUCCESS);
    CHECK(cuArrayDestroy(sparse) == CUDA_SUCCESS);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
    handle.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    handle.handle.fd = ::memfd_create("external", MFD_CLOEXEC);
    handle.size = 4 * kMiB;
    REQUIRE(::ftruncate(handle.handle.fd, 4 * kMiB) == 0);
    CUexternalMemory external = nullptr;
    REQUIRE(cuImportExternalMemory(&external, &handle) == CUDA_SUCCESS);
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
    buffer.size = kMiB;
    CUdeviceptr address = 0;
    CHECK(cuExternalMemoryGetMappedBuffer(&address, external, &buffer) == CUDA_SUCCESS);
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC levels{};
    levels.arrayDesc = description;
    levels.numLevels = 1;
    CHECK(cuExternalMemoryGetMappedMipmappedArray(&mapped, external, &levels) == CUDA_SUCCESS);
    CHECK(cuDestroyExternalMemory(external) == CUDA_SUCCESS);
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
    // `plain`, `chain` and `mapped` end with the context.
}

void use_pools() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr, imported = nullptr;
    REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    CUdeviceptr first = 0, second = 0, alias = 0;
    REQUIRE(cuMemAllocFromPoolAsync(&first, 1000, pool, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocFromPoolAsync(&second, 40 * kMiB, pool, nullptr) == CUDA_SUCCESS);
    int fd = -1;
    CUmemPoolPtrExportData data{};
    REQUIRE(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{fd}),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    ::close(fd);
    REQUIRE(cuMemPoolExportPointer(&data, first) == CUDA_SUCCESS);
    REQUIRE(cuMemPoolImportPointer(&alias, imported, &data) == CUDA_SUCCESS);
    CHECK(cuMemFree(alias) == CUDA_SUCCESS);
    CHECK(cuMemPoolDestroy(imported) == CUDA_SUCCESS);
    CHECK(cuMemFree(first) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(second, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

void use_graphs() {
    CUgraph graph = nullptr;
    REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = 5 * kMiB;
    CUgraphNode node = nullptr;
    REQUIRE(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params) == CUDA_SUCCESS);
    const CUdeviceptr kept = params.dptr;
    REQUIRE(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params) == CUDA_SUCCESS);
    REQUIRE(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, params.dptr) == CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemFree(kept) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
}

void use_virtual_memory() {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAddressReserve(&address, 8 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
    const CUmemGenericAllocationHandle memory = create(4 * kMiB), other = create(4 * kMiB, 1);
    REQUIRE(cuMemMap(address, 4 * kMiB, 0, memory, 0) == CUDA_SUCCESS);
    int fd = -1;
    CHECK(cuMemGetHandleForAddressRange(&fd, address, 4 * kMiB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ==
          CUDA_SUCCESS);
    CUmulticastObjectProp team{};
    team.numDevices = 2;
    team.size = 4 * kMiB;
    CUmemGenericAllocationHandle object = 0;
    REQUIRE(cuMulticastCreate(&object, &team) == CUDA_SUCCESS);
    for (const int device : {0, 1}) CHECK(cuMulticastAddDevice(object, device) == CUDA_SUCCESS);
    CHECK(cuMulticastBindAddr(object, 0, address, 4 * kMiB, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(object, 0, other, 0, 4 * kMiB, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastUnbind(object, 0, 0, 4 * kMiB) == CUDA_SUCCESS);
    for (const CUmemGenericAllocationHandle each : {memory, other, object}) CHECK(cuMemRelease(each) == CUDA_SUCCESS);
    CHECK(cuMemUnmap(address, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemAddressFree(address, 8 * kMiB) == CUDA_SUCCESS);
    ::close(fd);
    const CUdeviceptr large = allocate(6 * kMiB);
    CHECK(cuMemGetHandleForAddressRange(&fd, large, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) == CUDA_SUCCESS);
    CHECK(cuMemFree(large) == CUDA_SUCCESS);
    ::close(fd);
    free_bytes();  // notices that it was closed
}

void use_contexts() {
    CUdevResource all{};
    CUdevResourceDesc descriptor = nullptr;
    CUgreenCtx green = nullptr;
    CHECK(cuDeviceGetDevResource(1, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    CHECK(cuDevResourceGenerateDesc(&descriptor, &all, 1) == CUDA_SUCCESS);
    REQUIRE(cuGreenCtxCreate(&green, descriptor, 1, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
    CHECK(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * kMiB) == CUDA_SUCCESS);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * kMiB) == CUDA_SUCCESS);
    constexpr char kImage[] = "fragscope-sim-module\ncode 3MiB\nvariable counter 4\n";
    CUmodule module = nullptr, kept = nullptr;
    CUlibrary library = nullptr;
    CUdeviceptr address = 0;
    REQUIRE(cuModuleLoadData(&module, kImage) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&kept, kImage) == CUDA_SUCCESS);
    REQUIRE(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS);
    CHECK(cuModuleGetGlobal(&address, nullptr, module, "counter") == CUDA_SUCCESS);
    CHECK(cuModuleGetGlobal(&address, nullptr, kept, "counter") == CUDA_SUCCESS);
    CHECK(cuLibraryGetGlobal(&address, nullptr, library, "counter") == CUDA_SUCCESS);
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
    // `kept` and the limit end with the context.
}

}  // namespace

TEST_CASE("child: every kind of memory" * doctest::skip()) {
    announce();
    start();
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    void* host = nullptr;
    static char own[8192];
    for (const std::size_t bytes : {std::size_t{100}, kMiB, 5 * kMiB}) allocate(bytes);  // end with the context
    CHECK(cuMemFree(allocate(3 * kMiB)) == CUDA_SUCCESS);
    CHECK(cuMemAllocPitch(&address, &pitch, 100, 100, 4) == CUDA_SUCCESS);
    CHECK(cuMemAllocManaged(&address, 10000, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(cuMemHostAlloc(&host, 10000, 0) == CUDA_SUCCESS);
    CHECK(cuMemHostRegister(own, sizeof own, 0) == CUDA_SUCCESS);
    CUipcMemHandle handle{};
    CHECK(cuIpcGetMemHandle(&handle, allocate(2 * kMiB)) == CUDA_SUCCESS);
    use_arrays();
    use_pools();
    use_graphs();
    use_virtual_memory();
    use_contexts();
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

TEST_CASE("a program is followed by its ledger alone") {
    const std::string path = temporary_file("whole");
    CHECK(run_child("every kind of memory", {"LEDGER=" + path, "CAPACITY=512MiB", "CONTEXT_OVERHEAD=3MiB",
                                             "LIMIT_MEMORY=on", "BACKING=off"}) == 0);
    const std::vector<Line> lines = read(path);
    ::unlink(path.c_str());
    CHECK(lines.size() > 100);
    std::map<int, std::int64_t> charged;
    std::set<std::string> seen;
    for (const Line& line : lines) {
        CAPTURE(line.operation);
        CAPTURE(line.object);
        seen.insert(line.operation);
        if (line.device < 0) {
            CHECK(line.charged == 0);
            continue;
        }
        charged[line.device] += line.charged;
        CHECK(line.free == kCapacity - static_cast<std::uint64_t>(charged[line.device]));
    }
    CHECK(charged == std::map<int, std::int64_t>{{0, 0}, {1, 0}});
    follow(lines);
    for (const Pair& pair : kPairs) {
        CHECK(seen.count(pair.begin) == 1);
        CHECK(seen.count(pair.end) == 1);
    }
}
