#include "analysis/charged.h"

#include <set>

namespace fragscope::analysis {

Losses losses_of(const Trace& trace, ProcessIndex process) {
    Losses out;
    if (process.value >= trace.losses.size()) return out;
    const trace::Loss& loss = trace.losses[process.value];
    out.counted = loss.has_acquisitions() && loss.has_releases() && loss.has_others();
    out.acquisitions = loss.acquisitions() != 0;
    if (loss.has_acquired_bytes()) out.acquired_bytes = loss.acquired_bytes();
    out.releases = loss.releases() != 0;
    out.unclassified = loss.others() != 0 || loss.records_without_ring() != 0 || loss.rings_damaged() != 0 ||
                       loss.records_refused() != 0 || trace.end.events_not_written() != 0;
    out.records = loss.acquisitions() + loss.releases() + loss.others() + loss.records_without_ring() +
                  loss.records_refused();
    return out;
}

Losses with_contradictions(const Losses& losses, const Contradictions& contradictions) {
    Losses out = losses;
    if (contradictions.unknown_releases + contradictions.unknown_handles != 0) {
        out.acquisitions = true;
        out.acquired_bytes.reset();
    }
    if (contradictions.overlapping_acquisitions != 0) out.releases = true;
    return out;
}

Interval weakened(const Interval& interval, const Losses& losses) {
    Interval out = interval;
    if (!losses.any()) return out;
    if (!losses.counted || losses.unclassified || losses.releases) out.low = 0;
    if (!losses.counted || losses.unclassified || (losses.acquisitions && !losses.acquired_bytes)) {
        out.high.reset();
    } else if (losses.acquisitions && out.high) {
        // Each of the lost ones may have been rounded up to a page of its own.
        *out.high += *losses.acquired_bytes + losses.records * kDefaultPage;
    }
    return out;
}

Interval charged_linear(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    Interval out = Interval::exactly(totals.linear_requested);
    if (totals.small_count == 0) {
        out.high = totals.linear_rounded;
        return out;
    }
    const std::uint64_t page = state.page(device);
    std::uint64_t large = 0;
    std::set<std::uint64_t> pages;
    state.linear().for_each([&](const Range& range, const LinearBlock& block) {
        if (block.device != device || block.kind == wire::Kind::kManagedAcquired) return;
        if (block.granted > kPackedUpTo) {
            large += round_up(block.granted, page);
        } else {
            for (std::uint64_t at = range.begin / page; at <= (range.end - 1) / page; ++at) pages.insert(at);
        }
    });
    out.high = large + pages.size() * page;
    return out;
}

Interval charged_by_records(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    Interval out = charged_linear(state, device) + Interval::exactly(totals.handles);
    *out.low += totals.pool_live;
    *out.high += totals.managed;
    if (state.used_pools()) out.high.reset();
    return out;
}

Interval charged_quickly(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    Interval out;
    out.low = totals.handles + totals.linear_requested + totals.pool_live;
    out.high =
        totals.handles + totals.linear_rounded + totals.small_count * state.page(device) + totals.managed;
    if (state.used_pools()) out.high.reset();
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
    } else if (losses_of(trace, process).any()) {
        out.why = "records were lost, so what was recorded as written is the least";
    } else {
        out.decisive = true;
        out.why =
            "the program launched no kernel, so copies and memsets, all of them recorded, wrote all there is";
    }
    return out;
}

}  // namespace fragscope::analysis
