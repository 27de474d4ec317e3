// What the driver takes for what a process holds.
//
// A VMM handle takes exactly its size: the call says so. What a linear block takes is not said anywhere:
// between what was requested and whole pages; requests up to 1 MiB share pages, so the most they can take is
// the pages that their addresses lie in. Managed memory may be resident or not. What a pool takes is its
// reserved size, which only the driver knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/losses.h"
#include "analysis/quantity.h"
#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

Interval charged_linear(const ProcessState& state, int device);
// More than the handles' own sizes where it is not known whether an array or a multicast object holds some.
Interval charged_handles(const ProcessState& state, int device);
// At least the texels' bytes: what a tiled layout takes beyond them, no call says.
Interval charged_arrays(const ProcessState& state, int device);
// Handles, linear blocks, arrays, managed memory, and pools as far as their live blocks go (neither their
// reserved size nor what graphs hold is in the calls, so there is no upper end where either is in use).
// Nothing while the process is checkpointed.
Interval charged_by_records(const ProcessState& state, int device);

// How much of the physical memory of VMM handles holds written payload.
struct Payload {
    std::uint64_t written = 0;           // bytes that copies and memsets wrote
    std::uint64_t partly_unwritten = 0;  // unwritten rest of the pages that hold at least one written byte
    std::uint64_t never_written = 0;     // pages without a written byte
    bool decisive = false;               // nothing else can have written: `written` is all there ever was
    bool seen = false;                   // any write at all was recorded
    std::string why;                     // why it is decisive, or why not
};

Payload payload_of(const Trace& trace, ProcessIndex process, const ProcessState& state, int device);

}  // namespace fragscope::analysis
