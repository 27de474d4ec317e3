#include "collector/clock.h"

#include <time.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace fragscope::collector {

namespace {

constexpr std::uint64_t kKeepEveryNs = 1'000'000'000;
constexpr std::size_t kMaxPairs = 4096;  // more than an hour; then every second one of the older half goes
constexpr int kReadings = 8;
// Records may be some microseconds newer than the latest pair, and processors' counters may differ a little.
constexpr std::uint64_t kSlackNs = 50'000'000;

std::uint64_t clock_ns(clockid_t id) {
    struct timespec now {};
    ::clock_gettime(id, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

#if defined(__x86_64__)
// Neither reading may move past the other.
std::uint64_t read_tsc() {
    _mm_lfence();
    const std::uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
}
#endif

}  // namespace

bool has_invariant_tsc(const std::string& cpuinfo) {
    std::istringstream lines(cpuinfo);
    std::string line;
    bool any = false;
    while (std::getline(lines, line)) {
        if (line.rfind("flags", 0) != 0) continue;
        std::istringstream words(line);
        const std::vector<std::string> flags{std::istream_iterator<std::string>(words), {}};
        for (const char* needed : {"constant_tsc", "nonstop_tsc"})
            if (std::find(flags.begin(), flags.end(), needed) == flags.end()) return false;
        any = true;
    }
    return any;
}

wire::Clock best_clock() {
#if defined(__x86_64__)
    std::ifstream file("/proc/cpuinfo");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (has_invariant_tsc(text)) return wire::Clock::kTsc;
#endif
    return wire::Clock::kMonotonic;
}

std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::uint64_t unix_ns() { return clock_ns(CLOCK_REALTIME); }

ClockPair read_clock_pair(wire::Clock clock) {
#if defined(__x86_64__)
    if (clock == wire::Clock::kTsc) {
        ClockPair best;
        std::uint64_t narrowest = UINT64_MAX;
        for (int i = 0; i < kReadings; ++i) {
            const std::uint64_t before = read_tsc();
            const std::uint64_t ns = monotonic_ns();
            const std::uint64_t after = read_tsc();
            if (after - before >= narrowest) continue;
            narrowest = after - before;
            best = {before + narrowest / 2, ns};
        }
        return best;
    }
#endif
    (void)clock;
    const std::uint64_t ns = monotonic_ns();
    return {ns, ns};
}

void TickConverter::add(ClockPair pair) {
    if (pair.ticks <= latest_.ticks || pair.ns <= latest_.ns) return;
    latest_ = pair;
    if (pair.ns - kept_.back().ns < kKeepEveryNs) return;
    kept_.push_back(pair);
    if (kept_.size() < kMaxPairs) return;
    std::vector<ClockPair> thinned;
    for (std::size_t i = 0; i < kept_.size(); ++i)
        if (i % 2 == 0 || i >= kMaxPairs / 2) thinned.push_back(kept_[i]);
    kept_ = std::move(thinned);
}

double TickConverter::ticks_per_ns() const {
    if (clock_ == wire::Clock::kMonotonic) return 1.0;
    if (latest_.ns == kept_.front().ns) return 0.0;
    return static_cast<double>(latest_.ticks - kept_.front().ticks) /
           static_cast<double>(latest_.ns - kept_.front().ns);
}

std::uint64_t TickConverter::duration_ns(std::uint64_t ticks) const {
    if (clock_ == wire::Clock::kMonotonic) return ticks;
    const double rate = ticks_per_ns();
    return rate == 0.0 ? 0 : static_cast<std::uint64_t>(static_cast<double>(ticks) / rate + 0.5);
}

std::optional<std::uint64_t> TickConverter::to_ns(std::uint64_t ticks) const {
    const ClockPair first = kept_.front();
    const double rate = ticks_per_ns();
    if (rate == 0.0) return std::nullopt;
    const auto slack = static_cast<std::uint64_t>(static_cast<double>(kSlackNs) * rate);
    if (ticks + slack < first.ticks || ticks > latest_.ticks + slack) return std::nullopt;
    if (clock_ == wire::Clock::kMonotonic) return ticks;
    if (ticks <= first.ticks) return first.ns;
    // The segment that holds `ticks`; beyond the latest pair the last one goes on.
    ClockPair from = kept_.back();
    ClockPair to = latest_;
    if (ticks < from.ticks || from.ticks == to.ticks) {
        const auto after = std::upper_bound(kept_.begin(), kept_.end(), ticks,
                                            [](std::uint64_t t, const ClockPair& p) { return t < p.ticks; });
        to = after == kept_.end() ? kept_.back() : *after;
        from = after == kept_.end() ? kept_[kept_.size() - 2] : *(after - 1);
    }
    const double share = static_cast<double>(ticks - from.ticks) / static_cast<double>(to.ticks - from.ticks);
    return from.ns + static_cast<std::uint64_t>(share * static_cast<double>(to.ns - from.ns) + 0.5);
}

}  // namespace fragscope::collector
