// Settings, faults, latencies, log and ledger, older drivers.
#include <dlfcn.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>

#include "sim_test.h"

using namespace sim_test;

namespace {

std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

// A wrong setting must fail cuInit, whatever it is.
TEST_CASE("child: cuInit fails" * doctest::skip()) {
    announce();
    CHECK(cuInit(0) == CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK(cuInit(0) == CUDA_ERROR_SYSTEM_NOT_READY);
    int count = 0;
    CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
}

TEST_CASE("wrong settings are never passed over") {
    for (const char* wrong :
         {"NO_SUCH_SETTING=1", "CAPACITY=8 bananas", "CAPACITY=", "CAPACITY=3MiB", "CAPACITY=99999999999999999999",
          "DEVICES=0", "DEVICES=17", "DEVICES=two", "PAGE_SIZE=3MiB", "GRANULARITY_MINIMUM=1MiB", "VA_BITS=99",
          "VA_BYTES=1", "BACKING=perhaps", "CONTIGUITY=some", "DRIVER_VERSION=13.0", "FAULT_cuNoSuchThing=2@1",
          "FAULT_cuMemAlloc_v2=2", "FAULT_cuMemAlloc_v2=2@0", "FAULT_cuMemAlloc_v2=0@1",
          "LATENCY_cuMemAlloc_v2=fast", "LATENCY_cuMemAlloc_v2=2h", "SIGNAL_cuMemAlloc_v2=0",
          "SIGNAL_cuMemAlloc_v2=65", "SIGNAL_cuNoSuchThing=14", "DRIVER_RESERVE=9GiB", "SHARED=a/b",
          "LOG=/no/such/folder/file", "LEDGER=/no/such/folder/file", "CONFIG=/no/such/file"}) {
        CAPTURE(wrong);
        CHECK(run_child("cuInit fails", {wrong}) == 0);
    }
}

TEST_CASE("wrong settings files are never passed over") {
    const std::string path = temporary_file("config");
    for (const char* wrong : {"capacity 8GiB", "capacity = 8GiB\ncolour = blue", "fault.cuMemAlloc_v2 = 2@every:0"}) {
        CAPTURE(wrong);
        write(path, wrong);
        CHECK(run_child("cuInit fails", {"CONFIG=" + path}) == 0);
    }
    ::unlink(path.c_str());
}

TEST_CASE("child: what the file says" * doctest::skip()) {
    announce();
    start();
    int count = 0, version = 0;
    CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
    CHECK(count == 4);
    CHECK(cuDriverGetVersion(&version) == CUDA_SUCCESS);
    CHECK(version == 12040);
    CHECK(free_bytes() == 128 * kMiB);
}

TEST_CASE("a settings file, and a variable that overrides it") {
    const std::string path = temporary_file("config");
    write(path, "# a machine\n devices = 4 # several\n\ncapacity=512MiB\ndriver_version = 12040\n"
                "context_overhead = 0\nruntime.anything = for a sibling\n");
    CHECK(run_child("what the file says", {"CONFIG=" + path, "CAPACITY=128MiB"}) == 0);
    ::unlink(path.c_str());
}

SIM_TEST("a fault strikes the call it is set for", "FAULT_cuMemAlloc_v2=2@3", "CONTEXT_OVERHEAD=0") {
    start();
    CUdeviceptr address = 0;
    for (int call = 1; call <= 6; ++call) {
        CAPTURE(call);
        const std::size_t before = free_bytes();
        const CUresult result = cuMemAlloc(&address, 4 * kMiB);
        CHECK(result == (call == 3 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS));
        CHECK(before - free_bytes() == (call == 3 ? 0 : 4 * kMiB));
    }
}

SIM_TEST("a fault strikes every so many calls", "FAULT_cuMemCreate=801@every:2", "CONTEXT_OVERHEAD=0") {
    start();
    const CUmemAllocationProp properties = device_memory();
    CUmemGenericAllocationHandle handle = 0;
    for (int call = 1; call <= 6; ++call) {
        CHECK(cuMemCreate(&handle, 2 * kMiB, &properties, 0) ==
              (call % 2 == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS));
    }
}

namespace {
volatile std::sig_atomic_t signals_seen = 0;
}

SIM_TEST("a signal comes in each call, before its work", "SIGNAL_cuMemGetInfo_v2=10", "CONTEXT_OVERHEAD=0") {
    std::signal(SIGUSR1, [](int) { signals_seen = signals_seen + 1; });
    start();
    signals_seen = 0;
    std::size_t free_bytes = 0, total = 0;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
    CHECK(signals_seen == 1);
    CHECK(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
    CHECK(signals_seen == 2);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc_v2(&address, 4096) == CUDA_SUCCESS);
    CHECK(signals_seen == 2);
}

SIM_TEST("a latency is at least waited for", "LATENCY_cuMemCreate=2ms", "CONTEXT_OVERHEAD=0") {
    start();
    const auto begin = std::chrono::steady_clock::now();
    create(2 * kMiB);
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(2));
}

SIM_TEST("without backing nothing is kept", "BACKING=off", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr address = allocate(64);
    int value = 42;
    CHECK(cuMemcpyHtoD(address, &value, sizeof value) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(&value, address, sizeof value) == CUDA_SUCCESS);
    CHECK(value == 0);
}

TEST_CASE("child: some calls" * doctest::skip()) {
    announce();
    start();
    const CUdeviceptr large = allocate(4 * kMiB);
    CHECK(cuMemFree(large) == CUDA_SUCCESS);
    CHECK(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    void* pointer = nullptr;
    CUdriverProcAddressQueryResult status{};
    CHECK(cuGetProcAddress("cuMemAlloc", &pointer, 12000, 0, &status) == CUDA_SUCCESS);
    CHECK(cuGetProcAddress("cuNoSuchThing", &pointer, 12000, 0, &status) == CUDA_SUCCESS);
    CUgraphNode node = nullptr;
    CHECK(cuGraphAddHostNode(&node, nullptr, nullptr, 0, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("the log has every call and look-up") {
    const std::string path = temporary_file("log");
    CHECK(run_child("some calls", {"LOG=" + path}) == 0);
    const std::string text = contents(path);
    for (const char* line : {" call cuInit 0\n", " call cuMemAlloc_v2 0\n", " call cuMemFree_v2 0\n",
                             " call cuMemFree_v2 1\n", " call cuGraphAddHostNode 801\n",
                             " lookup cuMemAlloc 12000 0 cuMemAlloc_v2 0\n", " lookup cuNoSuchThing 12000 0 - 1\n"}) {
        CAPTURE(line);
        CHECK(text.find(line) != std::string::npos);
    }
    ::unlink(path.c_str());
}

TEST_CASE("the ledger has every change of memory with what is free afterwards") {
    const std::string path = temporary_file("ledger");
    CHECK(run_child("some calls", {"LEDGER=" + path, "CONTEXT_OVERHEAD=16MiB", "CAPACITY=64MiB"}) == 0);
    std::istringstream lines(contents(path));
    std::string line;
    std::vector<std::string> seen;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        std::string time, pid, tid, operation, object, bytes, charged, device, free, other, more;
        CHECK((fields >> time >> pid >> tid >> operation >> object >> bytes >> charged >> device >> free >> other));
        CHECK_FALSE((fields >> more));
        seen.push_back(operation + " " + bytes + " " + charged + " " + device + " " + free);
    }
    CHECK(seen == std::vector<std::string>{"context_create 16777216 16777216 0 50331648",
                                           "linear_alloc 4194304 4194304 0 46137344",
                                           "linear_free 4194304 -4194304 0 50331648"});
    ::unlink(path.c_str());
}

TEST_CASE("child: after exit began" * doctest::skip()) {
    announce();
    // Registered before cuInit registers its own, so it runs after it.
    std::atexit([] {
        CUdeviceptr address = 0;
        if (cuMemAlloc(&address, 1) != CUDA_ERROR_DEINITIALIZED) ::_exit(9);
        ::_exit(8);
    });
    start();
}
TEST_CASE("after exit began the driver is gone where that is set") {
    CHECK(run_child("after exit began", {"DEINITIALIZE_AT_EXIT=on"}) == 8);
    CHECK(run_child("after exit began", {}) == 9);
}

// Older builds of the driver stand beside this program, in driver-*/.
TEST_CASE("older drivers lack the newer ways of looking up") {
    char path[512];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
    REQUIRE(length > 0);
    path[length] = '\0';
    const std::string folder = std::string(path).substr(0, std::string(path).rfind('/'));
    struct Older {
        const char* name;
        bool v1;
        int version;
    };
    for (const Older& older : {Older{"driver-11.2", false, 11020}, Older{"driver-11.8", true, 11080}}) {
        CAPTURE(older.name);
        void* library = ::dlopen((folder + "/" + older.name + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
        REQUIRE(library != nullptr);
        CHECK(::dlsym(library, "cuGetProcAddress_v2") == nullptr);
        CHECK((::dlsym(library, "cuGetProcAddress") != nullptr) == older.v1);
        CHECK(::dlsym(library, "cuMemAllocAsync") != nullptr);
        CHECK(::dlsym(library, "cuLibraryLoadData") == nullptr);
        int version = 0;
        auto get_version = reinterpret_cast<CUresult (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
        REQUIRE((get_version != nullptr));
        CHECK(get_version(&version) == CUDA_SUCCESS);
        CHECK(version == older.version);
    }
}
