#include "analysis/address_space.h"

#include <algorithm>
#include <optional>

namespace fragscope::analysis {

AddressSpace address_space_of(const ProcessState& state, std::uint64_t request, std::uint64_t alignment,
                              std::uint64_t granularity) {
    AddressSpace out;
    out.witnessed = out.unseen = FreeExtents(alignment, granularity);
    out.reserved = state.reservations().total();
    std::uint64_t backed = 0;
    state.reservations().for_each([&](const Range& range, const Reservation&) {
        state.mappings().for_each_in(range, [&](const Range& mapped, const Mapping&) {
            backed += std::min(mapped.end, range.end) - std::max(mapped.begin, range.begin);
        });
    });
    out.unbacked = out.reserved - std::min(backed, out.reserved);
    if (state.ever_reserved().empty()) return out;
    out.seen = true;

    std::optional<std::uint64_t> lowest;
    std::uint64_t highest = 0;
    state.ever_reserved().for_each([&](const Range& range) {
        if (!lowest) lowest = range.begin;
        highest = range.end;
    });
    out.span = {*lowest, highest};

    // Everything that is held inside the span, whatever holds it.
    ExtentSet held;
    const auto hold = [&](const Range& range, const auto&) {
        if (range.begin < out.span.end && range.end > out.span.begin) held.add(range);
    };
    state.reservations().for_each(hold);
    state.linear().for_each(hold);
    state.pool_blocks().for_each(hold);
    ExtentSet free;
    free.add(out.span);
    held.for_each([&](const Range& range) { free.remove(range); });

    free.for_each([&](const Range& gap) {
        const std::uint64_t bytes = usable(gap, alignment, granularity);
        // A gap is witnessed where it was reserved once in full; a joined gap that was only partly seen is
        // not.
        const bool witnessed = state.ever_reserved().overlap(gap) == gap.size();
        (witnessed ? out.witnessed : out.unseen).add(gap);
        if (bytes >= request) return;
        out.small_sum += bytes;
        if (witnessed) {
            out.small_witnessed_sum += bytes;
            out.small_witnessed_largest = std::max(out.small_witnessed_largest, bytes);
        }
    });
    return out;
}

}  // namespace fragscope::analysis
