#include "analysis/limits_at.h"

namespace fragscope::analysis {
namespace {

// PyTorch's allocator refuses by itself only where its share of the device would be passed: the driver was
// not asked. Where that share stands is not in the trace; that it left less than the request is.
Limit share_of_allocator(const Situation& s) {
    const std::optional<std::uint64_t> needed = s.request.needed.high;
    Limit out;
    out.kind = LimitKind::kProcessFraction;
    out.what = "a limit of the framework's allocator";
    out.limit =
        Quantity::unknown(report::Quantity::capacity, s.physical, "where it stands is not in the trace");
    out.used = s.framework->reserved;
    out.headroom = Quantity::bounded(
        report::Quantity::commitment_headroom,
        {0, needed ? std::optional(*needed - 1) : std::nullopt}, s.physical,
        "less than the request: the framework's allocator refused it without asking "
        "the driver");
    out.needed =
        Quantity::bounded(report::Quantity::needed, s.request.needed, s.physical, s.request.needed_reason);
    return out;
}

}  // namespace

std::vector<Limit> limits_at(const Situation& s) {
    std::vector<Limit> out;
    if (s.framework && s.framework->gave_up && !s.framework->driver_asked)
        out.push_back(share_of_allocator(s));
    return out;
}

}  // namespace fragscope::analysis
