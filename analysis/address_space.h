// The process's address space for reservations, as far as this trace saw it: what is held, and which gaps are
// known to be free. The driver's true limits are not visible, so a gap counts as witnessed only where
// cuMemAddressReserve once gave that very range out and got it back.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/free_extents.h"
#include "analysis/state.h"

namespace fragscope::analysis {

struct AddressSpace {
    Range span;                       // lowest to highest address of any reservation, ever
    std::uint64_t reserved = 0;       // held now
    std::uint64_t unbacked = 0;       // reserved and mapped to nothing
    FreeExtents witnessed;          // gaps that were reserved before and are free now
    FreeExtents unseen;             // gaps of the span that were never given out as they are: free or not
    // Of all gaps in the span, only those smaller than `request`: the failed call itself shows that larger
    // ones are not eligible, whatever holds them.
    std::uint64_t small_sum = 0;
    std::uint64_t small_witnessed_sum = 0;
    std::uint64_t small_witnessed_largest = 0;
    bool seen = false;  // any reservation at all
};

// `alignment` and `granularity` shape what is usable of each gap.
AddressSpace address_space_of(const ProcessState& state, std::uint64_t request, std::uint64_t alignment,
                              std::uint64_t granularity);

}  // namespace fragscope::analysis
