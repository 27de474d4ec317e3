// Several processes on one device: each other's charges, death by SIGKILL, handles that travel.
#include <signal.h>

#include "sim_peer.h"

using namespace sim_test;

// Takes 32 MiB and tells; frees when told and tells again; ends when told.
TEST_CASE("child: peer that allocates" * doctest::skip()) {
    start();
    const CUdeviceptr address = allocate(32 * kMiB);
    send(0, 'a');
    if (receive(0) != 'f') return;
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
    send(0, 'f');
    receive(0);
}

// Receives a descriptor, imports it and tells; releases when told.
TEST_CASE("child: peer that imports" * doctest::skip()) {
    start();
    const int fd = receive_descriptor(0);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{fd}),
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ::close(fd);
    send(0, result == CUDA_SUCCESS ? 'i' : 'x');
    receive(0);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    send(0, 'r');
    receive(0);
}

SIM_TEST("one process takes what another then lacks", own_name("take"), "CAPACITY=64MiB", "CONTEXT_OVERHEAD=2MiB") {
    start();
    CHECK(free_bytes() == 62 * kMiB);
    Peer peer("peer that allocates", shared_settings());
    REQUIRE(receive(peer.socket) == 'a');
    CHECK(free_bytes() == (62 - 2 - 32) * kMiB);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, 32 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
    send(peer.socket, 'f');
    REQUIRE(receive(peer.socket) == 'f');
    CHECK(cuMemAlloc(&address, 32 * kMiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == (62 - 2 - 32) * kMiB);
    send(peer.socket, 'e');
    CHECK(wait_child(peer.pid) == 0);
    CHECK(free_bytes() == (62 - 32) * kMiB);
}

SIM_TEST("SIGKILL gives a process's memory back", own_name("kill"), "CAPACITY=64MiB", "CONTEXT_OVERHEAD=2MiB") {
    start();
    for (int round = 0; round < 3; ++round) {
        Peer peer("peer that allocates", shared_settings());
        REQUIRE(receive(peer.socket) == 'a');
        CHECK(free_bytes() == (62 - 34) * kMiB);
        REQUIRE(::kill(peer.pid, SIGKILL) == 0);
        CHECK(wait_child(peer.pid) == 1000 + SIGKILL);
        CUdeviceptr address = 0;
        // An allocation that would fail looks for the dead by itself.
        CHECK(cuMemAlloc(&address, 60 * kMiB) == CUDA_SUCCESS);
        CHECK(cuMemFree(address) == CUDA_SUCCESS);
        CHECK(free_bytes() == 62 * kMiB);
    }
}

SIM_TEST("a process killed again and again at any moment leaves the books right", own_name("storm"),
         "CAPACITY=64MiB", "CONTEXT_OVERHEAD=2MiB") {
    start();
    for (int round = 0; round < 20; ++round) {
        Peer peer("peer that never stops", shared_settings());
        REQUIRE(receive(peer.socket) == 's');
        // However long this takes, it stops the peer somewhere in its loop, perhaps with the lock held.
        for (int i = 0; i < round * 50; ++i) CHECK(cuMemFree(allocate(2 * kMiB)) == CUDA_SUCCESS);
        REQUIRE(::kill(peer.pid, SIGKILL) == 0);
        CHECK(wait_child(peer.pid) == 1000 + SIGKILL);
        CHECK(free_bytes() == 62 * kMiB);
    }
}

TEST_CASE("child: peer that never stops" * doctest::skip()) {
    start();
    send(0, 's');
    for (;;) {
        CUdeviceptr address = 0;
        if (cuMemAlloc(&address, 4 * kMiB) == CUDA_SUCCESS) cuMemFree(address);
    }
}

SIM_TEST("a handle that travels keeps memory while anyone holds it", own_name("travel"), "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB") {
    start();
    Peer peer("peer that imports", shared_settings());
    CUmemAllocationProp properties = device_memory();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMemCreate(&handle, 16 * kMiB, &properties, 0) == CUDA_SUCCESS);
    int fd = -1;
    REQUIRE(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    send_descriptor(peer.socket, fd);
    ::close(fd);
    REQUIRE(receive(peer.socket) == 'i');
    CHECK(free_bytes() == (60 - 16) * kMiB);  // counted once
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(free_bytes() == (60 - 16) * kMiB);
    send(peer.socket, 'r');
    REQUIRE(receive(peer.socket) == 'r');
    CHECK(free_bytes() == 60 * kMiB);
    send(peer.socket, 'e');
    CHECK(wait_child(peer.pid) == 0);
}

SIM_TEST("the death of the last holder frees an imported handle", own_name("heir"), "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB") {
    start();
    Peer peer("peer that imports", shared_settings());
    CUmemAllocationProp properties = device_memory();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMemCreate(&handle, 16 * kMiB, &properties, 0) == CUDA_SUCCESS);
    int fd = -1;
    REQUIRE(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    send_descriptor(peer.socket, fd);
    ::close(fd);
    REQUIRE(receive(peer.socket) == 'i');
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    REQUIRE(::kill(peer.pid, SIGKILL) == 0);
    CHECK(wait_child(peer.pid) == 1000 + SIGKILL);
    CHECK(free_bytes() == 62 * kMiB);
}

SIM_TEST("processes set differently do not share a device", own_name("differ"), "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB") {
    start();
    auto settings = shared_settings();
    settings[1] = "CAPACITY=32MiB";
    CHECK(run_child("peer that is set differently", settings) == 0);
}
TEST_CASE("child: peer that is set differently" * doctest::skip()) {
    announce();
    CHECK(cuInit(0) == CUDA_ERROR_SYSTEM_NOT_READY);
}
