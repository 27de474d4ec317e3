#include "interpose/sample.h"

#include <signal.h>

#include <cerrno>
#include <cstdlib>

#include "interpose/activity.h"
#include "interpose/ask.h"
#include "interpose/state.h"

namespace fragscope::interpose {

constinit SampleDue sample_due{kNever, kFirstLook};

namespace {

// Samples take at most a twentieth of the time, and there are at most a thousand in a second. One that took
// long because the thread was not running does not hold up the next ones for longer than the last of these.
constexpr std::uint64_t kPauseNs = 1'000'000;
constexpr std::uint64_t kPauseFor = 20;
constexpr std::uint64_t kLongestPauseNs = 50'000'000;

// All in nanoseconds of CLOCK_MONOTONIC.
constinit std::atomic<std::uint64_t> last_sample{0};  // of those that were due: whoever moves it on takes one
constinit std::atomic<std::uint64_t> not_before{0};   // see kPauseNs
constinit std::atomic<std::uint64_t> last_end{0};     // of those before a context ends
constinit std::atomic<std::uint64_t> bytes_since{
    0};  // acquired since the last one, as far as threads have told

// The same moment by both clocks, from which the rate of the session's is worked out.
constinit std::atomic<std::uint64_t> begun_ns{0}, begun_ticks{0};

// `ns` from now on by the session's clock.
std::uint64_t ticks_after(std::uint64_t ns, std::uint64_t now_ns) {
    const std::uint64_t ticks = now(), since_ticks = ticks - begun_ticks.load(std::memory_order_relaxed);
    const std::uint64_t since_ns = now_ns - begun_ns.load(std::memory_order_relaxed);
    // Too early for a rate: no clock is slower than this, so that one looks again too soon at worst.
    if (since_ns < 1'000'000 || since_ticks == 0) return ticks + (ns < 1'000'000 ? ns / 2 : 500'000);
    const double rate = static_cast<double>(since_ticks) / static_cast<double>(since_ns);
    const double wait = static_cast<double>(ns) * rate;
    return wait < 9e18 ? ticks + static_cast<std::uint64_t>(wait) : kNever;
}

void look_again_after(std::uint64_t ns, std::uint64_t now_ns) {
    sample_due.at.store(ns == kNever ? kNever : ticks_after(ns, now_ns), std::memory_order_relaxed);
}

constinit std::atomic<std::uint32_t> initialized_in{
    0};  // the attachment that has seen the driver initialised
constinit std::atomic<std::uint32_t> ended_in{0};
constinit std::atomic<bool> exit_watched{false};

// Signals that are blocked may mean that exit() was called from a handler, in the middle of whatever the
// thread was doing: perhaps of a call of the driver's whose lock another call would wait for.
bool may_be_in_a_handler() {
    sigset_t blocked;
    if (sigprocmask(SIG_SETMASK, nullptr, &blocked) != 0) return true;
    for (int signal = 1; signal < 32; ++signal)
        if (sigismember(&blocked, signal) == 1) return true;
    return false;
}

// Runs before the driver's own handlers, which were registered before it, and is as safe as any call that the
// program makes in main(): the driver is whole yet, the thread is in no other call of it, no context is made
// and nothing waits for the device. A child after fork has not seen the driver initialised and asks nothing.
void at_exit() {
    const int saved = errno;
    const std::uint32_t attachment = generation();
    if (!attached() || initialized_in.load() != attachment || thread_state.inside() ||
        may_be_in_a_handler() || !collector_alive() || ended_in.exchange(attachment) == attachment)
        return;
    ThreadState& thread = thread_state;
    thread.gate = kBusy;
    thread.entered_at = kInNoWrapper;
    take_sample(wire::SampleReason::kEnd, HookId::kExit);
    end_activity();
    thread.gate = thread.gate_when_idle;
    errno = saved;
}

}  // namespace

void begin_samples() {
    const std::uint64_t now_ns = monotonic_ns();
    begun_ns.store(now_ns);
    begun_ticks.store(now());
    last_sample.store(now_ns);
    not_before.store(0);
    last_end.store(0);
    bytes_since.store(0);
    const std::uint64_t bytes = session.sample_bytes;
    // Many threads may each have acquired this much before it is known.
    sample_due.thread_bytes.store(bytes == kNever ? kFirstLook : bytes < 64 ? 1 : bytes / 64);
    look_again_after(session.sample_ns, now_ns);
}

bool take_sample(wire::SampleReason reason, HookId function) {
    const int saved = errno;
    const std::uint64_t before = monotonic_ns();
    if (reason == wire::SampleReason::kContextEnds) {
        std::uint64_t last = last_end.load();
        if (before - last < kPauseNs || !last_end.compare_exchange_strong(last, before)) return false;
    }
    const Questions questions;
    const Place place = questions.allowed() ? here() : Place{};
    thread_state.unsampled_bytes &= ~kFirstLook;
    const bool answered = place.context != 0 && tell_device_memory(place, wire::kSample, function);
    if (answered) {
        tell_pools(wire::kSample, function, false);
        tell_graph_memory(place.device, wire::kSample, function);
        wire::Record end = shim_record(Kind::kSampleEnd, function, place.device, wire::kSample);
        end.address = static_cast<std::uint64_t>(reason);
        end.bytes = known_pools.overflow.load(std::memory_order_relaxed);
        emit(end);
        const std::uint64_t after = monotonic_ns();
        const std::uint64_t pause = kPauseFor * (after - before);
        not_before.store(after + (pause < kPauseNs          ? kPauseNs
                                  : pause > kLongestPauseNs ? kLongestPauseNs
                                                            : pause));
        last_sample.store(after);
        bytes_since.store(0);
        look_again_after(session.sample_ns, after);
    }
    errno = saved;
    return answered;
}

void look_at_samples(HookId function) {
    if (!attached()) return;
    ThreadState& thread = thread_state;
    const std::uint64_t own = thread.unsampled_bytes & ~kFirstLook;
    const bool first_look = (thread.unsampled_bytes & kFirstLook) != 0;
    thread.unsampled_bytes = 0;
    const std::uint64_t bytes = bytes_since.fetch_add(own) + own;
    if (first_look) {
        take_sample(wire::SampleReason::kStart, function);
        return;
    }
    const std::uint64_t now_ns = monotonic_ns();
    std::uint64_t last = last_sample.load();
    const std::uint64_t waited = now_ns > last ? now_ns - last : 0;
    const bool by_bytes = session.sample_bytes != kNever && bytes >= session.sample_bytes;
    const bool by_time = session.sample_ns != kNever && waited >= session.sample_ns;
    const std::uint64_t allowed_from = not_before.load();
    if (!by_bytes && !by_time) {
        if (session.sample_ns != kNever) look_again_after(session.sample_ns - waited, now_ns);
        return;
    }
    if (now_ns < allowed_from) {
        look_again_after(allowed_from - now_ns, now_ns);
        return;
    }
    // One of the threads that see it takes it.
    if (!last_sample.compare_exchange_strong(last, now_ns)) return;
    if (!take_sample(by_bytes ? wire::SampleReason::kBytes : wire::SampleReason::kTime, function)) {
        // A capture, or no context here: another call soon, of this thread or another, may do.
        last_sample.store(last);
        look_again_after(kPauseNs, now_ns);
        return;
    }
    flush_activity(now_ns);
}

void sample_at_exit() {
    initialized_in.store(generation());
    if (exit_watched.exchange(true)) return;
    const int saved = errno;
    atexit(at_exit);
    errno = saved;
}

}  // namespace fragscope::interpose
