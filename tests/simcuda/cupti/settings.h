// The `cupti.*` settings of the simulated machine (README.md), read once from the same file and variables as the driver's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace fragscope::sim_cupti {

struct Settings {
    std::uint32_t version = 0;              // as cuptiGetVersion says it
    std::uint64_t latency_ns = 5'000'000;   // until a record is complete
    std::size_t batch = 64;                 // records that wait before the worker moves
    std::size_t queue = 65536;              // records that may wait for a buffer; more are dropped
    std::size_t drop_every = 0;             // each so-manieth record is dropped; 0: none
    std::size_t timeless_every = 0;         // each so-manieth record has the time 0; 0: none
    std::uint64_t device_memory = 10 << 20;  // bytes in each context, unless the client asks for pinned memory
    bool request_in_call = false;           // buffers are asked for in the program's threads, inside the driver's call
    std::string subscriber;                 // a tool that has subscribed from the start; empty: none
    std::map<std::string, int> faults;      // by function: what it answers
    std::map<std::string, std::uint64_t> delays;  // by function: nanoseconds that it waits first
    std::string wrong;                      // not empty: a setting that cannot be; every function answers NOT_INITIALIZED
};

const Settings& settings();

}  // namespace fragscope::sim_cupti
