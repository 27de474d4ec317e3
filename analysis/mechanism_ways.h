// The ways of backing one request that are compared, and the driver calls that each makes: what can be
// counted on paper, before anything is known of times or of a state.
//
// All of them are held to the same retention: memory goes back to the device between two uses. A backing that
// is kept instead is a change of retention, and is looked at as such only (see Amortisation in
// mechanisms.proto).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/quantity.h"
#include "analysis/situation.h"
#include "analysis/sized_times.h"

namespace fragscope::analysis {

enum class WayKind : std::uint8_t {
    kDirect,      // one cuMemAlloc
    kPool,        // one cuMemAllocAsync
    kHandle,      // one cuMemCreate, mapped
    kSmaller,     // a granularity below the device's minimum
    kStitched,    // handles of the minimum granularity, mapped side by side
    kSegmented,   // several allocations that the program finds through a table
    kCompaction,  // the request as it is, after live memory was moved together
};

struct Step {
    TimedCall call;
    Interval times;
    std::uint64_t bytes = 0;  // of one such call
};

struct Way {
    WayKind kind = WayKind::kDirect;
    const char* id = "";  // as Bound.mechanism
    const char* family = "";
    std::uint64_t unit = 0;     // it takes memory in whole units of this; 0: not known
    bool unit_assumed = false;  // it may take less
    Interval charged;           // what it takes for the request, payload included
    Interval pieces;
    bool present = false;     // the request was made so
    bool maps = false;        // it needs VMM and an address range
    std::vector<Step> setup;  // until the first use
    std::vector<Step> again;  // from giving it back until the next use; what takes no memory may be kept
};

// What is to be backed: the request, or the whole block where its refused call was for one of several
// handles.
std::uint64_t wanted_bytes(const Situation& situation);
// The request's call was for one of the handles that a block in an expandable segment needs.
bool one_of_many_handles(const Situation& situation);

// Those that apply to a request for device memory of a known size; empty for any other request.
std::vector<Way> ways_of(const Situation& situation);

}  // namespace fragscope::analysis
