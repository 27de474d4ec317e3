#include "analysis/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "analysis/kinds.h"
#include "analysis/losses.h"
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

bool earlier(const Told& a, const Told& b) { return a.from < b.from; }

// All that is told of one address, in order of time.
struct AtAddress {
    std::vector<Told> calls, releases, records, record_releases;

    void sort() {
        for (auto* each : {&calls, &releases, &records, &record_releases})
            std::stable_sort(each->begin(), each->end(), earlier);
    }
};

std::uint64_t apart(const Told& call, const Told& record) {
    if (record.from < call.from) return call.from - record.from;
    return record.from > call.to ? record.from - call.to : 0;
}

// Pairs records with calls, the nearest first; a record is looked for among the calls next to it in time.
// Both are in order of time.
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

// The first of the list, which is in order of time, that began then or later.
std::optional<std::uint64_t> next_after(const std::vector<Told>& list, std::uint64_t time) {
    const auto found = std::lower_bound(list.begin(), list.end(), time,
                                        [](const Told& each, std::uint64_t t) { return each.from < t; });
    return found == list.end() ? std::nullopt : std::optional(found->from);
}

// Whether a record of the kinds may be among those that the recorder lost.
template <typename Chosen>
bool may_lack_any(const Losses& losses, Chosen chosen) {
    for (unsigned kind = 0; kind <= static_cast<unsigned>(wire::kLastKind); ++kind) {
        if (chosen(static_cast<Kind>(kind)) && may_lack(losses, static_cast<Kind>(kind))) return true;
    }
    return false;
}

// Without it more was taken, or less is left, than CUPTI's other records say.
bool weighs(Kind kind) {
    return kind == Kind::kActivityAcquired || kind == Kind::kActivityReleased ||
           kind == Kind::kActivityUnified || kind == Kind::kActivityLost || kind == Kind::kActivityState;
}

class Merge {
  public:
    Merge(const Trace& trace, ProcessIndex process)
        : events_(trace.events[process.value]),
          losses_(losses_of(trace, process)),
          names_(process.value < trace.names.size() ? &trace.names[process.value] : nullptr) {}

    Activity result();

  private:
    void read_states();
    void sort();
    void sort_record(std::size_t i, const Event& event);
    void merge_arrays();
    void merge_address(AtAddress& at);
    void merge_releases(AtAddress& at);
    void add_unseen();
    void add_block(const Event& event, std::size_t index);
    void add_static(const Told& record, const AtAddress& at);
    void follow_managed();
    std::vector<bool> inside_known() const;
    TimeNs held_to(std::uint64_t from, std::uint64_t to) const;
    bool context_ended_at(std::uint64_t time) const;
    std::string text(std::uint64_t id) const;
    std::optional<Event> place_of(std::size_t record) const;

    const EventLog& events_;
    std::unordered_map<std::size_t, Event> records_;  // CUPTI's, by index: they are looked up in any order
    const Losses losses_;
    const ProcessNames* names_;
    Activity out_;
    std::unordered_map<std::uint64_t, AtAddress> addresses_;
    AtAddress arrays_;  // those that calls made have no address here
    // What CUPTI says of arrays, by its address.
    std::unordered_map<std::uint64_t, AtAddress> array_records_;
    std::vector<Told> context_ends_;                 // in order of time
    std::vector<std::uint64_t> context_ended_last_;  // the latest `to` of it and those before it
    std::vector<std::size_t> unpaired_;  // acquisitions that CUPTI tells, by index, in order of time
};

std::string Merge::text(std::uint64_t id) const {
    if (names_ == nullptr || id == 0 || id > UINT32_MAX) return "";
    const auto found = names_->texts.find(static_cast<std::uint32_t>(id));
    return found == names_->texts.end() ? "" : found->second;
}

// The record of where the operation came from follows the operation's at once, with its number.
std::optional<Event> Merge::place_of(std::size_t record) const {
    for (const std::size_t i : {record + 1, record + 2}) {
        const auto place = records_.find(i);
        if (place != records_.end() && place->second.kind == Kind::kActivityPlace &&
            place->second.sequence == records_.at(record).sequence)
            return place->second;
    }
    return std::nullopt;
}

void Merge::read_states() {
    for (const Event& event : events_) {
        if (event.kind == Kind::kActivityLost) out_.dropped += event.bytes.value;
        if (event.kind != Kind::kActivityState) continue;
        const auto state = static_cast<wire::CuptiState>(event.address.value);
        out_.states.push_back({event.start, state, event.bytes.value, event.object.value, text(event.extra)});
        if (state == wire::CuptiState::kOn) {
            out_.records_missing = out_.used;  // between the two times nothing was told
            out_.used = true;
            out_.from = event.start;
            out_.to = event.start;
        } else if (out_.used) {
            out_.to = event.start;
        }
    }
    if (!out_.used) return;
    out_.records_missing = out_.records_missing || out_.dropped != 0 || may_lack_any(losses_, weighs);
    out_.acquisitions_lost = may_lack_any(losses_, told_by_cupti);
    out_.releases_lost = may_lack_any(losses_, gives_back);
    // Without an end that was told, up to the last record: what came after it may not have been handed over.
    if (out_.states.back().state != wire::CuptiState::kOn) return;
    for (const Event& event : events_) {
        if (event.kind == Kind::kActivityAcquired || event.kind == Kind::kActivityReleased)
            out_.to = std::max(out_.to, event.start);
    }
}

void Merge::sort_record(std::size_t i, const Event& event) {
    const Told told{i, event.start.value, event.start.value, event.bytes.value, event.bytes.value, false};
    const bool release = event.kind == Kind::kActivityReleased;
    if (wire::activity_kind(event.object.value) == kArrayMemory) {
        (release ? arrays_.record_releases : arrays_.records).push_back(told);
        AtAddress& at = array_records_[event.address.value];
        (release ? at.record_releases : at.records).push_back(told);
    } else {
        AtAddress& at = addresses_[event.address.value];
        (release ? at.record_releases : at.records).push_back(told);
    }
}

void Merge::sort() {
    for (std::size_t i = 0; i < events_.size(); ++i) {
        const Event& event = events_[i];
        if (event.kind == Kind::kActivityAcquired || event.kind == Kind::kActivityReleased) {
            sort_record(i, event);
            records_.emplace(i, event);
            continue;
        }
        if (event.kind == Kind::kActivityPlace) records_.emplace(i, event);
        if (event.failed() || event.has(wire::kByShim) || event.has(wire::kCaptured) ||
            event.has(wire::kContinued))
            continue;
        const std::uint64_t from = event.start.value, to = from + event.duration_ns;
        if (event.kind == Kind::kHandleCreated && from >= out_.from.value && to <= out_.to.value)
            ++out_.expected_only_calls;
        if (ends_context(event.kind)) context_ends_.push_back({i, from, to, 0, 0, false});
        if (!told_by_cupti(event.kind) && !gives_back(event.kind)) continue;
        const bool array = event.kind == Kind::kArrayCreated || event.kind == Kind::kArrayReleased;
        AtAddress& at = array ? arrays_ : addresses_[event.address.value];
        const std::uint64_t granted = event.kind == Kind::kPitchAcquired ? event.extra : event.bytes.value;
        if (told_by_cupti(event.kind)) at.calls.push_back({i, from, to, event.bytes.value, granted, false});
        if (gives_back(event.kind)) at.releases.push_back({i, from, to, 0, 0, false});
    }
    for (auto* list : {&addresses_, &array_records_}) {
        for (auto& [address, at] : *list) at.sort();
    }
    arrays_.sort();
    std::stable_sort(context_ends_.begin(), context_ends_.end(), earlier);
    for (const Told& end : context_ends_)
        context_ended_last_.push_back(
            std::max(end.to, context_ended_last_.empty() ? 0 : context_ended_last_.back()));
}

// Of each of `unpaired_` whether calls held memory there at that time: then it is known, whatever CUPTI calls
// it (an address inside a pool's or a segment's block, say).
std::vector<bool> Merge::inside_known() const {
    struct Step {
        std::uint64_t time;
        bool held;  // from then on, or not any more
        Range range;
    };
    std::vector<Step> steps;
    for (const auto& [address, at] : addresses_) {
        for (const Told& call : at.calls) {
            const Range range = range_of(address, std::max(call.bytes, call.other_bytes));
            const std::uint64_t gone = next_after(at.releases, call.to).value_or(UINT64_MAX);
            if (gone <= call.from) continue;
            steps.push_back({call.from, true, range});
            steps.push_back({gone, false, range});
        }
    }
    std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
        return std::tie(a.time, a.held, a.range.begin) < std::tie(b.time, b.held, b.range.begin);
    });
    ExtentSet held;
    std::vector<bool> out;
    auto step = steps.begin();
    for (const std::size_t index : unpaired_) {
        const Event& record = records_.at(index);
        for (; step != steps.end() && step->time <= record.start.value; ++step) {
            if (step->held) {
                held.add(step->range);
            } else {
                held.remove(step->range);
            }
        }
        out.push_back(held.overlap(range_of(record.address.value,
                                            std::max<std::uint64_t>(record.bytes.value, 1))) != 0);
    }
    return out;
}

bool Merge::context_ended_at(std::uint64_t time) const {
    const std::uint64_t latest = time > UINT64_MAX - kApartNs ? UINT64_MAX : time + kApartNs;
    const auto after = std::upper_bound(context_ends_.begin(), context_ends_.end(), latest,
                                        [](std::uint64_t t, const Told& end) { return t < end.from; });
    if (after == context_ends_.begin()) return false;
    const std::uint64_t last =
        context_ended_last_[static_cast<std::size_t>(after - context_ends_.begin()) - 1];
    return last >= time || time - last <= kApartNs;
}

// Of what was taken at `from` and, as far as was told, released at `to`. What a context owns goes with it,
// and which one it was is not known.
TimeNs Merge::held_to(std::uint64_t from, std::uint64_t to) const {
    if (out_.records_missing) return {};
    return TimeNs{std::min({to, out_.to.value, next_after(context_ends_, from).value_or(UINT64_MAX)})};
}

void Merge::add_unseen() {
    std::stable_sort(unpaired_.begin(), unpaired_.end(),
                     [&](std::size_t a, std::size_t b) { return records_.at(a).start < records_.at(b).start; });
    const std::vector<bool> known = inside_known();
    for (std::size_t i = 0; i < unpaired_.size(); ++i) {
        if (known[i]) {
            ++out_.matched;
        } else {
            add_block(records_.at(unpaired_[i]), unpaired_[i]);
        }
    }
}

void Merge::add_block(const Event& event, std::size_t index) {
    UnseenBlock block;
    block.address = event.address;
    block.bytes = event.bytes.value;
    block.device = event.device;
    block.memory_kind = wire::activity_kind(event.object.value);
    block.pooled = wire::activity_async(event.object.value) || event.extra != 0;
    block.from = event.start;
    // Freed as CUPTI says, or by a call that was seen; calls do not show which array they release.
    const bool array = block.memory_kind == kArrayMemory;
    const AtAddress& at = (array ? array_records_ : addresses_)[event.address.value];
    const std::uint64_t from = event.start.value;
    const auto told = next_after(at.record_releases, from), called = next_after(at.releases, from);
    block.to = TimeNs{std::min(told.value_or(UINT64_MAX), called.value_or(UINT64_MAX))};
    if (!out_.acquisitions_lost) {
        // Where something else was taken there it was gone, and nobody told of that.
        const auto again = from == UINT64_MAX ? std::nullopt : next_after(at.records, from + 1);
        const auto called_again = from == UINT64_MAX ? std::nullopt : next_after(at.calls, from + 1);
        block.held_to = held_to(
            from, std::min({block.to.value, again.value_or(UINT64_MAX), called_again.value_or(UINT64_MAX)}));
    }
    if (const std::optional<Event> place = place_of(index)) block.file = text(place->extra);
    out_.unseen.push_back(std::move(block));
}

void Merge::add_static(const Told& record, const AtAddress& at) {
    const Event& event = records_.at(record.index);
    StaticVariable variable;
    variable.address = event.address;
    variable.bytes = event.bytes.value;
    variable.device = event.device;
    variable.managed = wire::activity_kind(event.object.value) == kManagedStatic;
    variable.from = event.start;
    variable.to = TimeNs{next_after(at.record_releases, record.from).value_or(UINT64_MAX)};
    variable.held_to = held_to(variable.from.value, variable.to.value);
    if (const std::optional<Event> place = place_of(record.index)) variable.name = text(place->object.value);
    out_.statics.push_back(std::move(variable));
}

void Merge::merge_address(AtAddress& at) {
    const auto is_static = [&](const Told& record) {
        const std::uint32_t kind = wire::activity_kind(records_.at(record.index).object.value);
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
        if (!record.taken) unpaired_.push_back(record.index);
    }
    for (const Told& call : at.calls) {
        if (!call.taken && call.from >= out_.from.value && call.to <= out_.to.value) ++out_.only_calls;
    }
    std::erase_if(at.record_releases, is_static);
    merge_releases(at);
}

void Merge::merge_releases(AtAddress& at) {
    out_.matched += pairs_of(at.releases, at.record_releases).size();
    std::vector<Told> only_told;
    std::copy_if(at.records.begin(), at.records.end(), std::back_inserter(only_told),
                 [](const Told& record) { return !record.taken; });
    for (const Told& release : at.record_releases) {
        if (release.taken || context_ended_at(release.from)) continue;
        // Of memory that a call took before, and no call has given back since: the last one before it.
        const auto after = std::upper_bound(at.calls.begin(), at.calls.end(), release, earlier);
        if (after == at.calls.begin()) continue;
        const Told& last = *std::prev(after);
        const auto gone = next_after(at.releases, last.to);
        if (gone && *gone <= release.from) continue;
        const auto in_between = next_after(only_told, last.from);
        if (in_between && *in_between <= release.from) continue;
        ++out_.released_unseen;
        out_.released_unseen_bytes += last.other_bytes;
    }
}

void Merge::merge_arrays() {
    out_.matched += pairs_of(arrays_.calls, arrays_.records).size();
    for (const Told& record : arrays_.records) {
        if (!record.taken) unpaired_.push_back(record.index);
    }
    for (const Told& call : arrays_.calls) {
        if (!call.taken && call.from >= out_.from.value && call.to <= out_.to.value) ++out_.only_calls;
    }
    out_.matched += pairs_of(arrays_.releases, arrays_.record_releases).size();
}

// Managed pages go where counters say that their bytes went; a release takes them away. Records that are
// missing may be the ones that say that pages left.
void Merge::follow_managed() {
    std::vector<Event> steps;
    for (const Event& event : events_) {
        const std::uint32_t kind = wire::activity_kind(event.object.value);
        const bool record = event.kind == Kind::kActivityAcquired || event.kind == Kind::kActivityReleased;
        const bool moves = event.kind == Kind::kActivityUnified &&
                           (kind == kToDevice || kind == kToHost || kind == kBetweenDevices);
        const bool discards = event.kind == Kind::kAdvised && !event.failed() &&
                              (wire::advice_of(event.extra) == wire::Advice::kDiscard ||
                               wire::advice_of(event.extra) == wire::Advice::kDiscardAndPrefetch);
        if (moves || discards || (record && kind == kManagedMemory)) steps.push_back(event);
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Event& a, const Event& b) { return a.start < b.start; });
    std::map<int, ExtentSet> there;
    std::map<int, std::uint64_t> before;
    for (const Event& event : steps) {
        const std::uint64_t begin = event.address.value;
        const std::uint64_t end = begin + std::min(event.bytes.value, UINT64_MAX - begin);
        if (event.kind == Kind::kActivityAcquired || begin == end) continue;
        for (auto& [device, extents] : there) extents.remove({begin, end});
        const std::uint32_t kind = wire::activity_kind(event.object.value);
        if (event.kind == Kind::kActivityUnified && kind != kToHost && event.device != kNoDevice)
            there[event.device].add({begin, end});
        for (const auto& [device, extents] : there) {
            const std::uint64_t bytes = out_.records_missing ? 0 : extents.sum();
            if (bytes == before[device]) continue;
            before[device] = bytes;
            out_.residency.push_back({event.start, device, bytes});
        }
    }
}

Activity Merge::result() {
    read_states();
    if (!out_.used) return std::move(out_);
    sort();
    for (auto& [address, at] : addresses_) merge_address(at);
    merge_arrays();
    add_unseen();
    follow_managed();
    const auto by_time = [](const auto& a, const auto& b) {
        return std::tie(a.from, a.address) < std::tie(b.from, b.address);
    };
    std::sort(out_.unseen.begin(), out_.unseen.end(), by_time);
    std::sort(out_.statics.begin(), out_.statics.end(), by_time);
    return std::move(out_);
}

// What there is of things at one moment: certainly, perhaps, or not.
class AtMoment {
  public:
    AtMoment(std::uint64_t from_ns, std::uint64_t to_ns) : from_ns_(from_ns), to_ns_(to_ns) {}

    template <typename Thing>
    void add(const Thing& thing, Interval bytes) {
        if (thing.from.value > to_ns_ || thing.to.value < from_ns_) return;
        if (thing.from.value > from_ns_ || thing.held_to.value < to_ns_) bytes.low = 0;
        sum_.low = (sum_ + bytes).low;
        sum_.high = sum_.high && bytes.high ? (sum_ + bytes).high : std::nullopt;
    }
    // If records are missing there may be more of what there is some of.
    Interval sum(bool records_missing) const {
        return {sum_.low, records_missing && sum_.high != 0 ? std::nullopt : sum_.high};
    }

  private:
    std::uint64_t from_ns_, to_ns_;
    Interval sum_ = Interval::exactly(0);
};

}  // namespace

Interval Activity::unseen_at(int device, std::uint64_t page, std::uint64_t from_ns,
                             std::uint64_t to_ns) const {
    AtMoment moment(from_ns, to_ns);
    for (const UnseenBlock& block : unseen) {
        if (block.device != device || block.pooled) continue;
        // Host memory takes nothing of the device; managed memory may be anywhere.
        const std::uint64_t pages =
            page == 0 ? block.bytes : (block.bytes / page + (block.bytes % page != 0 ? 1 : 0)) * page;
        if (block.memory_kind == kDeviceMemory) moment.add(block, {block.bytes, pages});
        if (block.memory_kind == kManagedMemory) moment.add(block, {0, pages});
        if (block.memory_kind == kArrayMemory) moment.add(block, {block.bytes, std::nullopt});
    }
    return moment.sum(records_missing);
}

Interval Activity::statics_at(int device, std::uint64_t from_ns, std::uint64_t to_ns) const {
    AtMoment moment(from_ns, to_ns);
    for (const StaticVariable& variable : statics) {
        if (variable.device == device)
            moment.add(variable, {variable.managed ? 0 : variable.bytes, variable.bytes});
    }
    return moment.sum(records_missing);
}

std::uint64_t Activity::resident_at(int device, std::uint64_t from_ns, std::uint64_t to_ns) const {
    if (to_ns > to.value) return 0;
    std::uint64_t bytes = 0;
    for (const ResidencyStep& step : residency) {
        if (step.device != device || step.time.value > to_ns) continue;
        bytes = step.time.value <= from_ns ? step.bytes : std::min(bytes, step.bytes);
    }
    return bytes;
}

std::vector<ActivityPart> parts_of(const Activity& activity, int device, std::uint64_t page,
                                   const Scope& scope, std::uint64_t from_ns, std::uint64_t to_ns) {
    std::string wider;
    if (activity.records_missing) wider += "; wider because some of CUPTI's records may be missing";
    if (to_ns > activity.to.value) wider += "; at least nothing, as CUPTI told of no time so late";
    std::vector<ActivityPart> out;
    const auto add = [&](const char* id, const char* words, const Interval& bytes, const std::string& why) {
        if (bytes == Interval::exactly(0)) return;
        out.push_back({id, words,
                       bytes.exact() ? Quantity::measured(report::Quantity::charged, *bytes.low, scope, why)
                                     : Quantity::bounded(report::Quantity::charged, bytes, scope, why)});
    };
    const std::string unseen =
        "by CUPTI's records of what no intercepted call took: their sizes, up to whole pages";
    if (activity.acquisitions_lost) {
        add("unseen", "memory that this process took past the recording, or by calls whose records were lost",
            activity.unseen_at(device, page, from_ns, to_ns),
            unseen + "; at least nothing, as the lost records may be of it" + wider);
    } else {
        add("unseen", "memory that this process took past the recording, seen by CUPTI only",
            activity.unseen_at(device, page, from_ns, to_ns), unseen + wider);
    }
    add("statics", "variables of this process's device code", activity.statics_at(device, from_ns, to_ns),
        "their sizes, as CUPTI states them" + wider);
    return out;
}

std::vector<std::string> in_the_rest(const Activity& activity) {
    std::vector<std::string> out;
    if (!activity.used) return out;
    out.emplace_back("what CUPTI, which the recording switched on, takes for itself");
    if (activity.records_missing)
        out.emplace_back(
            "memory that this process took past the recording, and of which CUPTI's records are missing");
    return out;
}

Activity activity_of(const Trace& trace, ProcessIndex process) {
    if (process.value >= trace.events.size()) return {};
    const auto& events = trace.events[process.value];
    return events.holds(kinds_of({Kind::kActivityState})) ? Merge(trace, process).result() : Activity{};
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
