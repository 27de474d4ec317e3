// The table behind cuGetProcAddress, generated from cudaTypedefs.h (lookup_table.cpp).
#pragma once

#include <vector>

namespace fragscope::sim {

struct LookupRow {
    using Code = void (*)();
    const char* base;    // the name that is asked for
    int version;         // CUDA version from which this is the answer
    bool per_thread;     // for flag PER_THREAD_DEFAULT_STREAM
    const char* symbol;  // exported name
    Code function;
};

// Sorted by base name, then legacy before per-thread, then by version.
const std::vector<LookupRow>& lookup_rows();

int reported_driver_version();

}  // namespace fragscope::sim
