#include "analysis/sharing.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "analysis/moment.h"
#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

bool is_about_sharing(Kind kind) {
    switch (kind) {
        case Kind::kHandleExported:
        case Kind::kHandleImported:
        case Kind::kIpcExported:
        case Kind::kIpcOpened:
        case Kind::kPoolPointerExported:
        case Kind::kPoolPointerImported:
        case Kind::kRangeExported:
            return true;
        default:
            return false;
    }
}

void note(std::vector<Held>& spans, bool now, std::uint64_t time_ns) {
    const bool before = !spans.empty() && !spans.back().until_ns;
    if (now && !before) spans.push_back({time_ns, std::nullopt});
    if (!now && before) spans.back().until_ns = time_ns;
}

}  // namespace

Sharing::Sharing(const Trace& trace)
    : trace_(trace), sides_(trace.events.size()), handles_(trace.events.size()) {
    for (const auto& events : trace.events) {
        for (const Event& event : events) {
            if (!is_about_sharing(event.kind) || event.failed()) continue;
            used_ = true;
            return;
        }
    }
}

void Sharing::add(ProcessIndex process, const ProcessState& after, const Event& event) {
    if (!used_ || event.failed()) return;
    const std::uint64_t time_ns = counts_from(event);
    switch (event.kind) {
        case Kind::kIpcExported:
        case Kind::kPoolPointerExported:
            return note_export(process, after, event);
        case Kind::kIpcOpened:
        case Kind::kPoolPointerImported:
            return note_opening(process, event);
        case Kind::kIpcClosed:
            return note_closing(process, event, time_ns);
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kPoolAcquired:
            return note_reuse(process, event);
        case Kind::kLinearReleased:
        case Kind::kPoolReleased:
            note_closing(process, event, time_ns);
            return note_release(process, event, time_ns);
        case Kind::kContextDestroyed:
        case Kind::kPrimaryReleased:
        case Kind::kPrimaryReset:
            return note_contexts(process, after, time_ns);
        case Kind::kHandleExported:
        case Kind::kRangeExported:
        case Kind::kHandleImported:
        case Kind::kHandleReleased:
        case Kind::kUnmapped:
        case Kind::kArrayReleased:
        case Kind::kArrayMapped:
            return note_handles(process, after, time_ns);
        default:
            return;
    }
}

void Sharing::note_export(ProcessIndex process, const ProcessState& after, const Event& event) {
    SharedMemory out;
    out.exporter = process;
    out.identity = event.extra;
    out.pool_pointer = event.kind == Kind::kPoolPointerExported;
    out.device = event.device;
    out.range = {event.address.value, event.address.value};
    out.held.from_ns = event.start.value;
    if (const auto linear = after.linear().find(event.address.value)) {
        out.range = linear->range;
        out.device = linear->value.device;
        out.stack = linear->value.stack;
    } else if (const auto block = after.pool_blocks().find(event.address.value)) {
        out.range = block->range;
        out.device = block->value.device;
        out.stack = block->value.stack;
    }
    // Exporting it once more gives the same description.
    auto& exported = sides_[process.value].exported;
    const auto [first, last] = exported.equal_range(out.range.begin);
    for (auto at = first; at != last; ++at) {
        const SharedMemory& known = memory_[at->second];
        if (known.identity == out.identity && known.pool_pointer == out.pool_pointer) return;
    }
    exported.emplace(out.range.begin, memory_.size());
    memory_.push_back(std::move(out));
}

void Sharing::note_opening(ProcessIndex process, const Event& event) {
    const auto [at, fresh] = sides_[process.value].open.try_emplace(event.address.value);
    Opening& opening = at->second;
    ++opening.references;
    if (!fresh) return;
    opening.identity = event.extra;
    opening.import = {process, event.address.value, {event.start.value, std::nullopt}};
}

void Sharing::note_closing(ProcessIndex process, const Event& event, std::uint64_t time_ns) {
    auto& open = sides_[process.value].open;
    const auto found = open.find(event.address.value);
    if (found == open.end() || --found->second.references != 0) return;
    found->second.import.held.until_ns = time_ns;
    openings_.emplace_back(found->second.identity, found->second.import);
    open.erase(found);
}

void Sharing::note_release(ProcessIndex process, const Event& event, std::uint64_t time_ns) {
    auto& exported = sides_[process.value].exported;
    const auto [first, last] = exported.equal_range(event.address.value);
    for (auto at = first; at != last; ++at)
        give_up(sides_[process.value], at->second, time_ns, "it was freed");
    exported.erase(first, last);
}

void Sharing::give_up(Side& side, std::size_t memory, std::uint64_t time_ns, const char* how) {
    SharedMemory& gone = memory_[memory];
    gone.held.until_ns = time_ns;
    gone.given_up_by = how;
    if (gone.range.size() == 0) return;
    side.given_up.emplace(gone.range.begin, memory);
    side.longest_given_up = std::max(side.longest_given_up, gone.range.size());
}

void Sharing::note_reuse(ProcessIndex process, const Event& event) {
    Side& side = sides_[process.value];
    if (side.given_up.empty()) return;
    const Range range = range_of(event.address.value, std::max<std::uint64_t>(event.bytes.value, 1));
    const std::uint64_t lowest = range.begin - std::min(range.begin, side.longest_given_up);
    for (auto at = side.given_up.lower_bound(lowest); at != side.given_up.end() && at->first < range.end;) {
        SharedMemory& memory = memory_[at->second];
        if (memory.range.end <= range.begin) {
            ++at;
            continue;
        }
        memory.given_out_again = event.sequence.value;
        memory.given_out_again_ns = counts_from(event);
        at = side.given_up.erase(at);
    }
}

void Sharing::note_contexts(ProcessIndex process, const ProcessState& after, std::uint64_t time_ns) {
    auto& exported = sides_[process.value].exported;
    for (auto at = exported.begin(); at != exported.end();) {
        SharedMemory& memory = memory_[at->second];
        if (memory.pool_pointer || memory.range.size() == 0 || after.linear().find(memory.range.begin)) {
            ++at;
            continue;
        }
        give_up(sides_[process.value], at->second, time_ns, "its context ended");
        at = exported.erase(at);
    }
}

void Sharing::note_handles(ProcessIndex process, const ProcessState& after, std::uint64_t time_ns) {
    note(handles_[process.value].exported, after.exported_handles() != 0, time_ns);
    note(handles_[process.value].imported, after.imported_handles() != 0, time_ns);
}

void Sharing::finish() {
    const auto ended = [&](ProcessIndex process) -> std::optional<std::uint64_t> {
        if (process.value >= trace_.processes.size()) return std::nullopt;
        const trace::Process& one = trace_.processes[process.value];
        return one.has_ended_ns() ? std::optional<std::uint64_t>(one.ended_ns()) : std::nullopt;
    };
    for (std::uint32_t process = 0; process < sides_.size(); ++process) {
        for (auto& [address, opening] : sides_[process].open) {
            opening.import.held.until_ns = ended({process});
            openings_.emplace_back(opening.identity, opening.import);
        }
        sides_[process].open.clear();
        for (std::vector<Held>* spans : {&handles_[process].exported, &handles_[process].imported}) {
            if (!spans->empty() && !spans->back().until_ns) spans->back().until_ns = ended({process});
        }
    }
    for (SharedMemory& memory : memory_) {
        if (memory.held.until_ns) continue;
        memory.held.until_ns = ended(memory.exporter);
        if (memory.held.until_ns) memory.given_up_by = "the process ended";
    }
    std::stable_sort(openings_.begin(), openings_.end(), [](const auto& a, const auto& b) {
        return a.second.held.from_ns < b.second.held.from_ns;
    });
    // Descriptions may be equal where an address is used again: then an opening belongs to the last one that
    // was exported before it.
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_identity;
    for (std::size_t i = 0; i < memory_.size(); ++i) by_identity[memory_[i].identity].push_back(i);
    for (auto& [identity, equal] : by_identity) {
        std::stable_sort(equal.begin(), equal.end(), [&](std::size_t a, std::size_t b) {
            return memory_[a].held.from_ns < memory_[b].held.from_ns;
        });
    }
    for (const auto& [identity, import] : openings_) {
        const std::vector<std::size_t>& equal = by_identity[identity];
        auto behind = std::upper_bound(
            equal.begin(), equal.end(), import.held.from_ns,
            [&](std::uint64_t time, std::size_t i) { return time < memory_[i].held.from_ns; });
        while (behind != equal.begin() && memory_[*(behind - 1)].exporter == import.process) --behind;
        if (behind != equal.begin()) memory_[*(behind - 1)].imports.push_back(import);
    }
    openings_.clear();
}

Sharing sharing_of(const Trace& trace) {
    Sharing out(trace);
    if (out.used()) {
        for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
            ProcessState state = state_of(trace, {process});
            for (const Event& event : trace.events[process]) {
                state.apply(event);
                out.add({process}, state, event);
            }
        }
    }
    out.finish();
    return out;
}

}  // namespace fragscope::analysis
