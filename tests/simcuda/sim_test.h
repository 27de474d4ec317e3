// Tests of the simulated driver. Its settings are read once per process, so a test that wants its own runs in a
// process of its own: SIM_TEST("name", "CAPACITY=64MiB", ...) { body }.
#pragma once

#include <cuda.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

extern "C" char** environ;

namespace sim_test {

inline constexpr std::size_t kKiB = 1 << 10;
inline constexpr std::size_t kMiB = 1 << 20;
inline constexpr std::size_t kGiB = 1 << 30;

// Starts this program again for one skipped test case, with only the given FRAGSCOPE_SIM_* settings; `in` and
// `out` are its standard input and output when not -1.
inline pid_t start_child(const std::string& name, const std::vector<std::string>& settings, int announce, int in = -1,
                         int out = -1) {
    std::vector<std::string> variables;
    for (char** each = environ; *each != nullptr; ++each) {
        if (std::strncmp(*each, "FRAGSCOPE_SIM_", 14) == 0 || std::strncmp(*each, "SIM_TEST_", 9) == 0) continue;
        variables.emplace_back(*each);
    }
    for (const std::string& setting : settings) variables.push_back("FRAGSCOPE_SIM_" + setting);
    variables.push_back("SIM_TEST_ANNOUNCE=" + std::to_string(announce));
    std::vector<char*> environment, arguments;
    for (std::string& each : variables) environment.push_back(each.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe", filter = "--test-case=child: " + name, skip = "--no-skip",
                quiet = "--minimal";
    for (char& each : filter) {
        if (each == ',') each = '?';  // a comma would separate two filters
    }
    for (std::string* each : {&program, &filter, &skip, &quiet}) arguments.push_back(each->data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (in >= 0) posix_spawn_file_actions_adddup2(&actions, in, 0);
    if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, 1);
    pid_t pid = -1;
    char path[512];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return -1;
    path[length] = '\0';
    const int error = ::posix_spawn(&pid, path, &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? pid : -1;
}

inline int wait_child(pid_t pid) {
    int status = -1;
    if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// 0 when the child ran and every check in it held.
inline int run_child(const std::string& name, const std::vector<std::string>& settings) {
    int ends[2];
    if (::pipe(ends) != 0) return -1;
    const pid_t pid = start_child(name, settings, ends[1]);
    ::close(ends[1]);
    char byte = 0;
    // A child whose test case does not exist would end well without running anything.
    const bool ran = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
    const int status = wait_child(pid);
    return ran ? status : -2;
}

inline void announce() {
    const char* text = std::getenv("SIM_TEST_ANNOUNCE");
    const int fd = text == nullptr ? -1 : std::atoi(text);
    if (fd >= 0) {
        REQUIRE(::write(fd, "+", 1) == 1);
        ::close(fd);
    }
}

// Initialises, and makes the primary context of device 0 current.
inline void start(int device = 0) {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    CUcontext context = nullptr;
    REQUIRE(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

inline std::size_t free_bytes() {
    std::size_t free = 0;
    REQUIRE(cuMemGetInfo(&free, nullptr) == CUDA_SUCCESS);
    return free;
}

inline CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
    return address;
}

inline CUmemAllocationProp device_memory(int device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

inline CUmemGenericAllocationHandle create(std::size_t bytes, int device = 0) {
    const CUmemAllocationProp properties = device_memory(device);
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
    return handle;
}

inline std::string temporary_file(const char* what) {
    return "/tmp/fragscope-sim-test-" + std::to_string(::getpid()) + "-" + what;
}

}  // namespace sim_test

#define SIM_TEST_JOIN2(a, b) a##b
#define SIM_TEST_JOIN(a, b) SIM_TEST_JOIN2(a, b)
#define SIM_TEST_IMPL(body, name, ...)                                                         \
    static void body();                                                                        \
    TEST_CASE(name) { CHECK(sim_test::run_child(name, std::vector<std::string>{__VA_ARGS__}) == 0); } \
    TEST_CASE("child: " name* doctest::skip()) {                                               \
        sim_test::announce();                                                                  \
        body();                                                                                \
    }                                                                                          \
    static void body()
// In a process of its own, with settings "KEY=value".
#define SIM_TEST(...) SIM_TEST_IMPL(SIM_TEST_JOIN(sim_test_body_, __COUNTER__), __VA_ARGS__)
