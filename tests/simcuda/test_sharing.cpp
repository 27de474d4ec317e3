// Memory of one process in another: legacy IPC handles, pools and their allocations. The bytes belong to the
// exporter throughout; whoever opens them pays nothing.
#include <signal.h>

#include "sim_peer.h"

using namespace sim_test;

namespace {

struct Exported {
    CUipcMemHandle large, small, neighbour;
};

struct PoolAllocation {
    CUmemPoolPtrExportData data;
};

CUdeviceptr open(const CUipcMemHandle& handle, CUresult expected = CUDA_SUCCESS) {
    CUdeviceptr address = 0;
    CHECK(cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == expected);
    return address;
}

CUmemoryPool shareable_pool() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

}  // namespace

// Opens what it is sent, checks, tells; tries once more when told that the exporter has freed it.
TEST_CASE("child: peer that opens" * doctest::skip()) {
    start();
    const std::size_t before = free_bytes();
    const auto exported = receive_data<Exported>(0);
    const CUdeviceptr large = open(exported.large);
    CHECK(open(exported.large) == large);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CHECK(cuMemGetAddressRange(&base, &bytes, large + kMiB) == CUDA_SUCCESS);
    CHECK(base == large);
    CHECK(bytes == 4 * kMiB);
    // Two allocations of one block: one mapping, 512 bytes apart as in the exporter.
    const CUdeviceptr small = open(exported.small), neighbour = open(exported.neighbour);
    CHECK(neighbour == small + 512);
    CHECK(free_bytes() == before);
    CUdeviceptr address = 0;
    CHECK(cuIpcOpenMemHandle(&address, exported.large, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcCloseMemHandle(large + 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcCloseMemHandle(large) == CUDA_SUCCESS);
    CHECK(cuMemGetAddressRange(&base, &bytes, large) == CUDA_SUCCESS);
    CHECK(cuIpcCloseMemHandle(large) == CUDA_SUCCESS);
    CHECK(cuMemGetAddressRange(&base, &bytes, large) == CUDA_ERROR_NOT_FOUND);
    CHECK(cuIpcCloseMemHandle(large) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcCloseMemHandle(small) == CUDA_SUCCESS);
    CHECK(cuMemGetAddressRange(&base, &bytes, neighbour) == CUDA_SUCCESS);
    // Another context opens it for itself.
    CUcontext second = nullptr;
    REQUIRE(cuCtxCreate(&second, nullptr, 0, 1) == CUDA_SUCCESS);
    CHECK(open(exported.neighbour) != neighbour);
    CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
    send(0, 'o');
    if (receive(0) != 'f') return;
    open(exported.large, CUDA_ERROR_INVALID_HANDLE);
    open(exported.small, CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuIpcCloseMemHandle(neighbour) == CUDA_SUCCESS);
    send(0, 'e');
}

SIM_TEST("an IPC handle opens the whole block, and its bytes stay the exporter's", own_name("ipc"), "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB") {
    start();
    Exported exported{};
    const CUdeviceptr large = allocate(4 * kMiB), small = allocate(1), neighbour = allocate(1);
    CHECK(neighbour == small + 512);
    CHECK(cuIpcGetMemHandle(&exported.large, large) == CUDA_SUCCESS);
    CHECK(cuIpcGetMemHandle(&exported.small, small) == CUDA_SUCCESS);
    CHECK(cuIpcGetMemHandle(&exported.neighbour, neighbour) == CUDA_SUCCESS);
    CUipcMemHandle again{}, none{};
    CHECK(cuIpcGetMemHandle(&again, large) == CUDA_SUCCESS);
    CHECK(std::memcmp(&again, &exported.large, sizeof again) == 0);
    CHECK(cuIpcGetMemHandle(&none, large + 512) == CUDA_ERROR_INVALID_VALUE);
    open(exported.large, CUDA_ERROR_INVALID_CONTEXT);  // its own
    open(none, CUDA_ERROR_INVALID_HANDLE);
    const std::size_t alone = free_bytes();
    Peer peer("peer that opens", shared_settings());
    send_data(peer.socket, exported);
    REQUIRE(receive(peer.socket) == 'o');
    CHECK(alone - free_bytes() == 2 * kMiB);  // the peer's context
    for (const CUdeviceptr each : {large, small, neighbour}) CHECK(cuMemFree(each) == CUDA_SUCCESS);
    CHECK(free_bytes() - alone == 6 * kMiB - 2 * kMiB);
    // The same address again is another memory.
    CHECK(allocate(4 * kMiB) == large);
    CHECK(cuIpcGetMemHandle(&again, large) == CUDA_SUCCESS);
    CHECK(std::memcmp(&again, &exported.large, sizeof again) != 0);
    send(peer.socket, 'f');
    CHECK(receive(peer.socket) == 'e');
    CHECK(wait_child(peer.pid) == 0);
}

SIM_TEST("what has no legacy handle", "CONTEXT_OVERHEAD=0") {
    start();
    CUipcMemHandle handle{};
    CUdeviceptr address = 0;
    REQUIRE(cuMemAllocAsync(&address, 4 * kMiB, nullptr) == CUDA_SUCCESS);
    CHECK(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAllocManaged(&address, 4 * kMiB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAddressReserve(&address, 2 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemMap(address, 2 * kMiB, 0, create(2 * kMiB), 0) == CUDA_SUCCESS);
    CHECK(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_INVALID_VALUE);
}

// Exports 8 MiB and lives until it is killed.
TEST_CASE("child: peer that exports" * doctest::skip()) {
    start();
    CUipcMemHandle handle{};
    CHECK(cuIpcGetMemHandle(&handle, allocate(8 * kMiB)) == CUDA_SUCCESS);
    send_data(0, handle);
    receive(0);
}

SIM_TEST("the exporter's death ends what it exported", own_name("ipc-death"), "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB") {
    start();
    Peer peer("peer that exports", shared_settings());
    const auto handle = receive_data<CUipcMemHandle>(peer.socket);
    const CUdeviceptr address = open(handle);
    CHECK(free_bytes() == (64 - 2 - 2 - 8) * kMiB);
    REQUIRE(::kill(peer.pid, SIGKILL) == 0);
    CHECK(wait_child(peer.pid) == 1000 + SIGKILL);
    CHECK(free_bytes() == 62 * kMiB);
    open(handle, CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
}

SIM_TEST("an event of another process", own_name("ipc-event"), "CONTEXT_OVERHEAD=0") {
    start();
    CUevent plain = nullptr, shared = nullptr, opened = nullptr;
    CUipcEventHandle handle{};
    REQUIRE(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(&handle, plain) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(&handle, shared) == CUDA_SUCCESS);
    CHECK(cuIpcOpenEventHandle(&opened, handle) == CUDA_SUCCESS);
    CHECK(cuEventDestroy(opened) == CUDA_SUCCESS);
    CHECK(cuEventDestroy(shared) == CUDA_SUCCESS);
    CHECK(cuIpcOpenEventHandle(&opened, handle) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("child: peer that imports a pool" * doctest::skip()) {
    start();
    const std::size_t before = free_bytes();
    const int fd = receive_descriptor(0);
    CUmemoryPool pool = nullptr;
    REQUIRE(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(std::intptr_t{fd}),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    ::close(fd);
    auto shared = receive_data<PoolAllocation>(0);
    CUdeviceptr address = 0, other = 0;
    CHECK(cuMemPoolImportPointer(&address, pool, &shared.data) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    // "Imported memory pools do not support creating new allocations."
    CHECK(cuMemAllocFromPoolAsync(&other, 512, pool, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDeviceSetMemPool(0, pool) == CUDA_ERROR_INVALID_VALUE);
    CUmemoryPool own = nullptr;
    CHECK(cuDeviceGetDefaultMemPool(&own, 0) == CUDA_SUCCESS);
    CHECK(cuMemPoolImportPointer(&other, own, &shared.data) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeAsync(address + 512, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeAsync(address, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemPoolImportPointer(&address, pool, &shared.data) == CUDA_SUCCESS);
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
    CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
    send(0, 'i');
    if (receive(0) != 'f') return;
    CHECK(cuMemPoolImportPointer(&address, pool, &shared.data) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    send(0, 'e');
}

SIM_TEST("a pool and an allocation of it travel", own_name("pool"), "CAPACITY=128MiB", "CONTEXT_OVERHEAD=2MiB") {
    start();
    const CUmemoryPool pool = shareable_pool();
    CUdeviceptr address = 0;
    REQUIRE(cuMemAllocFromPoolAsync(&address, 1000, pool, nullptr) == CUDA_SUCCESS);
    PoolAllocation shared{};
    CHECK(cuMemPoolExportPointer(&shared.data, address) == CUDA_ERROR_INVALID_VALUE);  // the pool is not shared yet
    int fd = -1;
    CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHECK(cuMemPoolExportPointer(&shared.data, address + 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolExportPointer(&shared.data, address) == CUDA_SUCCESS);
    const std::size_t alone = free_bytes();
    auto settings = shared_settings();
    settings[1] = "CAPACITY=128MiB";
    Peer peer("peer that imports a pool", settings);
    send_descriptor(peer.socket, fd);
    ::close(fd);
    send_data(peer.socket, shared);
    REQUIRE(receive(peer.socket) == 'i');
    CHECK(alone - free_bytes() == 2 * kMiB);  // the peer's context
    CHECK(cuMemFreeAsync(address, nullptr) == CUDA_SUCCESS);
    send(peer.socket, 'f');
    CHECK(receive(peer.socket) == 'e');
    CHECK(wait_child(peer.pid) == 0);
    CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
    CHECK(free_bytes() == 126 * kMiB);
}

SIM_TEST("a pool that was not made for it cannot be exported", "CONTEXT_OVERHEAD=0") {
    start();
    CUmemoryPool pool = nullptr;
    int fd = -1;
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(std::intptr_t{0}),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("access of another device to a pool", "CONTEXT_OVERHEAD=0") {
    start();
    const CUmemoryPool pool = shareable_pool();
    CUdeviceptr address = 0;
    unsigned long long types = 0;
    REQUIRE(cuMemAllocFromPoolAsync(&address, 1, pool, nullptr) == CUDA_SUCCESS);
    CHECK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) == CUDA_SUCCESS);
    CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 1;
    CUmemAccess_flags flags{};
    CHECK(cuMemPoolGetAccess(&flags, pool, &access.location) == CUDA_SUCCESS);
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS);
    CHECK(cuMemPoolGetAccess(&flags, pool, &access.location) == CUDA_SUCCESS);
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    access.location.id = 0;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CHECK(cuMemPoolSetAccess(pool, &access, 1) == CUDA_ERROR_INVALID_VALUE);  // its own device keeps its access
}

SIM_TEST("a descriptor of a range keeps its memory", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUdeviceptr linear = allocate(4 * kMiB);
    int first = -1, second = -1, none = -1;
    const auto get = [](int& fd, CUdeviceptr address, std::size_t bytes) {
        return cuMemGetHandleForAddressRange(&fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    };
    CHECK(get(none, linear + 512, 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(get(none, linear, 8 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(get(first, linear, 4096) == CUDA_SUCCESS);
    CHECK(get(second, linear, 8192) == CUDA_SUCCESS);
    CHECK(cuMemFree(linear) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 4 * kMiB);
    ::close(first);
    CHECK(before - free_bytes() == 4 * kMiB);
    ::close(second);
    CHECK(free_bytes() == before);
    // Closed before the memory is freed: nothing is kept.
    const CUdeviceptr other = allocate(4 * kMiB);
    CHECK(get(first, other, 4096) == CUDA_SUCCESS);
    ::close(first);
    CHECK(before - free_bytes() == 4 * kMiB);
    CHECK(cuMemFree(other) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    // Mapped memory: all of the range has to be mapped.
    CUdeviceptr reserved = 0;
    REQUIRE(cuMemAddressReserve(&reserved, 4 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
    const CUmemGenericAllocationHandle handle = create(2 * kMiB);
    REQUIRE(cuMemMap(reserved, 2 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(get(none, reserved, 4 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(get(first, reserved, 2 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemUnmap(reserved, 2 * kMiB) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    ::close(first);
    CHECK(free_bytes() == before);
}
