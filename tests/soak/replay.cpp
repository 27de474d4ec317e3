#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/soak/match.h"

namespace fragscope::soak {

namespace {

using O = Operation;

bool acquires(Operation operation) {
    return operation == O::k_linear_alloc || operation == O::k_pitch_alloc ||
           operation == O::k_managed_alloc || operation == O::k_host_alloc || operation == O::k_pool_alloc ||
           operation == O::k_reserve;
}
bool releases(Operation operation) {
    return operation == O::k_linear_free || operation == O::k_managed_free || operation == O::k_host_free ||
           operation == O::k_pool_free || operation == O::k_pool_free_asked || operation == O::k_unreserve;
}

// Bytes asked for that live at once, and the most there ever were.
struct Level {
    std::uint64_t now = 0, peak = 0;
    void add(std::uint64_t bytes) { peak = std::max(peak, now += bytes); }
};

struct Extent {
    std::uint64_t end = 0, bytes = 0;
};

struct Player {
    const std::vector<Line>& lines;
    Result& result;
    std::map<std::uint64_t, Extent> live;
    std::set<std::uint64_t> given_up;  // released by calls that never returned: may be acquired again
    Level level;

    void acquire(const Line& line, bool check) {
        const std::uint64_t end = line.object + line.bytes;
        if (check) {
            for (auto at = live.lower_bound(line.object); at != live.begin() || at != live.end();) {
                // The extent that begins before, then all that begin inside.
                if (at != live.begin() && std::prev(at)->second.end > line.object) --at;
                if (at == live.end() || at->first >= end) break;
                if (given_up.erase(at->first) == 0) {
                    result.problems.push_back(
                        fmt::format("process {}: {:#x}, {} bytes ({}) is acquired while {:#x} lives",
                                    line.pid, line.object, line.bytes, name_of(line.operation), at->first));
                    return;
                }
                level.now -= at->second.bytes;
                at = live.erase(at);
            }
        }
        live[line.object] = {end, line.bytes};
        level.add(line.bytes);
    }
    void release(const Line& line) {
        const auto found = live.find(line.object);
        if (found == live.end()) {
            result.problems.push_back(fmt::format("process {}: {:#x} is released ({}) and does not live",
                                                  line.pid, line.object, name_of(line.operation)));
            return;
        }
        level.now -= found->second.bytes;
        live.erase(found);
    }
};

void replay_image(const std::vector<Line>& lines, const std::vector<std::size_t>& own, Result& result) {
    std::vector<std::size_t> recorded;
    Player in_trace{lines, result, {}, {}, {}};
    Player in_ledger{lines, result, {}, {}, {}};
    std::uint64_t largest = 0;
    std::set<std::int32_t> threads;
    bool all_recorded = true;
    std::uint64_t given_up_bytes = 0;
    for (const std::size_t i : own) {
        const Line& line = lines[i];
        threads.insert(line.thread);
        largest = std::max(largest, acquires(line.operation) ? line.bytes : 0);
        if (result.places[i].sequence != 0)
            recorded.push_back(i);
        else if (acquires(line.operation) || releases(line.operation))
            all_recorded = false;
        if (result.places[i].sequence == 0 && releases(line.operation)) {
            in_trace.given_up.insert(line.object);
            given_up_bytes += line.bytes;
        }
        if (acquires(line.operation)) in_ledger.acquire(line, false);
        if (releases(line.operation)) in_ledger.release(line);
    }
    std::stable_sort(recorded.begin(), recorded.end(),
                     [&](std::size_t a, std::size_t b) { return result.places[a] < result.places[b]; });
    for (const std::size_t i : recorded) {
        if (acquires(lines[i].operation)) in_trace.acquire(lines[i], true);
        if (releases(lines[i].operation)) in_trace.release(lines[i]);
    }
    // At the moment of any number, each thread has at most one call that is done and not yet numbered, or
    // numbered and not yet done: what lives by the trace is at most what lived, and less by no more than
    // that. What a call released that never returned goes on living by the trace.
    const std::uint64_t missing = threads.size() == 1 && all_recorded ? 0 : threads.size() * largest;
    if (in_trace.level.peak > in_ledger.level.peak + given_up_bytes ||
        in_ledger.level.peak > in_trace.level.peak + missing)
        result.problems.push_back(
            fmt::format("process {}: the peak is {} bytes in the trace and {} in the ledger",
                        lines[own.front()].pid, in_trace.level.peak, in_ledger.level.peak));
    result.peaks += in_ledger.level.peak;
    result.peaks_in_trace += in_trace.level.peak;
    if (missing == 0) ++result.peaks_held_to_be_equal;
}

}  // namespace

void replay(const std::vector<Line>& lines, Result& result) {
    // By process and image; a line without a record is of the image that its neighbours in the thread are of.
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> image_of_thread;
    std::map<std::pair<std::int32_t, std::uint32_t>, std::vector<std::size_t>> images;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::uint32_t& image = image_of_thread[{lines[i].pid, lines[i].thread}];
        if (result.places[i].sequence != 0) image = result.places[i].image;
        images[{lines[i].pid, image}].push_back(i);
    }
    for (const auto& [image, own] : images) replay_image(lines, own, result);
}

}  // namespace fragscope::soak
