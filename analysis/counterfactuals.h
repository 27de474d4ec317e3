// "With this one thing removed and all else held, would the request fit?": the table that explains a failure,
// as data.
//
// Every row is an interval of what would be available against an interval of what is needed, in the one
// domain that the request draws on. Rows that free bytes of that domain are removals; the verdict combines
// them.
#pragma once

#include <string>
#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

// Who or what a removal speaks of. It decides which cause a removal stands for.
enum class Blame {
    kStack,             // the request itself: stacks of a kernel
    kCached,            // freed by the program, kept by its pool
    kPending,           // freed by the program, waiting for a stream
    kFrameworkCached,   // in segments of the framework's allocator that no block lies in
    kFrameworkWaiting,  // in its blocks that the program freed and that wait for events
    kFrameworkGaps,     // between its blocks
    kImporter,          // freed by the program, and still mapped by another process
    kLeaked,            // physical memory that nothing reaches any more
    kOwners,            // in extents of another pool of the framework's allocator
    kStreams,           // in its extents for another stream
    kRounding,          // of this very request
    kGraphs,            // kept for graphs' allocations, and in none of them
    kWaste,             // charged and holding no payload
    kHeld,              // charged and in use by the program's own account, but never written
    kGaps,              // free, but in pieces
    kLimit,             // held back by a limit
    kUnbacked,          // reserved address space with nothing behind it
    kOthers,            // another process of the trace
    kUnexplained,       // no record of this trace explains it
    kWhole,             // everything: the request against the whole domain
    kNone,              // nothing is removed
};

// What taking it away does to the request's standing.
enum class Change {
    kNone,             // nothing, or `available` stands for itself
    kAdds,             // `freed` is given back to the device
    kLifts,            // `limit` is gone
    kUnrounds,         // the request takes what was asked for
    kDropsStack,       // the request is not made
    kMergesRuns,       // physical runs that nobody holds become one
    kMergesGaps,       // gaps of the framework's allocator become one, and go back to the device as need be
    kReturnsSegments,  // its wholly free segments go back
    kEndsWaits,        // its blocks wait for no stream any more
    kSharesOwners,     // its extents serve every pool
    kSharesStreams,    // and every stream
    kWastesNothing,    // its live blocks take what was asked for
};

struct Counterfactual {
    std::string id;       // stable
    std::string removed;  // in words
    Blame blame = Blame::kNone;
    bool applicable = true;
    Change change = Change::kNone;
    LimitKind limit = LimitKind::kPoolMaximum;  // kLifts only
    Quantity freed;  // how many bytes it speaks of, where it speaks of any; with kAdds they are added
    bool adds() const { return change == Change::kAdds; }
    // It can be combined with others.
    bool combines() const { return applicable && change != Change::kNone; }
    Quantity available;
    // "as_it_was" only: the same before the failure itself is taken as a bound. Sums of removals start here.
    Quantity by_bytes;
    Quantity needed;
    Fit fit = Fit::kCannotTell;
    std::string reason;
    std::string call;
};

// "as_it_was" is first.
std::vector<Counterfactual> counterfactuals_of(const Situation& situation);

report::Counterfactual message_of(const Counterfactual& row);

}  // namespace fragscope::analysis
