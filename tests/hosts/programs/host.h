// For the host programs of this folder: calls whose every trace in the program is printed, and a look at the process from
// inside. A program that is run twice, with and without a tool around it, prints the same twice, or the tool is to be
// seen. Pointers that may differ from run to run are printed by number, in the order of their first appearance.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace host {

// Left in errno and, by a look-up that fails, in dlerror before each call.
inline constexpr int kErrno = 4242;

// "<name> <result> errno <n> dlerror <pending|none>". The message was pending before the call, so it has to be after it,
// unless HOST_NO_DLERROR is set.
template <typename Function, typename... Arguments>
CUresult say(const char* name, Function function, Arguments... arguments) {
    if (function == nullptr) {
        std::printf("%s absent\n", name);
        return CUDA_ERROR_NOT_FOUND;
    }
    static const bool pending = std::getenv("HOST_NO_DLERROR") == nullptr;
    if (pending) dlopen("/no/such/library", RTLD_LAZY);
    errno = kErrno;
    const CUresult result = function(arguments...);
    const int after = errno;
    std::printf("%s %d errno %d dlerror %s\n", name, static_cast<int>(result), after,
                dlerror() != nullptr ? "pending" : "none");
    return result;
}

inline int number_of(std::uint64_t value) {
    static std::vector<std::uint64_t> seen;
    if (value == 0) return 0;
    const auto at = std::find(seen.begin(), seen.end(), value);
    if (at != seen.end()) return static_cast<int>(at - seen.begin()) + 1;
    seen.push_back(value);
    return static_cast<int>(seen.size());
}
template <typename Pointer>
int number_of(Pointer* value) {
    return number_of(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(value)));
}

inline void say_file(const char* path, std::initializer_list<const char*> lines) {
    FILE* file = std::fopen(path, "re");
    if (file == nullptr) return;
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr)
        for (const char* wanted : lines)
            if (std::strncmp(line, wanted, std::strlen(wanted)) == 0) std::printf("  %s", line);
    std::fclose(file);
}

// What a process can find out of itself. Of its environment only what a recorder need not add.
inline void look_around(const char* when) {
    std::printf("around %s\n", when);
    say_file("/proc/self/status", {"SigBlk:", "SigIgn:", "SigCgt:", "Threads:", "Umask:", "Seccomp:", "NoNewPrivs:"});
    const mode_t mask = umask(0);
    umask(mask);
    std::printf("  umask %o\n", static_cast<unsigned>(mask));
    char text[4096];
    if (getcwd(text, sizeof text) != nullptr) std::printf("  cwd %s\n", text);
    for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit limit{};
        getrlimit(static_cast<__rlimit_resource>(resource), &limit);
        std::printf("  limit %d %llu %llu\n", resource, static_cast<unsigned long long>(limit.rlim_cur),
                    static_cast<unsigned long long>(limit.rlim_max));
    }
    for (int number = 1; number < 65; ++number) {
        struct sigaction action {};
        if (sigaction(number, nullptr, &action) != 0) continue;
        if (action.sa_handler != SIG_DFL || action.sa_flags != 0)
            std::printf("  signal %d %s flags %x\n", number, action.sa_handler == SIG_IGN ? "ignored" : "caught",
                        static_cast<unsigned>(action.sa_flags));
    }
    std::vector<std::string> found;
    DIR* folder = opendir("/proc/self/fd");
    while (dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
        if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == dirfd(folder)) continue;
        char target[512];
        const std::string path = std::string("/proc/self/fd/") + entry->d_name;
        const ssize_t length = readlink(path.c_str(), target, sizeof target);
        std::string name(target, length > 0 ? static_cast<std::size_t>(length) : 0);
        name = name.substr(0, name.find(":["));  // the number of a pipe differs from run to run
        found.push_back(std::string(entry->d_name) + " " + name);
    }
    if (folder != nullptr) closedir(folder);
    std::sort(found.begin(), found.end());
    for (const std::string& each : found) std::printf("  descriptor %s\n", each.c_str());
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
    std::sort(variables.begin(), variables.end());
    for (const std::string& each : variables) std::printf("  variable %s\n", each.c_str());
    say_file("/proc/self/comm", {""});
    std::fflush(stdout);
}

// ------------------------------------------------------------------------------------------------------- the driver

// The functions of `work()`, wherever they come from. A driver that lacks one leaves it null.
#define HOST_FUNCTIONS(X)                                                                                          \
    X(cuInit, cuInit)                                                                                              \
    X(cuDriverGetVersion, cuDriverGetVersion)                                                                      \
    X(cuDeviceGetCount, cuDeviceGetCount)                                                                          \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                          \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease)                                                     \
    X(cuCtxSetCurrent, cuCtxSetCurrent)                                                                            \
    X(cuMemGetInfo_v2, cuMemGetInfo)                                                                               \
    X(cuMemAlloc_v2, cuMemAlloc)                                                                                   \
    X(cuMemAllocPitch_v2, cuMemAllocPitch)                                                                         \
    X(cuMemAllocManaged, cuMemAllocManaged)                                                                        \
    X(cuMemFree_v2, cuMemFree)                                                                                     \
    X(cuMemHostAlloc, cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost, cuMemFreeHost)                                                                                \
    X(cuMemAllocAsync, cuMemAllocAsync)                                                                            \
    X(cuMemFreeAsync, cuMemFreeAsync)                                                                              \
    X(cuStreamSynchronize, cuStreamSynchronize)                                                                    \
    X(cuMemAddressReserve, cuMemAddressReserve)                                                                    \
    X(cuMemAddressFree, cuMemAddressFree)                                                                          \
    X(cuMemCreate, cuMemCreate)                                                                                    \
    X(cuMemRelease, cuMemRelease)                                                                                  \
    X(cuMemMap, cuMemMap)                                                                                          \
    X(cuMemUnmap, cuMemUnmap)                                                                                      \
    X(cuMemSetAccess, cuMemSetAccess)

struct Driver {
#define HOST_MEMBER(symbol, base) decltype(&::symbol) symbol = nullptr;
    HOST_FUNCTIONS(HOST_MEMBER)
#undef HOST_MEMBER
};

// Found by dlsym(handle, …).
inline Driver by_handle(void* handle) {
    Driver driver;
#define HOST_FIND(symbol, base) \
    driver.symbol = reinterpret_cast<decltype(&::symbol)>(dlsym(handle, #symbol));
    HOST_FUNCTIONS(HOST_FIND)
#undef HOST_FIND
    return driver;
}

// As runtimes do: one dlsym, the rest by the resolver, `version` as a program of that version asks. `flags` 2: the variants
// of the per-thread default stream.
inline Driver by_resolver(void* handle, int version, cuuint64_t flags = 0) {
    Driver driver;
    using New = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    using Old = CUresult (*)(const char*, void**, int, cuuint64_t);
    auto with_status = reinterpret_cast<New>(dlsym(handle, "cuGetProcAddress_v2"));
    auto without = reinterpret_cast<Old>(dlsym(handle, "cuGetProcAddress"));
    void* found = nullptr;
    if (with_status != nullptr && with_status("cuGetProcAddress", &found, 12000, 0, nullptr) == CUDA_SUCCESS && found != nullptr)
        with_status = reinterpret_cast<New>(found);
    const auto ask = [&](const char* name) -> void* {
        void* function = nullptr;
        CUdriverProcAddressQueryResult status{};
        if (with_status != nullptr)
            with_status(name, &function, version, flags, &status);
        else if (without != nullptr)
            without(name, &function, version, flags);
        return function;
    };
#define HOST_FIND(symbol, base) driver.symbol = reinterpret_cast<decltype(&::symbol)>(ask(#base));
    HOST_FUNCTIONS(HOST_FIND)
#undef HOST_FIND
    return driver;
}

// A bit of everything, each call printed: 2 linear allocations, a pitched and a managed one, pinned memory, a pool, a
// mapped handle, a request that cannot be met; and all of it given back, unless `keep`.
inline int work(const Driver& d, bool keep = false) {
#define SAY(name, ...) host::say(#name, d.name, __VA_ARGS__)
    int version = 0, devices = 0;
    if (SAY(cuInit, 0u) != CUDA_SUCCESS) return 1;
    SAY(cuDriverGetVersion, &version);
    SAY(cuDeviceGetCount, &devices);
    std::printf("version %d devices %d\n", version, devices);
    CUcontext context = nullptr;
    SAY(cuDevicePrimaryCtxRetain, &context, 0);
    SAY(cuCtxSetCurrent, context);
    CUdeviceptr small = 0, large = 0, pitched = 0, managed = 0, pooled = 0, reserved = 0, refused = 7;
    std::size_t pitch = 0, free_bytes = 0, total_bytes = 0;
    void* pinned = nullptr;
    CUmemGenericAllocationHandle handle = 0;
    SAY(cuMemAlloc_v2, &small, std::size_t{1000});
    SAY(cuMemAlloc_v2, &large, std::size_t{5} << 20);
    SAY(cuMemAllocPitch_v2, &pitched, &pitch, std::size_t{1000}, std::size_t{300}, 4u);
    SAY(cuMemAllocManaged, &managed, std::size_t{1} << 20, static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemHostAlloc, &pinned, std::size_t{8192}, 0u);
    SAY(cuMemAllocAsync, &pooled, std::size_t{3} << 20, CUstream{nullptr});
    SAY(cuMemAddressReserve, &reserved, std::size_t{8} << 20, std::size_t{0}, CUdeviceptr{0}, 0ull);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    SAY(cuMemCreate, &handle, std::size_t{4} << 20, &properties, 0ull);
    SAY(cuMemMap, reserved, std::size_t{4} << 20, std::size_t{0}, handle, 0ull);
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    SAY(cuMemSetAccess, reserved, std::size_t{4} << 20, &access, std::size_t{1});
    SAY(cuMemAlloc_v2, &refused, std::size_t{1} << 40);
    SAY(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    std::printf("%llx %llx %llx %zu %llx %llx refused %llx free %zu of %zu\n", small, large, pitched, pitch, pooled, reserved,
                refused, free_bytes, total_bytes);
    if (keep) return 0;
    SAY(cuMemUnmap, reserved, std::size_t{4} << 20);
    SAY(cuMemRelease, handle);
    SAY(cuMemAddressFree, reserved, std::size_t{8} << 20);
    SAY(cuMemFreeAsync, pooled, CUstream{nullptr});
    SAY(cuStreamSynchronize, CUstream{nullptr});
    SAY(cuMemFreeHost, pinned);
    SAY(cuMemFree_v2, managed);
    SAY(cuMemFree_v2, pitched);
    SAY(cuMemFree_v2, large);
    SAY(cuMemFree_v2, small);
    SAY(cuMemFree_v2, small);  // once too often
    SAY(cuDevicePrimaryCtxRelease_v2, 0);
#undef SAY
    return 0;
}

}  // namespace host
