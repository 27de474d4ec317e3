#include "analysis/bounds.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr char kNothingWitnessed[] =
    "nothing of this kind succeeded between the failure and this process's next release";
constexpr char kFreeNotKnown[] = "how much of the device was held by nobody at the failure is not known";

class Bound {
  public:
    Bound(const Situation& s, const char* mechanism, const Scope& scope) : s_(s), scope_(scope) {
        out_.set_mechanism(mechanism);
        out_.set_low_evidence(kNothingWitnessed);
        low_ = 0;
    }
    // A success of the same mechanism in the same state.
    Bound& witnessed(bool same_mechanism) {
        if (same_mechanism && s_.succeeded_after != 0) {
            low_ = s_.succeeded_after;
            out_.set_low_evidence(
                fmt::format("{} succeeded after the failure, before this process released anything",
                            in_words(s_.succeeded_after)));
        }
        return *this;
    }
    Bound& at_least(std::uint64_t bytes, const std::string& why) {
        if (bytes > low_) {
            low_ = bytes;
            out_.set_low_evidence(why);
        }
        return *this;
    }
    Bound& at_most(const std::optional<std::uint64_t>& bytes, const std::string& limit,
                   const std::string& why) {
        if (bytes && (!high_ || *bytes < *high_)) {
            high_ = bytes;
            out_.set_limited_by(limit);
            out_.set_high_evidence(why);
        }
        return *this;
    }
    // The failed call itself bounds its own mechanism, size and moment, and nothing else.
    Bound& failed(bool same_mechanism) {
        if (same_mechanism && s_.request.requested != 0) {
            at_most(s_.request.requested - 1, "the request that failed",
                    fmt::format("{} failed at this moment", in_words(s_.request.requested)));
        }
        return *this;
    }
    report::Bound done(const std::string& note = "") {
        if (!high_) {
            out_.set_limited_by("not known");
            out_.set_high_evidence(kFreeNotKnown);
        }
        if (high_ && low_ > *high_) low_ = *high_;
        *out_.mutable_largest() =
            Quantity::bounded(report::Quantity::largest_allocatable, {low_, high_}, scope_, note).message();
        return out_;
    }

  private:
    const Situation& s_;
    Scope scope_;
    report::Bound out_;
    std::uint64_t low_ = 0;
    std::optional<std::uint64_t> high_;
};

std::optional<std::uint64_t> in_whole(const std::optional<std::uint64_t>& bytes, std::uint64_t unit) {
    return bytes ? std::optional(round_down(*bytes, unit)) : std::nullopt;
}

}  // namespace

std::vector<report::Bound> bounds_of(const Situation& s) {
    std::vector<report::Bound> out;
    const Kind kind = s.event->kind;
    const auto free = s.free_then.high();
    const std::string sum = "device-free memory";
    const std::string said = s.free_then.reason();

    if (s.request.draws == Draws::kAddressSpace) {
        out.push_back(Bound(s, "reservation", s.address)
                          .witnessed(true)
                          .at_least(std::min(s.space.small_witnessed_largest, s.request.requested - 1),
                                    "the largest gap that was reserved before and was given back")
                          .failed(true)
                          .done("one cuMemAddressReserve; memory behind it comes on top"));
        return out;
    }
    if (s.request.device == kNoDevice) return out;

    out.push_back(Bound(s, "direct", s.physical)
                      .witnessed(kind == Kind::kLinearAcquired)
                      .at_most(free, sum, said)
                      .failed(kind == Kind::kLinearAcquired)
                      .done("one cuMemAlloc"));
    const trace::Device* device = device_of(*s.trace, s.failure.process, s.request.device);
    const std::uint64_t minimum = s.page;
    out.push_back(
        Bound(s, "vmm", s.physical)
            .witnessed(kind == Kind::kHandleCreated)
            .at_most(in_whole(free, minimum), sum, said + ", in whole units of " + in_words(minimum))
            .failed(kind == Kind::kHandleCreated)
            .done("one cuMemCreate at the minimum granularity; it needs an address range to be mapped"));
    if (device != nullptr && device->has_recommended_granularity_bytes() &&
        device->recommended_granularity_bytes() > minimum) {
        const std::uint64_t unit = device->recommended_granularity_bytes();
        out.push_back(Bound(s, "vmm_recommended", s.physical)
                          .at_most(in_whole(free, unit), sum, said + ", in whole units of " + in_words(unit))
                          .failed(kind == Kind::kHandleCreated)
                          .done("one cuMemCreate at the recommended granularity"));
    }
    Bound stitched(s, "stitched", s.physical);
    stitched.at_most(in_whole(free, minimum), sum, said + ", in whole units of " + in_words(minimum));
    if (kind == Kind::kHandleCreated && s.request.requested == minimum) stitched.failed(true);
    out.push_back(
        stitched.done("many small cuMemCreate mapped side by side: consecutive addresses, no larger physical "
                      "extent and no more bytes "
                      "than nobody holds; it needs an address range, and a mapping call for each unit"));
    Bound segmented(s, "segmented", s.physical);
    segmented.at_most(free, sum, said);
    if (kind == Kind::kLinearAcquired && s.request.requested <= kPackedUpTo) segmented.failed(true);
    out.push_back(
        segmented.done("several allocations that the program addresses through a table: every consumer of "
                       "the pointer has to be changed"));

    if (s.used_pools) {
        Bound pool(s, "pool", s.physical);
        const auto cached = s.cached.high();
        pool.witnessed(kind == Kind::kPoolAcquired)
            .at_most(free && cached ? std::optional(*free + *cached) : std::nullopt,
                     "device-free memory and what pools keep", "as the driver said right after the failure")
            .failed(kind == Kind::kPoolAcquired);
        for (const PoolAtFailure& each : s.pools) {
            if (each.pool == s.request.pool && each.said.maximum) {
                pool.at_most(*each.said.maximum, "the pool's maximum size", "CUmemPoolProps::maxSize");
            }
        }
        out.push_back(pool.done("one cuMemAllocAsync"));
    }
    Bound compaction(s, "compaction", s.physical);
    compaction.at_most(free, sum, said);
    out.push_back(compaction.done(
        "moving live allocations together adds no bytes to what nobody holds; pointers of linear memory are "
        "known to the program, so only "
        "memory that is reached through a mapping or a table can be moved, and not while kernels use it"));
    return out;
}

}  // namespace fragscope::analysis
