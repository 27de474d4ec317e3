#include "analysis/charged.h"

namespace fragscope::analysis {

Interval charged_linear(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    return {totals.linear_granted, totals.large_rounded + totals.small_pages * state.page(device)};
}

Interval charged_handles(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    return {totals.handles, totals.handles + totals.handles_maybe};
}

Interval charged_arrays(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    return {totals.array_texels, totals.array_count == 0 ? std::optional(totals.array_texels) : std::nullopt};
}

Interval charged_by_records(const ProcessState& state, int device) {
    if (state.checkpointed()) return Interval::exactly(0);
    const DeviceTotals& totals = state.totals(device);
    Interval out = charged_linear(state, device) + charged_handles(state, device) +
                   charged_arrays(state, device) + Interval{totals.pool_live, totals.pool_live} +
                   Interval{0, totals.managed};
    if (state.used_pools() || state.graphs().used()) out.high.reset();
    return out;
}

Payload payload_of(const Trace& trace, ProcessIndex process, const ProcessState& state, int device) {
    Payload out;
    const std::uint64_t page = state.page(device);
    state.physical().for_each([&](const Physical& physical) {
        if (!physical.on_device || physical.device != device) return;
        std::uint64_t written_pages = 0;  // pages with at least one written byte
        std::uint64_t next = 0;           // first page that is not counted yet
        physical.touched.for_each([&](const Range& range) {
            const std::uint64_t first = std::max(next, range.begin / page);
            const std::uint64_t end = (range.end - 1) / page + 1;
            if (end > first) written_pages += end - first;
            next = std::max(next, end);
        });
        const std::uint64_t held = std::min(written_pages * page, physical.bytes);
        const std::uint64_t written = std::min(physical.touched.sum(), held);
        out.written += written;
        out.partly_unwritten += held - written;
        out.never_written += physical.bytes - held;
    });
    out.seen = state.touched_mapped_memory();
    const bool counted = process.value < trace.losses.size() &&
                         trace.losses[process.value].has_kernel_launches() &&
                         trace.losses[process.value].has_opaque_writes();
    if (!out.seen) {
        out.why = "no copy or memset into VMM memory was recorded, so nothing is known about what it holds";
    } else if (!counted) {
        out.why = "the trace does not say whether the program launched kernels, which may write anywhere";
    } else if (trace.losses[process.value].kernel_launches() != 0) {
        out.why =
            "the program launched kernels, which may write anywhere: what copies and memsets wrote is the "
            "least";
    } else if (trace.losses[process.value].opaque_writes() != 0) {
        out.why = "the program made copies whose extent was not recorded: what was recorded is the least";
    } else if (narrowed(losses_of(trace, process), Layer::kPayload).any()) {
        out.why = "records were lost, so what was recorded as written is the least";
    } else {
        out.decisive = true;
        out.why =
            "the program launched no kernel, so copies and memsets, all of them recorded, wrote all there is";
    }
    return out;
}

}  // namespace fragscope::analysis
