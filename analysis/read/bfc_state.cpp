// What a dump's chunks and sums leave open, and what they decide.
//
// The allocator takes regions up to its limit ("Limit", memory_limit_). By default that is nearly all of the device,
// taken in one piece at the start. Where no region for the request could be added below the limit, the limit stands
// for the device: what the device has beyond it, no dump says. Where one could, the driver refused it, and the dump
// does not say what the device had.
#include "analysis/read/bfc_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/read/message_text.h"
#include "analysis/scenario_layout.h"

namespace fragscope::analysis {

namespace {

const Interval kOpen{0, std::nullopt};

struct Listed {
    std::uint64_t bytes = 0;
    std::uint64_t in_use = 0;
    bool consistent = true;
};

// A run of chunks that follow each other, as a segment: what is in use of it, in places.
void add_run(const std::vector<BfcChunk>& chunks, std::size_t from, std::size_t to, Scenario& scenario) {
    ScenarioSegment segment;
    segment.id = fmt::format("region {}", scenario.segments.size() + 1);
    const std::uint64_t begin = chunks[from].address;
    segment.bytes = Interval::exactly(chunks[to - 1].address + chunks[to - 1].bytes - begin);
    for (std::size_t i = from; i < to; ++i) {
        if (!chunks[i].in_use) continue;
        // Chunks in use that lie side by side are one block: no request can lie between them.
        std::uint64_t bytes = 0;
        const std::uint64_t at = chunks[i].address - begin;
        while (i < to && chunks[i].in_use) bytes += chunks[i++].bytes;
        --i;
        segment.blocks.push_back({"", at, Interval::exactly(bytes), std::nullopt, false});
    }
    scenario.segments.push_back(std::move(segment));
}

// The listed chunks as segments. Free chunks side by side lie in two regions: within one they would be one chunk.
Listed put_chunks(const BfcDump& dump, ImportedState& out) {
    Listed listed;
    std::vector<BfcChunk> chunks = dump.chunks;
    std::vector<std::uint64_t> boundaries;  // addresses at which a region begins
    for (const std::size_t begin : dump.region_begins)
        if (begin < chunks.size()) boundaries.push_back(chunks[begin].address);
    std::sort(boundaries.begin(), boundaries.end());
    std::sort(chunks.begin(), chunks.end(), [](const BfcChunk& a, const BfcChunk& b) { return a.address < b.address; });
    // The same dump twice in a log: one of each.
    chunks.erase(std::unique(chunks.begin(), chunks.end(),
                             [](const BfcChunk& a, const BfcChunk& b) {
                                 return a.address == b.address && a.bytes == b.bytes && a.in_use == b.in_use;
                             }),
                 chunks.end());
    for (std::size_t i = 1; i < chunks.size() && listed.consistent; ++i)
        listed.consistent = chunks[i].address - chunks[i - 1].address >= chunks[i - 1].bytes;
    if (!listed.consistent) {
        out.warnings.emplace_back(
            "Chunks that the dump lists lie on top of each other: it is damaged, or of two allocators at once. Where they "
            "lie is left out.");
        return listed;
    }
    std::size_t from = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        listed.bytes += chunks[i].bytes;
        if (chunks[i].in_use) listed.in_use += chunks[i].bytes;
        const bool ends = i + 1 == chunks.size() || chunks[i].address + chunks[i].bytes != chunks[i + 1].address ||
                          (!chunks[i].in_use && !chunks[i + 1].in_use) ||
                          std::binary_search(boundaries.begin(), boundaries.end(), chunks[i + 1].address);
        if (!ends) continue;
        add_run(chunks, from, i + 1, out.scenario);
        from = i + 1;
    }
    return listed;
}

// What is in use in all, by whatever the dump says of it.
Interval in_use_of(const BfcDump& dump, const Listed& listed, ImportedState& out) {
    Interval all{listed.in_use, std::nullopt};
    const auto add = [&](const Interval& amount, const char* what) {
        const auto same = both(all, amount);
        if (!same) {
            out.warnings.push_back(fmt::format("The dump contradicts itself: {} says that {} are in use, and the rest of it "
                                               "says {}.",
                                               what, in_words(amount), in_words(all)));
            return;
        }
        all = *same;
    };
    if (dump.in_use) add(Interval::exactly(*dump.in_use), "its statistics");
    if (dump.in_use_in_words) add(*dump.in_use_in_words, "its sum of chunks");
    // The end of a summary is a part of it.
    if (dump.in_use_by_size) add({*dump.in_use_by_size, std::nullopt}, "its summary by size");
    return all;
}

Interval request_of(const BfcDump& dump, ImportedState& out) {
    if (!dump.request && !dump.rounded) {
        out.not_in_source.emplace_back("How much was asked for: the lines that name the request are not in the text.");
        return kOpen;
    }
    if (!dump.rounded) return *dump.request;
    const Interval before{dump.rounded->low.value_or(0) - std::min(dump.rounded->low.value_or(0), BfcDump::kUnit - 1),
                          dump.rounded->high};
    const auto same = both(dump.request.value_or(before), before);
    if (!same) {
        out.warnings.push_back(fmt::format("The dump contradicts itself: a request of {} is not rounded to {}.",
                                           in_words(*dump.request), in_words(*dump.rounded)));
        return *dump.rounded;
    }
    return *same;
}

// What is not listed, as a sum.
void put_rest(const BfcDump& dump, const Listed& listed, const Interval& in_use, ImportedState& out) {
    Scenario& scenario = out.scenario;
    const Interval live = less(in_use, Interval::exactly(listed.in_use));
    const Interval request = scenario.request.bytes;
    Interval unused = kOpen;
    if (dump.pool) {
        if (*dump.pool < listed.bytes)
            out.warnings.push_back(fmt::format("The dump contradicts itself: {} in regions are less than the {} of the "
                                               "chunks that it lists.",
                                               in_words(*dump.pool), in_words(listed.bytes)));
        const Interval rest = less(Interval::exactly(*dump.pool), Interval::exactly(listed.bytes));
        unused = less(rest, live);
        if (!live.exact() && live.low.value_or(0) > rest.high.value_or(UINT64_MAX)) unused = Interval::exactly(0);
    } else if (dump.limit && live.high) {
        // In a region already, or not taken yet: at most what the limit leaves.
        unused = {0, less(Interval::exactly(*dump.limit), Interval::exactly(listed.bytes) + live).high};
        // Where all of that is too little, it does not matter which.
        if (*unused.high < request.low.value_or(0)) unused = Interval::exactly(0);
    }
    if (live.high == std::optional<std::uint64_t>(0) && unused.high == std::optional<std::uint64_t>(0)) return;
    ScenarioSegment rest;
    rest.id = "not listed";
    rest.several = true;
    rest.unused = unused;
    rest.bytes = live + unused;
    rest.blocks.push_back({"live", std::nullopt, live, std::nullopt, false});
    scenario.segments.push_back(std::move(rest));
    scenario.request.gaps_refused = true;
    out.not_in_source.push_back(
        listed.bytes == 0 ? std::string("Where chunks lie: the text has the sums of the dump only.")
                          : fmt::format("Where {} in use and {} not in use lie: the text has only a part of the dump, with "
                                        "{} of chunks.",
                                        in_words(live), in_words(unused), in_words(listed.bytes)));
}

void put_limits(const BfcDump& dump, ImportedState& out) {
    Scenario& scenario = out.scenario;
    ScenarioDevice& device = scenario.device;
    device.granularity = BfcDump::kUnit;
    Interval reserved = Interval::exactly(0);
    for (const ScenarioSegment& segment : scenario.segments) reserved = reserved + segment.bytes;
    if (dump.limit) {
        device.allocator_limit = Interval::exactly(*dump.limit);
        const Interval room = less(*device.allocator_limit, reserved);
        if (room.high && *room.high < scenario.request.bytes.low.value_or(0)) {
            device.capacity = *device.allocator_limit;
            scenario.device_name = "what the allocator may take";
            out.not_in_source.push_back(fmt::format(
                "What the device has beyond the allocator's limit of {}: all that is concluded is about the memory below "
                "it.",
                in_words(*dump.limit)));
            return;
        }
        out.not_in_source.push_back(fmt::format(
            "Why no further region was to be had: the limit of {} leaves {} to take, and what the device had is not in the "
            "dump (cuMemGetInfo, nvidia-smi).",
            in_words(*dump.limit), in_words(room)));
    } else {
        out.not_in_source.emplace_back("The allocator's limit, and the capacity of the device.");
    }
    device.context = kOpen;
    device.other_processes = kOpen;
    device.device_free = kOpen;
}

}  // namespace

ImportedState state_of(const BfcDump& dump) {
    ImportedState out;
    out.kind = "bfc-dump";
    out.in_words = dump.states_memory() ? "a dump of the BFC allocator (TensorFlow, XLA)"
                                        : "a message of the BFC allocator (TensorFlow, XLA)";
    out.line = dump.first_line;
    Scenario& scenario = out.scenario;
    scenario.device_name = "the GPU";
    out.warnings = dump.contradictions;
    scenario.request.kind = ScenarioRequest::Kind::kAllocator;
    scenario.request.block_rounding = BfcDump::kUnit;
    scenario.request.bytes = request_of(dump, out);
    scenario.title = fmt::format("The allocator{} could not get {}", dump.allocator.empty() ? "" : " " + dump.allocator,
                                 dump.request || dump.rounded ? in_short(scenario.request.bytes)
                                                              : std::string("what it wanted"));
    const Listed listed = put_chunks(dump, out);
    if (!dump.states_memory()) {
        scenario.segments.push_back({"segments", kOpen, "", "", true, kOpen, {}});
        scenario.request.gaps_refused = true;
        out.not_in_source.emplace_back("What the allocator holds: the message comes without its dump.");
    } else {
        put_rest(dump, listed, in_use_of(dump, listed, out), out);
    }
    put_limits(dump, out);
    return out;
}

}  // namespace fragscope::analysis
