// What the driver takes for what a process holds, and how far losses blur it.
//
// A VMM handle takes exactly its size: the call says so. What a linear block takes is not said anywhere:
// between what was requested and whole pages; requests up to 1 MiB share pages, so the most they can take is
// the pages that their addresses lie in. Managed memory may be resident or not. What a pool takes is its
// reserved size, which only the driver knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/quantity.h"
#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// What the recording lost of one process.
struct Losses {
    bool counted = false;  // the trace says how much; otherwise nothing is known about losses
    bool acquisitions = false;
    std::optional<std::uint64_t>
        acquired_bytes;  // what the lost acquisitions would have added; absent: not known
    bool releases = false;
    bool unclassified = false;  // records of any kind
    std::uint64_t records = 0;
    bool any() const { return !counted || acquisitions || releases || unclassified; }
};

Losses losses_of(const Trace& trace, ProcessIndex process);
// The same, and what contradictions show: memory of before the recording or of calls that escaped it, so that
// there is more than the records say, or less.
Losses with_contradictions(const Losses& losses, const Contradictions& contradictions);

// The books' interval, as wide as the losses make it.
Interval weakened(const Interval& interval, const Losses& losses);

Interval charged_linear(const ProcessState& state, int device);  // O(live blocks)
// Handles, linear blocks, managed memory, and pools as far as their live blocks go (their reserved size is
// not in the events, so there is no upper end where a pool is in use).
Interval charged_by_records(const ProcessState& state, int device);
// The same from running totals, wider: O(1).
Interval charged_quickly(const ProcessState& state, int device);

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
