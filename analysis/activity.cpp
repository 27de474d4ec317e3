#include "analysis/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "analysis/kinds.h"
#include "analysis/state_parts.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

// CUpti_ActivityMemoryKind, CUpti_ActivityUnifiedMemoryCounterKind of cupti_activity.h.
constexpr std::uint32_t kDeviceMemory = 3, kArrayMemory = 4, kManagedMemory = 5, kDeviceStatic = 6,
                        kManagedStatic = 7;
constexpr std::uint32_t kToDevice = 1, kToHost = 2, kBetweenDevices = 8;

// How far CUPTI's time of an operation may lie from its call: both clocks are read one after the other.
constexpr std::uint64_t kApartNs = 20'000'000;

// An acquisition or release that a call or CUPTI tells of.
struct Told {
    std::size_t index = 0;  // of the event
    std::uint64_t from = 0, to = 0;
    std::uint64_t bytes = 0, other_bytes = 0;  // the call's requested and granted size
    bool taken = false;
};

// All that is told of one address, in order of time.
struct AtAddress {
    std::vector<Told> calls, releases, records, record_releases;
};

std::uint64_t apart(const Told& call, const Told& record) {
    if (record.from < call.from) return call.from - record.from;
    return record.from > call.to ? record.from - call.to : 0;
}

// Pairs records with calls, the nearest first; a record is looked for among the calls next to it in time.
std::vector<std::pair<std::size_t, std::size_t>> pairs_of(std::vector<Told>& calls,
                                                          std::vector<Told>& records) {
    struct Candidate {
        std::uint64_t distance;
        std::size_t call, record;
        bool operator<(const Candidate& other) const {
            return std::tie(distance, record, call) < std::tie(other.distance, other.record, other.call);
        }
    };
    constexpr std::size_t kNext = 2;  // on each side
    const auto earlier = [](const Told& a, const Told& b) { return a.from < b.from; };
    std::stable_sort(calls.begin(), calls.end(), earlier);
    std::stable_sort(records.begin(), records.end(), earlier);
    std::vector<Candidate> candidates;
    for (std::size_t r = 0; r < records.size(); ++r) {
        const auto after = std::upper_bound(calls.begin(), calls.end(), records[r], earlier);
        const auto at = static_cast<std::size_t>(after - calls.begin());
        for (std::size_t c = at > kNext ? at - kNext : 0; c < std::min(at + kNext, calls.size()); ++c) {
            const std::uint64_t distance = apart(calls[c], records[r]);
            if (distance <= kApartNs) candidates.push_back({distance, c, r});
        }
    }
    std::sort(candidates.begin(), candidates.end());
    std::vector<std::pair<std::size_t, std::size_t>> out;
    for (const Candidate& each : candidates) {
        if (calls[each.call].taken || records[each.record].taken) continue;
        calls[each.call].taken = records[each.record].taken = true;
        out.emplace_back(each.call, each.record);
    }
    return out;
}

bool told_by_cupti(Kind kind) {
    switch (kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kManagedAcquired:
        case Kind::kHostAcquired:
        case Kind::kPoolAcquired:
        case Kind::kArrayCreated:
            return true;
        default:
            return false;
    }
}

bool gives_back(Kind kind) {
    return kind == Kind::kLinearReleased || kind == Kind::kHostReleased || kind == Kind::kPoolReleased ||
           kind == Kind::kArrayReleased;
}

bool ends_context(Kind kind) {
    return kind == Kind::kContextDestroyed || kind == Kind::kPrimaryReset || kind == Kind::kPrimaryReleased;
}

class Merge {
  public:
    Merge(const Trace& trace, ProcessIndex process)
        : events_(trace.events[process.value]),
          names_(process.value < trace.names.size() ? &trace.names[process.value] : nullptr) {}

    Activity result();

  private:
    void read_states();
    void sort();
    void sort_record(std::size_t i);
    void merge_arrays();
    void merge_address(std::uint64_t address, AtAddress& at);
    void add_unseen(std::uint64_t address, const AtAddress& at, const Told& record);
    void add_static(const Told& record, const AtAddress& at);
    void follow_managed();
    bool inside_known(const Event& record) const;
    bool context_ended_at(std::uint64_t time) const;
    std::string text(std::uint64_t id) const;
    const Event* place_of(std::size_t record) const;
    static std::optional<std::uint64_t> next_after(const std::vector<Told>& list, std::uint64_t time);

    const std::vector<Event>& events_;
    const ProcessNames* names_;
    Activity out_;
    std::unordered_map<std::uint64_t, AtAddress> addresses_;
    AtAddress arrays_;
    std::vector<Told> context_ends_;
    // Address ranges that calls held, by their begin: with their times.
    struct Held {
        std::uint64_t end, from, to;
    };
    std::multimap<std::uint64_t, Held> held_;
    std::uint64_t longest_held_ = 0;
};

std::string Merge::text(std::uint64_t id) const {
    if (names_ == nullptr || id == 0 || id > UINT32_MAX) return "";
    const auto found = names_->texts.find(static_cast<std::uint32_t>(id));
    return found == names_->texts.end() ? "" : found->second;
}

// The record of where the operation came from follows the operation's at once, with its number.
const Event* Merge::place_of(std::size_t record) const {
    for (std::size_t i = record + 1; i < events_.size() && i <= record + 2; ++i) {
        if (events_[i].sequence == events_[record].sequence && events_[i].kind == Kind::kActivityPlace)
            return &events_[i];
    }
    return nullptr;
}

void Merge::read_states() {
    for (const Event& event : events_) {
        if (event.kind == Kind::kActivityLost) out_.dropped += event.bytes.value;
        if (event.kind != Kind::kActivityState) continue;
        const auto state = static_cast<wire::CuptiState>(event.address.value);
        out_.states.push_back({event.start, state, event.bytes.value, event.object.value, text(event.extra)});
        if (state == wire::CuptiState::kOn) {
            out_.used = true;
            out_.from = event.start;
            out_.to = event.start;
        } else if (out_.used) {
            out_.to = event.start;
        }
    }
    // Without an end that was told, up to the last record: what came after it may not have been handed over.
    if (!out_.used || out_.states.back().state != wire::CuptiState::kOn) return;
    for (const Event& event : events_) {
        if (event.kind == Kind::kActivityAcquired || event.kind == Kind::kActivityReleased)
            out_.to = std::max(out_.to, event.start);
    }
}

void Merge::sort_record(std::size_t i) {
    const Event& event = events_[i];
    const Told told{i, event.start.value, event.start.value, event.bytes.value, event.bytes.value, false};
    const bool release = event.kind == Kind::kActivityReleased;
    if (wire::activity_kind(event.object.value) == kArrayMemory) {
        (release ? arrays_.record_releases : arrays_.records).push_back(told);
    } else {
        AtAddress& at = addresses_[event.address.value];
        (release ? at.record_releases : at.records).push_back(told);
    }
}

void Merge::sort() {
    for (std::size_t i = 0; i < events_.size(); ++i) {
        const Event& event = events_[i];
        if (event.kind == Kind::kActivityAcquired || event.kind == Kind::kActivityReleased) {
            sort_record(i);
            continue;
        }
        if (event.failed() || event.has(wire::kByShim) || event.has(wire::kCaptured) ||
            event.has(wire::kContinued))
            continue;
        const std::uint64_t from = event.start.value, to = from + event.duration_ns;
        if (event.kind == Kind::kHandleCreated && from >= out_.from.value && to <= out_.to.value)
            ++out_.expected_only_calls;
        if (ends_context(event.kind)) context_ends_.push_back({i, from, to, 0, 0, false});
        const bool array = event.kind == Kind::kArrayCreated || event.kind == Kind::kArrayReleased;
        AtAddress& at = array ? arrays_ : addresses_[event.address.value];
        const std::uint64_t granted = event.kind == Kind::kPitchAcquired ? event.extra : event.bytes.value;
        if (told_by_cupti(event.kind)) at.calls.push_back({i, from, to, event.bytes.value, granted, false});
        if (gives_back(event.kind)) at.releases.push_back({i, from, to, 0, 0, false});
    }
    for (const auto& [address, at] : addresses_) {
        for (const Told& call : at.calls) {
            const std::uint64_t length = std::max(call.bytes, call.other_bytes);
            const std::uint64_t end = length > UINT64_MAX - address ? UINT64_MAX : address + length;
            longest_held_ = std::max(longest_held_, end - address);
            held_.insert({address, {end, call.from, next_after(at.releases, call.to).value_or(UINT64_MAX)}});
        }
    }
}

std::optional<std::uint64_t> Merge::next_after(const std::vector<Told>& list, std::uint64_t time) {
    std::optional<std::uint64_t> out;
    for (const Told& each : list) {
        if (each.from >= time && (!out || each.from < *out)) out = each.from;
    }
    return out;
}

// Whether calls held memory there at that time: then it is known, whatever CUPTI calls it (an address inside
// a pool's or a segment's block, say).
bool Merge::inside_known(const Event& record) const {
    const std::uint64_t begin = record.address.value, time = record.start.value;
    const std::uint64_t end = begin + std::min(record.bytes.value, UINT64_MAX - begin);
    auto at = held_.lower_bound(begin > longest_held_ ? begin - longest_held_ : 0);
    for (; at != held_.end() && at->first < end; ++at) {
        if (at->second.end > begin && at->second.from <= time && time < at->second.to) return true;
    }
    return false;
}

bool Merge::context_ended_at(std::uint64_t time) const {
    return std::any_of(context_ends_.begin(), context_ends_.end(), [&](const Told& end) {
        return apart(end, {0, time, time, 0, 0, false}) <= kApartNs;
    });
}

void Merge::add_unseen(std::uint64_t address, const AtAddress& at, const Told& record) {
    const Event& event = events_[record.index];
    if (inside_known(event)) {
        ++out_.matched;
        return;
    }
    UnseenBlock block;
    block.address = Address{address};
    block.bytes = event.bytes.value;
    block.device = event.device;
    block.memory_kind = wire::activity_kind(event.object.value);
    block.pooled = wire::activity_async(event.object.value) || event.extra != 0;
    block.from = event.start;
    // Freed as CUPTI says, or by a call that was seen.
    const auto told = next_after(at.record_releases, record.from),
               called = next_after(at.releases, record.from);
    block.to = TimeNs{std::min(told.value_or(UINT64_MAX), called.value_or(UINT64_MAX))};
    if (const Event* place = place_of(record.index)) block.file = text(place->extra);
    out_.unseen.push_back(std::move(block));
}

void Merge::add_static(const Told& record, const AtAddress& at) {
    const Event& event = events_[record.index];
    StaticVariable variable;
    variable.address = event.address;
    variable.bytes = event.bytes.value;
    variable.device = event.device;
    variable.managed = wire::activity_kind(event.object.value) == kManagedStatic;
    variable.from = event.start;
    variable.to = TimeNs{next_after(at.record_releases, record.from).value_or(UINT64_MAX)};
    if (const Event* place = place_of(record.index)) variable.name = text(place->object.value);
    out_.statics.push_back(std::move(variable));
}

void Merge::merge_address(std::uint64_t address, AtAddress& at) {
    const auto is_static = [&](const Told& record) {
        const std::uint32_t kind = wire::activity_kind(events_[record.index].object.value);
        return kind == kDeviceStatic || kind == kManagedStatic;
    };
    for (const Told& record : at.records) {
        if (is_static(record)) add_static(record, at);
    }
    std::erase_if(at.records, is_static);
    for (const auto& [call, record] : pairs_of(at.calls, at.records)) {
        ++out_.matched;
        const std::uint64_t bytes = at.records[record].bytes;
        if (bytes != at.calls[call].bytes && bytes != at.calls[call].other_bytes) ++out_.other_size;
    }
    for (const Told& record : at.records) {
        if (!record.taken) add_unseen(address, at, record);
    }
    for (const Told& call : at.calls) {
        if (!call.taken && call.from >= out_.from.value && call.to <= out_.to.value) ++out_.only_calls;
    }
    std::erase_if(at.record_releases, is_static);
    out_.matched += pairs_of(at.releases, at.record_releases).size();
    for (const Told& release : at.record_releases) {
        if (release.taken || context_ended_at(release.from)) continue;
        // Of memory that a call took before, and no call has given back since: the last one before it.
        const Told* last = nullptr;
        for (const Told& call : at.calls) {
            if (call.from <= release.from) last = &call;
        }
        if (last == nullptr) continue;
        const auto gone = next_after(at.releases, last->to);
        if (gone && *gone <= release.from) continue;
        const bool unseen_in_between =
            std::any_of(at.records.begin(), at.records.end(), [&](const Told& record) {
                return !record.taken && record.from >= last->from && record.from <= release.from;
            });
        if (unseen_in_between) continue;
        ++out_.released_unseen;
        out_.released_unseen_bytes += last->other_bytes;
    }
}

void Merge::merge_arrays() {
    out_.matched += pairs_of(arrays_.calls, arrays_.records).size();
    for (const Told& record : arrays_.records) {
        if (!record.taken) add_unseen(events_[record.index].address.value, arrays_, record);
    }
    for (const Told& call : arrays_.calls) {
        if (!call.taken && call.from >= out_.from.value && call.to <= out_.to.value) ++out_.only_calls;
    }
    out_.matched += pairs_of(arrays_.releases, arrays_.record_releases).size();
}

// Managed pages go where counters say that their bytes went; a release takes them away. Records that were
// dropped may be the ones that say that pages left.
void Merge::follow_managed() {
    std::vector<const Event*> steps;
    for (const Event& event : events_) {
        const std::uint32_t kind = wire::activity_kind(event.object.value);
        const bool record = event.kind == Kind::kActivityAcquired || event.kind == Kind::kActivityReleased;
        const bool moves = event.kind == Kind::kActivityUnified &&
                           (kind == kToDevice || kind == kToHost || kind == kBetweenDevices);
        const bool discards = event.kind == Kind::kAdvised && !event.failed() &&
                              (wire::advice_of(event.extra) == wire::Advice::kDiscard ||
                               wire::advice_of(event.extra) == wire::Advice::kDiscardAndPrefetch);
        if (moves || discards || (record && kind == kManagedMemory)) steps.push_back(&event);
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Event* a, const Event* b) { return a->start < b->start; });
    std::map<int, ExtentSet> there;
    std::map<int, std::uint64_t> before;
    for (const Event* event : steps) {
        const std::uint64_t begin = event->address.value;
        const std::uint64_t end = begin + std::min(event->bytes.value, UINT64_MAX - begin);
        if (event->kind == Kind::kActivityAcquired || begin == end) continue;
        for (auto& [device, extents] : there) extents.remove({begin, end});
        const std::uint32_t kind = wire::activity_kind(event->object.value);
        if (event->kind == Kind::kActivityUnified && kind != kToHost && event->device != kNoDevice)
            there[event->device].add({begin, end});
        for (const auto& [device, extents] : there) {
            const std::uint64_t bytes = out_.dropped != 0 ? 0 : extents.sum();
            if (bytes == before[device]) continue;
            before[device] = bytes;
            out_.residency.push_back({event->start, device, bytes});
        }
    }
}

Activity Merge::result() {
    read_states();
    if (!out_.used) return std::move(out_);
    sort();
    for (auto& [address, at] : addresses_) merge_address(address, at);
    merge_arrays();
    follow_managed();
    const auto by_time = [](const auto& a, const auto& b) {
        return std::tie(a.from, a.address) < std::tie(b.from, b.address);
    };
    std::sort(out_.unseen.begin(), out_.unseen.end(), by_time);
    std::sort(out_.statics.begin(), out_.statics.end(), by_time);
    return std::move(out_);
}

// Of something that exists from `a` to `b`: certainly in the moment's sum, perhaps, or not.
void count(Interval& sum, TimeNs a, TimeNs b, Interval bytes, std::uint64_t from_ns, std::uint64_t to_ns) {
    if (a.value > to_ns || b.value < from_ns) return;
    const bool all_the_time = a.value <= from_ns && b.value >= to_ns;
    if (!all_the_time) bytes.low = 0;
    sum.low = (sum + bytes).low;
    sum.high = sum.high && bytes.high ? (sum + bytes).high : std::nullopt;
}

}  // namespace

Interval Activity::unseen_at(int device, std::uint64_t page, std::uint64_t from_ns,
                             std::uint64_t to_ns) const {
    Interval sum = Interval::exactly(0);
    for (const UnseenBlock& block : unseen) {
        if (block.device != device || block.pooled) continue;
        // Host memory takes nothing of the device; managed memory may be anywhere.
        const std::uint64_t pages =
            page == 0 ? block.bytes : (block.bytes / page + (block.bytes % page != 0 ? 1 : 0)) * page;
        if (block.memory_kind == kDeviceMemory)
            count(sum, block.from, block.to, {block.bytes, pages}, from_ns, to_ns);
        if (block.memory_kind == kManagedMemory) count(sum, block.from, block.to, {0, pages}, from_ns, to_ns);
        if (block.memory_kind == kArrayMemory)
            count(sum, block.from, block.to, {block.bytes, std::nullopt}, from_ns, to_ns);
    }
    return sum;
}

Interval Activity::statics_at(int device, std::uint64_t from_ns, std::uint64_t to_ns) const {
    Interval sum = Interval::exactly(0);
    for (const StaticVariable& variable : statics) {
        if (variable.device != device) continue;
        const Interval bytes{variable.managed ? 0 : variable.bytes, variable.bytes};
        count(sum, variable.from, variable.to, bytes, from_ns, to_ns);
    }
    return sum;
}

std::uint64_t Activity::resident_at(int device, std::uint64_t time_ns) const {
    std::uint64_t bytes = 0;
    for (const ResidencyStep& step : residency) {
        if (step.device == device && step.time.value <= time_ns) bytes = step.bytes;
    }
    return bytes;
}

std::vector<ActivityPart> parts_of(const Activity& activity, int device, std::uint64_t page,
                                   const Scope& scope, std::uint64_t from_ns, std::uint64_t to_ns) {
    std::vector<ActivityPart> out;
    const auto add = [&](const char* id, const char* words, const Interval& bytes, const char* why) {
        if (bytes == Interval::exactly(0)) return;
        out.push_back({id, words,
                       bytes.exact() ? Quantity::measured(report::Quantity::charged, *bytes.low, scope, why)
                                     : Quantity::bounded(report::Quantity::charged, bytes, scope, why)});
    };
    add("unseen", "memory that this process took past the recording, seen by CUPTI only",
        activity.unseen_at(device, page, from_ns, to_ns),
        "by CUPTI's records of what no intercepted call took: their sizes, up to whole pages");
    add("statics", "variables of this process's device code", activity.statics_at(device, from_ns, to_ns),
        "their sizes, as CUPTI states them");
    return out;
}

Activity activity_of(const Trace& trace, ProcessIndex process) {
    if (process.value >= trace.events.size()) return {};
    const auto& events = trace.events[process.value];
    const bool any = std::any_of(events.begin(), events.end(),
                                 [](const Event& event) { return event.kind == Kind::kActivityState; });
    return any ? Merge(trace, process).result() : Activity{};
}

std::string activity_in_words(const Activity& activity) {
    if (activity.states.empty()) return "";
    const ActivityState& first = activity.states.front();
    const ActivityState& last = activity.states.back();
    const std::string by = first.text.empty() ? "" : fmt::format(" ({})", first.text);
    switch (first.state) {
        case wire::CuptiState::kOn: {
            std::string out = fmt::format("CUPTI (API version {}{}) was listened to", first.version,
                                          first.text.empty() ? "" : ", " + first.text);
            if (last.state == wire::CuptiState::kEnded)
                return out + fmt::format(" until another client of it came: {}.", last.text);
            if (last.state == wire::CuptiState::kFinished) return out + " until the end.";
            return out + "; the process ended before it could be asked for its last records.";
        }
        case wire::CuptiState::kNoLibrary:
            return "CUPTI was not used: the process had no libcupti loaded, and none was to be brought in or "
                   "found.";
        case wire::CuptiState::kOthersUse:
            return fmt::format("CUPTI was not used: another client of it was there, or may come{}.", by);
        case wire::CuptiState::kRefused:
            return fmt::format("CUPTI was not used: it answered with error {}{}.", first.result, by);
        case wire::CuptiState::kUnknownVersion:
            return fmt::format("CUPTI was not used: the records of API version {} are not known here{}.",
                               first.version, by);
        case wire::CuptiState::kForked:
            return "CUPTI was not used: the process was forked from one that used it.";
        case wire::CuptiState::kEnded:
        case wire::CuptiState::kFinished:
            break;
    }
    return fmt::format("What became of CUPTI is not known (state {}).", static_cast<unsigned>(first.state));
}

}  // namespace fragscope::analysis
