// What a framework's own allocator held when a request failed: what of it could have gone back to the device
// or served the request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/event_log.h"
#include "analysis/framework.h"
#include "analysis/free_extents.h"
#include "analysis/losses.h"
#include "analysis/quantity.h"

namespace fragscope::analysis {

// What blocks start at and are made of multiples of, at least: every address that a CUDA allocator gives out is
// aligned to this. PyTorch's blocks are multiples of twice as much, so its gaps are too.
inline constexpr std::uint64_t kBlockUnit = 256;

// The free extents of one kind of segment for one stream: what one kind of request may use, as far as
// PyTorch's public rules tell.
struct FrameworkDomain {
    bool large = false;
    std::optional<ObjectId> stream;
    std::string name;  // where it has one of its own: a pool's
    std::uint32_t pool = wire::kPoolNotTold;  // as SegmentFacts has it
    std::uint64_t segments = 0;
    std::uint64_t reserved = 0;
    std::uint64_t live = 0;
    FreeExtents gaps{kBlockUnit, kBlockUnit};
};

// The free extents that one request of the allocator may use, by one reading of who may use what.
struct AllocatorView {
    Interval gap_sum = Interval::exactly(0);
    Interval gap_largest = Interval::exactly(0);
    Interval wholly_free = Interval::exactly(0);  // of the sum: segments that hold no block
};

// The allocator's extents as its request sees them; only where it is known whose each of them is and how it lies.
struct AllocatorLayout {
    Interval requested;  // as the program asked for it
    Interval block;      // rounded to the allocator's blocks
    Interval segment;    // and what a new segment for it takes
    bool may_release = false;  // it gives wholly free segments back before it gives up
    bool gaps_refused = false;  // it looked for a gap for this request and found none
    bool asked_known = true;    // `requested` is what the program asked for
    bool owners = false;       // some extents are in another pool than the request's
    bool streams = false;      // some serve another stream only
    bool waits = false;        // some are freed and wait for a stream
    Interval waiting = Interval::exactly(0);
    Interval of_other_owners = Interval::exactly(0);   // free, there
    Interval of_other_streams = Interval::exactly(0);
    Interval waste = Interval::exactly(0);  // in live blocks: taken and not asked for, where both are known
    std::array<AllocatorView, 16> views;

    // With the waits over, for any owner's extents, for any stream's, with live blocks as large as was asked for.
    static std::size_t index(bool waits_over, bool any_owner, bool any_stream, bool no_waste) {
        return (waits_over ? 1U : 0U) | (any_owner ? 2U : 0U) | (any_stream ? 4U : 0U) | (no_waste ? 8U : 0U);
    }
};

struct FrameworkAtFailure {
    Scope scope;        // domain "framework's allocator"
    Quantity reserved;  // in segments
    Quantity live;
    Quantity waiting;
    Quantity cached;
    // Wholly free segments, and whole mappings of expandable ones inside gaps: what PyTorch's empty_cache
    // gives back, unless they belong to a private pool.
    Quantity reclaimable;
    std::uint64_t waiting_alone = 0;       // of that, in segments without a live block
    Quantity in_gaps;                      // cached and not reclaimable: between blocks
    std::vector<FrameworkDomain> domains;  // the largest by reserved bytes first
    bool agrees = true;                    // the allocator's own totals, by its last record before
    std::uint64_t peak_active = 0;    // blocks, live and waiting, up to then
    std::uint64_t peak_reserved = 0;  // in segments, up to then; both only where the books are whole
    bool peaks_known = false;
    bool expandable = false;               // some segments are
    bool segments_told = true;  // by the allocator itself: class, stream and pool of all of them

    // Only where the allocator itself gave the request up:
    bool gave_up = false;
    std::uint64_t tried = 0;          // as it told: rounded to a block
    std::optional<ObjectId> stream;   // that it was for
    bool driver_asked = false;        // the driver refused its call before; otherwise it refused by itself
    std::uint64_t most_reserved = 0;  // that it ever had in segments up to then
    // The largest gap of the request's class, and of its stream as far as that is known.
    std::uint64_t largest_eligible = 0;
    std::uint64_t largest_of_other_streams = 0;  // of the class
    std::optional<AllocatorLayout> layout;
    bool pool_assumed = false;  // the layout takes the default pool for the request's
    std::uint64_t gaps = 0;     // pieces that the request itself may use; only with a layout
    bool extents_known = true;  // `domains` have all there are
};

// `device`: ordinal; `scope`: of the device's physical memory at the failure. Nothing: no framework's
// allocator told of blocks on this device. `state`: the driver's, of the same moment.
std::optional<FrameworkAtFailure> framework_at(const FrameworkState& books, const ProcessState& state,
                                               int device, const Scope& scope, const Losses& losses);

// Where an allocator gave up (`index` of its kBlockRefused): the driver's refusal that it rests on, which is
// the last one on this thread since the thread's block before; nothing: the driver was not asked, or said
// yes.
std::optional<std::size_t> refusal_of_driver(const EventLog& events, std::size_t index);

}  // namespace fragscope::analysis
