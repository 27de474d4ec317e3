// What a request would stand before with some things taken away and all else held: the arithmetic behind the
// table of counterfactuals and the search for the smallest set.
#pragma once

#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

struct Standing {
    Interval available;  // in the domain that the request draws on, for it, in one piece where it needs one
    Interval needed;
    Fit fit = Fit::kCannotTell;
    const Limit* limited_by =
        nullptr;  // the limit that leaves the least, where one leaves less than the memory
};

// `base`: what nobody holds, before anything is taken away. Rows that stand for themselves (`instead`) take
// no part.
Standing standing_with(const Situation& situation, const Interval& base,
                       const std::vector<const Counterfactual*>& removed);

// Whether what the request draws on is the device's own memory.
bool on_the_device(Draws draws);

// The worse of two; "cannot tell" lies between.
Fit both(Fit a, Fit b);

}  // namespace fragscope::analysis
