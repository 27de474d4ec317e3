// Limits other than the amount of memory that can refuse a request: what each bounds, what was left of it,
// and what lifts it. A situation holds those that are known to stand against its request, and no others: a
// limit of which nothing is known is no reason for anything.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/quantity.h"

namespace fragscope::analysis {

enum class LimitKind : std::uint8_t {
    kPoolMaximum,
    kProcessFraction,
    kAllocatorLimit,
    kHostCommit,
    kPerAllocation,
    kPinnedHost,
    kBar1,
    kAddressSpace,
    kMappingCount,
    kHandleType,
};

struct LimitFacts {
    LimitKind kind;
    const char*
        name;  // stable: "with_<name>_lifted" of the table, and Verdict::constraint of other_constraint
    // Which cause it is. Where all that is known is a sum that may be committed and no more, by an allocator
    // or by the host, it is a commitment limit: the memory is there, the right to it is not. A limit that is
    // a setting or a part of the machine by itself is another constraint, under its name.
    report::Verdict::Cause cause;
    const char* what;       // "the limit of …", for a sentence
    const char* lifted_by;  // the call or setting
};

const LimitFacts& facts_of(LimitKind kind);

struct Limit {
    LimitKind kind = LimitKind::kPoolMaximum;
    std::string what;  // whose, in words; the facts' own where it is empty
    Quantity limit;
    Quantity used;
    Quantity headroom;  // limit less used; known also where neither of the two is
    Quantity needed;    // of it, by the request
    // Of the same, without the rounding that this limit's own accounting adds; unknown: there is none.
    Quantity used_unrounded;
    Quantity needed_unrounded;
    bool counts = false;  // things, not bytes
    // Whose memory, given back to the device, is given back to this limit too.
    enum class Grows : std::uint8_t { kNot, kWithAllocator, kWithProcess };
    Grows grows = Grows::kNot;

    const char* name() const { return facts_of(kind).name; }
    std::string row() const { return std::string("with_") + name() + "_lifted"; }
    std::string in_words() const { return what.empty() ? facts_of(kind).what : what; }
};

}  // namespace fragscope::analysis
