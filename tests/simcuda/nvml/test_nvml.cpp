// The stand-in management library against the driver's own words about the same devices, and against its settings.
// Sizes follow from the settings: pages of 2 MiB, a context of 2 MiB, devices of 64 MiB.
#include <dlfcn.h>

#include <map>

#include "nvml_api.h"
#include "sim_peer.h"

using namespace sim_test;
using namespace fragscope::nvml;

namespace {

// The library under test is found as programs find it.
template <typename Function>
Function function(const char* name) {
    static void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library != nullptr, ::dlerror());
    return reinterpret_cast<Function>(::dlsym(library, name));
}

template <typename... Arguments>
Return call(const char* name, Arguments... arguments) {
    const auto found = function<Return (*)(Arguments...)>(name);
    const bool there = found != nullptr;
    REQUIRE_MESSAGE(there, name);
    return found(arguments...);
}

void* device(unsigned index = 0) {
    void* handle = nullptr;
    REQUIRE(call("nvmlInit_v2") == kSuccess);
    REQUIRE(call("nvmlDeviceGetHandleByIndex_v2", index, &handle) == kSuccess);
    return handle;
}

MemoryV2 memory(void* handle) {
    MemoryV2 out{};
    out.version = sizeof out | 2U << 24;
    CHECK(call("nvmlDeviceGetMemoryInfo_v2", handle, &out) == kSuccess);
    return out;
}

// By pid: bytes.
std::map<unsigned, unsigned long long> processes(void* handle) {
    std::map<unsigned, unsigned long long> out;
    ProcessV2 entries[8];
    unsigned count = 8;
    REQUIRE(call("nvmlDeviceGetComputeRunningProcesses_v3", handle, &count, &entries[0]) == kSuccess);
    for (unsigned i = 0; i < count; ++i) out[entries[i].pid] = entries[i].used;
    return out;
}

}  // namespace

TEST_CASE("child: NVML peer that allocates" * doctest::skip()) {
    start();
    allocate(32 * kMiB);
    send(0, 'a');
    receive(0);
}

SIM_TEST("NVML sees what each process of a shared device holds, contexts too", own_name("nvml"), "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB", "NVML_RESERVED=10MiB") {
    const auto self = static_cast<unsigned>(::getpid());
    void* handle = device();
    CHECK(memory(handle).free == 64 * kMiB);  // nobody yet
    CHECK(processes(handle).empty());
    start();
    allocate(4 * kMiB);
    Peer peer("NVML peer that allocates", shared_settings());
    REQUIRE(receive(peer.socket) == 'a');
    const auto other = static_cast<unsigned>(peer.pid);
    const MemoryV2 now = memory(handle);
    CHECK(now.total == 74 * kMiB);
    CHECK(now.reserved == 10 * kMiB);
    CHECK(now.used == (6 + 34) * kMiB);
    CHECK(now.free == free_bytes());
    Memory old{};
    CHECK(call("nvmlDeviceGetMemoryInfo", handle, &old) == kSuccess);
    CHECK(old.used == now.used + now.reserved);  // the first version does not tell them apart
    CHECK(processes(handle) == std::map<unsigned, unsigned long long>{{self, 6 * kMiB}, {other, 34 * kMiB}});
    CHECK(processes(device(1)).empty());
    unsigned room = 1;
    ProcessV2 one{};
    CHECK(call("nvmlDeviceGetComputeRunningProcesses_v3", handle, &room, &one) == kInsufficientSize);
    CHECK(room == 2);
    REQUIRE(::kill(peer.pid, SIGKILL) == 0);
    CHECK(wait_child(peer.pid) == 1000 + SIGKILL);
    CHECK(processes(handle) == std::map<unsigned, unsigned long long>{{self, 6 * kMiB}});
    CHECK(memory(handle).free == 58 * kMiB);
}

SIM_TEST("memory behind a handle is its exporter's, or else whose it is left to", own_name("nvml-handle"),
         "CAPACITY=64MiB", "CONTEXT_OVERHEAD=2MiB") {
    start();
    void* handle = device();
    CUmemAllocationProp properties = device_memory();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle memory_handle = 0;
    REQUIRE(cuMemCreate(&memory_handle, 16 * kMiB, &properties, 0) == CUDA_SUCCESS);
    int fd = -1;
    REQUIRE(cuMemExportToShareableHandle(&fd, memory_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
            CUDA_SUCCESS);
    const auto self = static_cast<unsigned>(::getpid());
    CHECK(processes(handle) == std::map<unsigned, unsigned long long>{{self, 18 * kMiB}});
    CHECK(cuMemRelease(memory_handle) == CUDA_SUCCESS);
    CHECK(processes(handle) == std::map<unsigned, unsigned long long>{{self, 2 * kMiB}});  // the descriptor keeps it
    CHECK(memory(handle).free == 46 * kMiB);
    ::close(fd);
    CHECK(free_bytes() == 62 * kMiB);
    CHECK(memory(handle).free == 62 * kMiB);
}

SIM_TEST("devices that no other process has are seen in their own process only", "CAPACITY=64MiB",
         "CONTEXT_OVERHEAD=2MiB") {
    void* handle = device();
    start();
    allocate(4 * kMiB);
    CHECK(memory(handle).free == free_bytes());
    CHECK(processes(handle) ==
          std::map<unsigned, unsigned long long>{{static_cast<unsigned>(::getpid()), 6 * kMiB}});
}

SIM_TEST("NVML and the driver name a device alike", "DEVICES=3") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    CUuuid uuid{};
    char bus[32], text[80], expected[80];
    REQUIRE(cuDeviceGetUuid(&uuid, 2) == CUDA_SUCCESS);
    REQUIRE(cuDeviceGetPCIBusId(bus, sizeof bus, 2) == CUDA_SUCCESS);
    void* handle = nullptr;
    REQUIRE(call("nvmlInit_v2") == kSuccess);
    REQUIRE(call("nvmlDeviceGetHandleByPciBusId_v2", &bus[0], &handle) == kSuccess);
    CHECK(handle == device(2));
    REQUIRE(call("nvmlDeviceGetUUID", handle, &text[0], 80U) == kSuccess);
    const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
    std::snprintf(expected, sizeof expected,
                  "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
                  b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    CHECK(std::string(text) == expected);
    CHECK(call("nvmlDeviceGetUUID", handle, &text[0], 8U) == kInsufficientSize);
}

SIM_TEST("a device that is cut up has one instance with all of it", own_name("nvml-mig"), "NVML_MIG=on",
         "CAPACITY=64MiB", "CONTEXT_OVERHEAD=2MiB") {
    start();
    void *instance = nullptr, *parent = nullptr;
    unsigned current = 0, pending = 0, id = 0;
    CHECK(call("nvmlDeviceGetMigMode", device(), &current, &pending) == kSuccess);
    CHECK((current == 1 && pending == 1));
    REQUIRE(call("nvmlDeviceGetMigDeviceHandleByIndex", device(), 0U, &instance) == kSuccess);
    CHECK(call("nvmlDeviceGetMigDeviceHandleByIndex", device(), 1U, &parent) == kNotFound);
    REQUIRE(call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance, &parent) == kSuccess);
    CHECK(parent == device());
    char text[80];
    CHECK(call("nvmlDeviceGetUUID", instance, &text[0], 80U) == kSuccess);
    CHECK(std::string(text).rfind("MIG-", 0) == 0);
    CHECK(call("nvmlDeviceGetGpuInstanceId", instance, &id) == kSuccess);
    ProcessV2 entry{};
    unsigned count = 1;
    CHECK(call("nvmlDeviceGetComputeRunningProcesses_v3", instance, &count, &entry) == kSuccess);
    CHECK((count == 1 && entry.gpu_instance == id && entry.used == 2 * kMiB));
}

SIM_TEST("what the library is told not to tell", own_name("nvml-silent"), "NVML_PROCESSES=forbidden",
         "NVML_ERROR_nvmlDeviceGetName=15", "NVML_PROCESS_BYTES=not_available") {
    unsigned count = 8;
    ProcessV2 entries[8];
    char name[96];
    CHECK(call("nvmlDeviceGetCount_v2", &count) == kUninitialized);
    CHECK(call("nvmlDeviceGetComputeRunningProcesses_v3", device(), &count, &entries[0]) == kNoPermission);
    CHECK(call("nvmlDeviceGetName", device(), &name[0], 96U) == 15);
}

SIM_TEST("process numbers can be another namespace's", own_name("nvml-pids"), "NVML_PID_OFFSET=100000") {
    start();
    const auto list = processes(device());
    REQUIRE(list.size() == 1);
    CHECK(list.begin()->first == static_cast<unsigned>(::getpid()) + 100000);
}
