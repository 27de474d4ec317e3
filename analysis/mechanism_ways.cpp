#include "analysis/mechanism_ways.h"

#include <algorithm>

#include "analysis/extent_map.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr Interval kOnce = {1, 1};

std::uint64_t whole(std::uint64_t bytes, std::uint64_t unit) {
    const std::uint64_t up = round_up(bytes, unit);
    return up < bytes ? UINT64_MAX : up;
}

Way direct(std::uint64_t bytes, std::uint64_t page) {
    Way out;
    out.kind = WayKind::kDirect;
    out.id = "direct";
    out.family = "direct";
    out.unit = page;
    out.unit_assumed = true;
    out.charged = {bytes, whole(bytes, page)};
    out.pieces = kOnce;
    out.setup = {{TimedCall::kAllocate, kOnce, bytes}};
    out.again = {{TimedCall::kFree, kOnce, 0}, {TimedCall::kAllocate, kOnce, bytes}};
    return out;
}

Way pool(std::uint64_t bytes) {
    Way out;
    out.kind = WayKind::kPool;
    out.id = "pool";
    out.family = "direct";
    out.unit = kPoolUnit;
    out.unit_assumed = true;
    out.charged = {bytes, whole(bytes, kPoolUnit)};
    out.pieces = kOnce;
    out.setup = {{TimedCall::kPoolAllocate, kOnce, bytes}};
    out.again = {{TimedCall::kPoolFree, kOnce, 0}, {TimedCall::kPoolAllocate, kOnce, bytes}};
    return out;
}

Way handle(const char* id, std::uint64_t bytes, std::uint64_t unit) {
    const std::uint64_t rounded = whole(bytes, unit);
    Way out;
    out.kind = WayKind::kHandle;
    out.id = id;
    out.family = "granularity";
    out.unit = unit;
    out.charged = Interval::exactly(rounded);
    out.pieces = kOnce;
    out.maps = true;
    out.setup = {{TimedCall::kReserve, kOnce, rounded},
                 {TimedCall::kCreate, kOnce, rounded},
                 {TimedCall::kMap, kOnce, rounded},
                 {TimedCall::kSetAccess, kOnce, rounded}};
    out.again = {{TimedCall::kUnmap, kOnce, rounded},
                 {TimedCall::kRelease, kOnce, 0},
                 {TimedCall::kCreate, kOnce, rounded},
                 {TimedCall::kMap, kOnce, rounded},
                 {TimedCall::kSetAccess, kOnce, rounded}};
    return out;
}

Way smaller(std::uint64_t minimum) {
    Way out;
    out.kind = WayKind::kSmaller;
    out.id = "vmm_smaller";
    out.family = "granularity";
    out.unit = minimum / 2;
    out.maps = true;
    return out;
}

Way stitched(std::uint64_t bytes, std::uint64_t unit) {
    const std::uint64_t rounded = whole(bytes, unit);
    const std::uint64_t most = rounded / unit;
    const Interval each = Interval::exactly(most);
    Way out;
    out.kind = WayKind::kStitched;
    out.id = "stitched";
    out.family = "stitching";
    out.unit = unit;
    out.charged = Interval::exactly(rounded);
    out.pieces = {std::min<std::uint64_t>(2, most), most};
    out.maps = true;
    out.setup = {{TimedCall::kReserve, kOnce, rounded},
                 {TimedCall::kCreate, each, unit},
                 {TimedCall::kMap, each, unit},
                 {TimedCall::kSetAccess, kOnce, rounded}};
    out.again = {{TimedCall::kUnmap, each, unit},
                 {TimedCall::kRelease, each, 0},
                 {TimedCall::kCreate, each, unit},
                 {TimedCall::kMap, each, unit},
                 {TimedCall::kSetAccess, kOnce, rounded}};
    return out;
}

Way segmented(std::uint64_t bytes, std::uint64_t page) {
    Way out;
    out.kind = WayKind::kSegmented;
    out.id = "segmented";
    out.family = "indirection";
    out.unit = page;
    out.unit_assumed = true;
    // Each segment may be rounded up, and how many there are is for their consumers to say.
    out.charged = {bytes, std::nullopt};
    out.pieces = {2, std::nullopt};
    out.setup = {{TimedCall::kAllocate, out.pieces, page}};
    out.again = {{TimedCall::kFree, out.pieces, 0}, {TimedCall::kAllocate, out.pieces, page}};
    return out;
}

Way compaction(const Situation& s, const Way& present) {
    Way out = present;
    out.kind = WayKind::kCompaction;
    out.id = "compaction";
    out.family = "compaction";
    out.present = false;
    const std::uint64_t most = s.movable ? s.movable->count : 0;
    const std::uint64_t bytes = s.movable ? s.movable->largest : 0;
    const Interval moved = {most == 0 ? 0 : 1, most};
    out.setup = {{TimedCall::kSynchronize, kOnce, 0}, {TimedCall::kCreate, moved, bytes},
                 {TimedCall::kCopy, moved, bytes},    {TimedCall::kUnmap, moved, bytes},
                 {TimedCall::kMap, moved, bytes},     {TimedCall::kSetAccess, moved, bytes},
                 {TimedCall::kRelease, moved, 0}};
    for (const Step& step : present.setup) out.setup.push_back(step);
    return out;
}

}  // namespace

bool one_of_many_handles(const Situation& s) {
    return s.framework && s.framework->gave_up && s.framework->tried > s.request.requested &&
           s.request.kind == Kind::kHandleCreated;
}

std::uint64_t wanted_bytes(const Situation& s) {
    return one_of_many_handles(s) ? s.framework->tried : s.request.requested;
}

std::vector<Way> ways_of(const Situation& s) {
    std::vector<Way> out;
    const std::uint64_t bytes = wanted_bytes(s);
    if (bytes == 0 || s.request.device == kNoDevice) return out;
    if (s.request.draws != Draws::kPhysical && s.request.draws != Draws::kPool) return out;
    const std::uint64_t page = s.page == 0 ? kDefaultPage : s.page;
    out.push_back(direct(bytes, page));
    const bool pools = s.used_pools || s.request.kind == Kind::kPoolAcquired ||
                       (s.facts && s.facts->pools.there.value_or(false));
    if (pools) out.push_back(pool(bytes));
    out.push_back(smaller(page));
    out.push_back(handle("vmm", bytes, page));
    if (s.recommended_granularity > page)
        out.push_back(handle("vmm_recommended", bytes, s.recommended_granularity));
    out.push_back(stitched(bytes, page));
    out.push_back(segmented(bytes, page));
    const WayKind present = one_of_many_handles(s)                   ? WayKind::kStitched
                            : s.request.kind == Kind::kHandleCreated ? WayKind::kHandle
                            : s.request.kind == Kind::kPoolAcquired  ? WayKind::kPool
                                                                     : WayKind::kDirect;
    // Of a handle's granularity the call says nothing: the size is a multiple of the minimum either way.
    const auto made =
        std::find_if(out.begin(), out.end(), [&](const Way& way) { return way.kind == present; });
    made->present = present != WayKind::kDirect || s.request.kind == Kind::kLinearAcquired ||
                    s.request.kind == Kind::kPitchAcquired;
    out.push_back(compaction(s, *made));
    return out;
}

}  // namespace fragscope::analysis
