// What the driver says of memory after a call that failed for want of it, before the program sees the error.
#include <atomic>

#include "interpose/ask.h"
#include "interpose/call.h"
#include "interpose/probe.h"

namespace fragscope::interpose {

namespace {

// A program that fails in a loop is not slowed by each failure: a burst of snapshots in quick succession (a
// program that fails, empties a cache and tries again fails several times within a millisecond, and the last
// time is the one that matters), then one for each pause.
constexpr std::uint64_t kSnapshotPauseNs = 10'000'000;
constexpr std::uint64_t kSnapshotBurst = 16;

constinit std::atomic<std::uint64_t> snapshots_paid_until_ns{0};
constinit std::atomic<std::uint64_t> skipped{0};

// Each snapshot is paid for with one pause; the debt may reach a burst.
bool may_take_snapshot() {
    const std::uint64_t now = monotonic_ns();
    std::uint64_t paid_until = snapshots_paid_until_ns.load(std::memory_order_relaxed);
    for (;;) {
        const std::uint64_t from = paid_until > now ? paid_until : now;
        if (from - now > (kSnapshotBurst - 1) * kSnapshotPauseNs) return false;
        if (snapshots_paid_until_ns.compare_exchange_weak(paid_until, from + kSnapshotPauseNs,
                                                          std::memory_order_relaxed))
            return true;
    }
}

}  // namespace

void failure_snapshot(HookId function, std::uint64_t sequence) {
    if (!attach()) return;
    Questions questions;
    // Numbers that another thread's probes have changed would mislead more than none.
    if ((!questions.allowed() && !questions.capturing()) || !may_take_snapshot()) {
        skipped.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const Place place = here();
    if (questions.allowed()) {
        if (tell_device_memory(place, wire::kSnapshot, function))
            tell_graph_memory(place.device, wire::kSnapshot, function);
        tell_other_devices(place, wire::kSnapshot, function);
        tell_pools(wire::kSnapshot, function, true);
    }
    unsigned flags = wire::kSnapshot;
    if (questions.capturing()) flags |= wire::kCaptured;  // nothing was asked
    if (place.context == 0) flags |= wire::kNoContext;
    wire::Record end = shim_record(Kind::kFailureSnapshotEnd, function, place.device, flags);
    end.bytes = known_pools.overflow.load(std::memory_order_relaxed);
    end.object = sequence;
    end.extra = skipped.exchange(0, std::memory_order_relaxed);
    emit(end);
    if (session.probe_on_oom) probe(questions, place, sequence);
}

}  // namespace fragscope::interpose
