// Where the program was by its own account: ranges and marks (NVTX, fragscope_mark) and names of threads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

inline constexpr std::size_t kPhasesShown = 24;

// What the thread of one event was in just before it.
struct WhereInProgram {
    std::string thread_name;          // empty: it has none
    std::vector<std::string> ranges;  // open ones, the outermost first
    std::string last_mark;            // empty: none on this thread
};

WhereInProgram where_in_program(const Trace& trace, ProcessIndex process, std::size_t index);

// Ranges and marks of a process by name, in order of their beginning: of each name the longest, and how often
// it came. Where there are more than kPhasesShown names, the longest ranges.
std::vector<report::Phase> phases_of(const Trace& trace, ProcessIndex process);

}  // namespace fragscope::analysis
