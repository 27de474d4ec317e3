// What a simulated machine looks like, read once from FRAGSCOPE_SIM_CONFIG and FRAGSCOPE_SIM_* variables.
//
// Assumes nothing about the host program: it may be read from any thread, before the program's constructors.
// A wrong key or value is never passed over: load_settings() returns its description and cuInit then fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api.h"

namespace fragscope::sim {

enum class Contiguity {
    None,    // any free pages will do for any allocation
    Linear,  // cuMemAlloc and its kin need neighbouring physical pages; cuMemCreate and pools do not
    All,     // every allocation needs neighbouring physical pages
};

// "fault.cuMemAlloc_v2 = 2@3" (the third call) or "2@every:5" (calls 5, 10, 15...).
struct Fault {
    Function function;
    CUresult error;
    std::uint64_t number;  // > 0
    bool every;
};

struct Latency {
    Function function;
    std::uint64_t nanoseconds;  // busy wait before the call's work
};

// "signal.cuCtxSynchronize = 14": SIGALRM comes in the middle of each call.
struct Interruption {
    Function function;
    int signal;  // raised in the calling thread before the call's work, while nothing is locked
};

struct Settings {
    unsigned devices = 2;                                     // 1..kMaxDevices
    std::uint64_t capacity = std::uint64_t{8} << 30;          // bytes per device
    std::uint64_t page_size = std::uint64_t{2} << 20;         // bytes of one physical page
    std::uint64_t granularity_minimum = 0;                    // bytes; 0: page_size
    std::uint64_t granularity_recommended = 0;                // bytes; 0: granularity_minimum
    std::uint64_t multicast_granularity = 0;                  // bytes; 0: twice granularity_recommended
    std::uint64_t module_bytes = 0;                           // device bytes of a module's code in a context
    bool lazy_loading = true;                                 // code is loaded when it is first needed
    bool limit_memory = false;                                // cuCtxSetLimit changes device memory
    std::uint64_t pool_chunk = std::uint64_t{32} << 20;       // bytes by which a pool grows
    std::uint64_t va_base = std::uint64_t{1} << 47;           // first device address
    std::uint64_t va_bytes = std::uint64_t{1} << 47;          // size of the device address space
    std::uint64_t context_overhead = std::uint64_t{256} << 20;  // bytes charged per context
    std::uint64_t driver_reserve = 0;                         // bytes per device nobody can have
    int driver_version = 0;                                   // as cuDriverGetVersion says it
    Contiguity contiguity = Contiguity::None;
    bool backing = true;           // device memory keeps the bytes written to it
    bool map_offset = false;       // cuMemMap accepts an offset other than 0
    bool deinitialize_at_exit = false;  // calls after exit() began answer CUDA_ERROR_DEINITIALIZED
    std::string device_name;       // empty: made from the capacity
    std::string log;               // file; every call and look-up
    std::string ledger;            // file; every change of memory state
    std::string shared;            // name of the shared device; empty: the process has it alone
    std::vector<Fault> faults;
    std::vector<Latency> latencies;
    std::vector<Interruption> interruptions;
};

inline constexpr unsigned kMaxDevices = 16;

// The version that this build of the library says when no setting does; see driver_version.cpp.
extern const int kDefaultDriverVersion;

// Fills `settings`. Returns "" or one sentence that names the file and line, or the variable, at fault.
std::string load_settings(Settings& settings);

// "8GiB", "512 MiB", "2M", "4096": bytes. False when `text` is anything else or does not fit in 64 bits.
bool parse_bytes(const std::string& text, std::uint64_t& bytes);

// "190us", "1.5ms", "300ns", "2s": nanoseconds, at most one minute.
bool parse_duration(const std::string& text, std::uint64_t& nanoseconds);

}  // namespace fragscope::sim
