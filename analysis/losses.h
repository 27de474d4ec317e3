// What the recording lost of one process, and how far that blurs what is derived from the rest.
//
// Where the trace says which kinds of records were lost, only the layers of the state that such a record
// could have changed are blurred: a lost mark says nothing about memory. Where it does not, everything is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/quantity.h"
#include "analysis/state_parts.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// The layers of a process's state that have sums of their own.
enum class Layer : std::uint8_t {
    kBlocks,   // linear, pitched and managed memory
    kHandles,  // physical allocations
    kArrays,
    kPools,      // live blocks of pools, and frees that wait
    kAddresses,  // reservations and mappings
    kHost,       // page-locked memory
    kPayload,    // what copies and memsets wrote
    kGraphs,     // which addresses belong to graphs
    kFramework,  // blocks of a framework's own allocator
};

struct Losses {
    bool counted = false;  // the trace says how much; otherwise nothing is known about losses
    bool acquisitions = false;
    std::optional<std::uint64_t>
        acquired_bytes;  // what the lost acquisitions would have added; absent: not known
    bool releases = false;
    bool unclassified = false;  // records of any kind
    std::uint64_t records = 0;
    std::map<wire::Kind, std::uint64_t> by_kind;  // of all `records`; empty where the trace does not say
    bool any() const { return !counted || acquisitions || releases || unclassified; }
};

Losses losses_of(const Trace& trace, ProcessIndex process);
// The same as far as it touches one layer. Nothing narrower where the kinds are not known.
Losses narrowed(const Losses& losses, Layer layer);
// Whether records of the kind may be among the lost ones.
bool may_lack(const Losses& losses, wire::Kind kind);
// The same, and what contradictions show: memory of before the recording or of calls that escaped it, so that
// there is more than the records say, or less.
Losses with_contradictions(const Losses& losses, const Contradictions& contradictions);

// The books' interval, as wide as the losses make it.
Interval weakened(const Interval& interval, const Losses& losses);

// "12 linear allocations: what is charged for linear memory may be higher or lower", one sentence for each
// kind that was lost, without full stops; empty where the kinds are not known.
std::vector<std::string> lost_in_words(const Losses& losses);

}  // namespace fragscope::analysis
