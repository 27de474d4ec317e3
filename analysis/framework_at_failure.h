// What a framework's own allocator held when a request failed: what of it could have gone back to the device
// or served the request.
#pragma once

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
    std::uint64_t segments = 0;
    std::uint64_t reserved = 0;
    std::uint64_t live = 0;
    FreeExtents gaps{kBlockUnit, kBlockUnit};
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

    // Only where the allocator itself gave the request up:
    bool gave_up = false;
    std::uint64_t tried = 0;          // as it told: rounded to a block
    std::optional<ObjectId> stream;   // that it was for
    bool driver_asked = false;        // the driver refused its call before; otherwise it refused by itself
    std::uint64_t most_reserved = 0;  // that it ever had in segments up to then
    // The largest gap of the request's class, and of its stream as far as that is known.
    std::uint64_t largest_eligible = 0;
    std::uint64_t largest_of_other_streams = 0;  // of the class
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
