#include "analysis/framework_at_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/failures.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

struct Sums {
    std::uint64_t wholly_free = 0;
    std::uint64_t gaps = 0;
};

Quantity of_books(Definition definition, std::uint64_t bytes, const Losses& lost, const Scope& scope,
                  const std::string& reason) {
    const Interval wide = weakened(Interval::exactly(bytes), lost);
    if (wide.exact()) return Quantity::derived(definition, bytes, scope, reason);
    return Quantity::bounded(definition, wide, scope, reason + "; wider because records are missing");
}

// The same of what is in segments: where blocks lie in none, there are more than these.
Quantity of_segments(Definition definition, std::uint64_t bytes, const Losses& lost, bool unseen,
                     const Scope& scope, const std::string& reason) {
    if (!unseen) return of_books(definition, bytes, lost, scope, reason);
    return Quantity::bounded(
        definition, {weakened(Interval::exactly(bytes), lost).low, std::nullopt}, scope,
        reason + "; at least, because blocks of it lie in memory that no record shows it take");
}

// Whole mappings inside a gap of an expandable segment: what can be unmapped.
std::uint64_t whole_mappings(const ProcessState& state, const Range& gap) {
    std::uint64_t bytes = 0;
    state.mappings().for_each_in(gap, [&](const Range& mapped, const Mapping&) {
        if (mapped.begin >= gap.begin && mapped.end <= gap.end) bytes += mapped.size();
    });
    return bytes;
}

bool takes_driver_memory(Kind kind) {
    return kind == Kind::kLinearAcquired || kind == Kind::kHandleCreated || kind == Kind::kManagedAcquired ||
           kind == Kind::kPoolAcquired || kind == Kind::kReserved || kind == Kind::kMapped;
}

}  // namespace

std::optional<FrameworkAtFailure> framework_at(const FrameworkState& books, const ProcessState& state,
                                               int device, const Scope& scope, const Losses& losses) {
    const auto known = books.devices().find(device);
    if (known == books.devices().end()) return std::nullopt;
    const FrameworkDevice& own = known->second;
    FrameworkAtFailure out;
    out.scope = scope;
    out.scope.domain = "framework's allocator";
    out.agrees = !own.word || own.word->agrees();
    out.most_reserved = out.peak_reserved = own.all().reserved_bytes.peak;
    out.peak_active = own.all().active_bytes.peak;
    std::map<std::tuple<bool, std::optional<ObjectId>, std::uint32_t>, FrameworkDomain> domains;
    Sums sums;
    books.for_each_segment([&](const Range& range, const SegmentFacts& facts) {
        if (facts.device != device) return;
        FrameworkDomain& domain = domains[{facts.large, facts.stream, facts.pool}];
        domain.pool = facts.pool;
        domain.large = facts.large;
        domain.stream = facts.stream;
        ++domain.segments;
        domain.reserved += range.size();
        out.expandable = out.expandable || facts.kind == SegmentKind::kExpandable;
        out.segments_told = out.segments_told && facts.told;
        std::uint64_t live = 0;
        std::uint64_t waiting = 0;
        books.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
            if (block != nullptr) {
                (block->waits_for == 0 ? live : waiting) += piece.size();
                return;
            }
            domain.gaps.add(piece);
            const std::uint64_t whole = facts.kind == SegmentKind::kExpandable ? whole_mappings(state, piece)
                                        : piece.size() == range.size()         ? piece.size()
                                                                               : 0;
            sums.wholly_free += whole;
            sums.gaps += piece.size() - whole;
        });
        domain.live += live;
        if (live == 0) out.waiting_alone += waiting;
    });
    for (const auto& [key, domain] : domains) out.domains.push_back(domain);
    std::stable_sort(out.domains.begin(), out.domains.end(),
                     [](const auto& a, const auto& b) { return a.reserved > b.reserved; });
    Losses lost = with_contradictions(narrowed(losses, Layer::kFramework), books.contradictions());
    if (!out.agrees) {
        // What is missing may be anything: more blocks in the gaps, and more segments.
        lost.acquisitions = lost.releases = true;
        lost.acquired_bytes.reset();
        out.waiting_alone = 0;
    }
    const bool unseen = own.segments_unseen;
    out.peaks_known = !lost.any() && !unseen && own.disagreements == 0;
    out.reserved =
        of_segments(report::Quantity::charged, own.all().reserved_bytes.current, lost, unseen, out.scope,
                    "driver extents that blocks of the framework's allocator were seen in");
    out.live = of_books(report::Quantity::live, own.live(), lost, out.scope,
                        "blocks that the framework's allocator gave out, as it tells of each");
    out.waiting = of_books(report::Quantity::pending_free, own.waiting(), lost, out.scope,
                           "blocks that the program freed and that wait for events of other streams");
    out.cached = of_segments(report::Quantity::cached, sums.wholly_free + sums.gaps, lost, unseen, out.scope,
                             "in segments of the framework's allocator, and in no block");
    out.reclaimable = of_segments(
        report::Quantity::reclaimable, sums.wholly_free, lost, unseen, out.scope,
        out.expandable ? "segments without a block, and whole mappings inside gaps of expandable ones"
                       : "segments of the framework's allocator without a block");
    out.in_gaps = of_segments(report::Quantity::cached, sums.gaps, lost, unseen, out.scope,
                              "gaps between blocks in segments of the framework's allocator");
    return out;
}

std::optional<std::size_t> refusal_of_driver(const EventLog& events, std::size_t index) {
    const std::int32_t thread = events[index].thread;
    for (std::size_t i = index; i-- > 0;) {
        const Event& event = events[i];
        if (event.thread != thread || event.has(wire::kByShim)) continue;
        if (event.kind == Kind::kBlockAcquired || event.kind == Kind::kBlockReleased ||
            event.kind == Kind::kBlockRefused)
            return std::nullopt;
        if (!takes_driver_memory(event.kind) || event.has(wire::kContinued)) continue;
        if (event.result == kOutOfMemory) return i;
    }
    return std::nullopt;
}

}  // namespace fragscope::analysis
