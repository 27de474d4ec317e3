// What the demo programs share: exit codes, byte counts for people, and short ways to give up. Nothing here
// calls CUDA's driver API; each program says in its first comment how it reaches the functions it needs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace demo {

// Exit codes of every demo program.
enum Exit : int {
    kFinished = 0,     // everything went as planned and nothing failed
    kOutOfMemory = 1,  // the failure that the program is about
    kBadUsage = 2,     // the command line was not understood
    kNoScene = 3,      // something else went wrong before it could fail as planned
};

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;

inline double gib(std::size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }
inline double mib(std::size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

inline std::size_t round_down(std::size_t amount, std::size_t unit) { return amount / unit * unit; }

// A share of an amount, rounded down to whole units.
inline std::size_t share(std::size_t amount, unsigned percent, std::size_t unit) {
    return round_down(amount / 100 * percent, unit);
}

__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::putchar('\n');
    std::fflush(stdout);
}

// For everything that is not the failure the program is about.
inline int no_scene(const char* step, const char* reason) {
    std::fprintf(stderr, "could not set the scene: %s: %s\n", step, reason);
    return kNoScene;
}

inline int no_scene(const char* step, cudaError_t error) { return no_scene(step, cudaGetErrorString(error)); }

// Handles --help and refuses any other argument. Returns -1 when the program should go on.
inline int read_no_arguments(int argc, char** argv, const char* help) {
    if (argc == 1) return -1;
    if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
        std::fputs(help, stdout);
        return kFinished;
    }
    std::fprintf(stderr, "%s: it takes no arguments but --help\n", argv[0]);
    return kBadUsage;
}

// Free and total bytes of the current device, as the driver counts them.
struct DeviceMemory {
    std::size_t free = 0;
    std::size_t total = 0;
};

inline cudaError_t look(DeviceMemory* memory) { return cudaMemGetInfo(&memory->free, &memory->total); }

}  // namespace demo
