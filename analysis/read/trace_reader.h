// Opens a trace file. The file is hostile: every length, index and column is checked against the limits in
// proto/chunk.h before it is used, and no field can make the reader hold more than a stated multiple of the
// file's size. All of it is checked at once; the events are decoded when they are asked for, and only an
// index of them is held (event_index.h).
#pragma once

#include <optional>
#include <string>

#include "analysis/trace.h"

namespace fragscope::analysis {

// Either a trace or one sentence that says why there is none. A file that breaks off or is damaged behind its
// first chunk is a trace: everything before the damage, with Trace::file saying what was found where.
struct ReadResult {
    std::optional<Trace> trace;
    std::string error;
};

ReadResult read_trace(const std::string& path);

}  // namespace fragscope::analysis
