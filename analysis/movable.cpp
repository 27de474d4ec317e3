#include "analysis/movable.h"

#include <algorithm>

namespace fragscope::analysis {

Movable movable_of(const ProcessState& state, int device) {
    Movable out;
    state.physical().for_each([&](const Physical& physical) {
        if (!physical.on_device || physical.device != device || physical.mapped_bytes == 0) return;
        if (physical.imported || physical.exported || physical.multicast || physical.maybe_gone ||
            physical.arrays != 0 || physical.maybe_held != 0) {
            out.shared += physical.bytes;
            return;
        }
        out.smallest = out.count == 0 ? physical.bytes : std::min(out.smallest, physical.bytes);
        out.largest = std::max(out.largest, physical.bytes);
        out.bytes += physical.bytes;
        ++out.count;
    });
    const DeviceTotals& totals = state.totals(device);
    out.fixed = totals.linear_requested + totals.pool_live;
    return out;
}

}  // namespace fragscope::analysis
