#include "analysis/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "analysis/mechanisms.h"
#include "analysis/request.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

// Sizes beyond so many are counted together: memory stays small whatever a program asks for.
constexpr std::size_t kMostSizes = std::size_t{1} << 16;

struct SizeKey {
    int device = kNoDevice;
    Kind kind = Kind::kNone;
    std::uint64_t bytes = 0;
    bool operator==(const SizeKey&) const = default;
};

struct HashOfKey {
    std::size_t operator()(const SizeKey& key) const {
        return std::hash<std::uint64_t>{}(key.bytes * 31 + static_cast<std::uint64_t>(key.kind) * 7 +
                                          static_cast<std::uint64_t>(key.device + 1));
    }
};

struct Size {
    SizeKey key;
    std::uint64_t count = 0;
    double bytes = 0;  // in all
};

struct Sizes {
    std::vector<Size> most;  // the most bytes first
    double all = 0;          // bytes
    bool all_counted = true;
};

std::map<int, Sizes> sizes_of(const EventLog& events) {
    std::unordered_map<SizeKey, std::uint64_t, HashOfKey> counts;
    std::map<int, Sizes> out;
    for (const Event& event : events) {
        if (event.kind != Kind::kLinearAcquired && event.kind != Kind::kHandleCreated &&
            event.kind != Kind::kPoolAcquired)
            continue;
        if (event.failed() || event.has(wire::kByShim) || event.has(wire::kCaptured)) continue;
        const SizeKey key = {device_of_call(event), event.kind, event.bytes.value};
        if (key.device == kNoDevice || key.bytes == 0) continue;
        Sizes& sizes = out[key.device];
        sizes.all += static_cast<double>(key.bytes);
        if (const auto known = counts.find(key); known != counts.end())
            ++known->second;
        else if (counts.size() < kMostSizes)
            counts.emplace(key, 1);
        else
            sizes.all_counted = false;
    }
    for (const auto& [key, count] : counts)
        out[key.device].most.push_back(
            {key, count, static_cast<double>(key.bytes) * static_cast<double>(count)});
    for (auto& [device, sizes] : out) {
        std::sort(sizes.most.begin(), sizes.most.end(), [](const Size& a, const Size& b) {
            return a.bytes != b.bytes           ? a.bytes > b.bytes
                   : a.key.bytes != b.key.bytes ? a.key.bytes > b.key.bytes
                                                : a.key.kind < b.key.kind;
        });
        if (sizes.most.size() > kSizesCompared) sizes.most.resize(kSizesCompared);
    }
    return out;
}

const char* call_of(Kind kind) {
    return kind == Kind::kHandleCreated  ? "cuMemCreate"
           : kind == Kind::kPoolAcquired ? "cuMemAllocAsync"
                                         : "cuMemAlloc";
}

Situation situation_for(const Trace& trace, ProcessIndex process, const Size& size, const Sizes& all) {
    Situation s;
    s.trace = &trace;
    s.hypothetical = true;
    s.failure.process = process;
    Event like;
    like.kind = size.key.kind;
    like.device = static_cast<std::int16_t>(size.key.device);
    like.bytes = {size.key.bytes};
    if (like.kind == Kind::kHandleCreated)
        like.extra = wire::pack_location(kLocationDevice, size.key.device, 0);
    const ProcessState nothing = state_of(trace, process);
    s.request = request_of(like, nothing);
    // Rounded down: never all of it where it is less.
    s.request.in_words =
        fmt::format("{} {} of {} ({}), {:.1f} % of all bytes that were asked for{}", size.count,
                    size.count == 1 ? "allocation" : "allocations", in_words(size.key.bytes),
                    call_of(size.key.kind), std::floor(1000 * size.bytes / all.all) / 10,
                    all.all_counted ? "" : "; not all sizes could be counted");
    s.device = device_uuid(trace, process, size.key.device);
    s.page = nothing.page(size.key.device);
    if (const trace::Device* device = device_of(trace, process, size.key.device))
        s.recommended_granularity = device->recommended_granularity_bytes();
    s.physical.process = process.value;
    s.physical.device = s.device;
    s.physical.domain = "physical";
    s.address = s.physical.in_domain("virtual");
    return s;
}

}  // namespace

std::vector<report::Comparison> workload_mechanisms(const Trace& trace) {
    std::vector<report::Comparison> out;
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        for (const auto& [device, sizes] : sizes_of(trace.events[index])) {
            std::vector<RequestMade> requests;
            for (const Size& size : sizes.most) requests.push_back({size.key.kind, size.key.bytes, 0});
            RunWatch run(trace, {index}, device, requests);
            run.finish();
            for (const Size& size : sizes.most) {
                Situation s = situation_for(trace, {index}, size, sizes);
                s.facts = run.facts({size.key.kind, size.key.bytes, 0});
                report::Comparison comparison = mechanisms_for_a_run(s);
                comparison.set_subject(fmt::format(
                    "process {}, {}: {}", index,
                    s.device.empty() ? fmt::format("device {}", device) : s.device, comparison.subject()));
                // What calls took is the same for all of them, and is told once.
                if (&size != &sizes.most.front()) comparison.clear_measured();
                comparison.set_process(index);
                comparison.set_device(s.device);
                out.push_back(std::move(comparison));
            }
        }
    }
    return out;
}

}  // namespace fragscope::analysis
