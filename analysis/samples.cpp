#include "analysis/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "analysis/activity.h"
#include "analysis/charged.h"
#include "analysis/kinds.h"
#include "analysis/request.h"
#include "analysis/rest.h"
#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

// Calls of other threads that overlap with a question are looked for this many records around it.
constexpr std::size_t kNear = 512;

// What the books hold without pools and graphs, at most: what a call changes of it.
std::uint64_t held(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    return charged_linear(state, device).high.value_or(0) + totals.handles + totals.handles_maybe +
           totals.array_texels + totals.managed;
}

bool touches_pools(Kind kind) {
    switch (kind) {
        case Kind::kPoolAcquired:
        case Kind::kPoolReleased:
        case Kind::kLinearReleased:
        case Kind::kSynchronized:
        case Kind::kPoolTrimmed:
        case Kind::kPoolDestroyed:
        case Kind::kPoolAttributeSet:
        case Kind::kGraphLaunched:
        case Kind::kGraphMemoryTrimmed:
            return true;
        default:
            return false;
    }
}

struct Change {
    std::int32_t thread = 0;
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    int device = kNoDevice;
    std::uint64_t bytes = 0;  // more or less than before
};

// The driver's word on one device, inside a sample.
struct Question {
    Balance balance;
    std::uint64_t under_way = 0;  // bytes of calls of other threads that may or may not count
};

// The questions of one thread that belong together, until their end comes.
struct Group {
    std::vector<Question> devices;
    std::map<ObjectId, PoolWord> pools;
    std::map<int, GraphWord> graphs;
    bool pools_moved = false;  // by another thread, while they were asked
};

Quantity booked(const Interval& interval, const Losses& losses, const Scope& scope, const std::string& why) {
    const Interval wide = weakened(interval, losses);
    const std::string reason =
        losses.any() ? why + "; wider because records are missing, or were made before the recording began"
                     : why;
    return wide.exact() ? Quantity::derived(report::Quantity::charged, *wide.low, scope, reason)
                        : Quantity::bounded(report::Quantity::charged, wide, scope, reason);
}

}  // namespace

struct SampleRecorder::Work {
    const Trace& trace;
    ProcessIndex process;
    std::size_t kept;  // balances of one device beside the first, the last and the fullest
    Losses losses;
    const Activity& activity;
    std::map<std::int32_t, Group> groups;                  // by thread
    std::deque<Change> recent;                             // the last kNear records' changes
    std::deque<std::pair<std::size_t, Question>> waiting;  // ended samples that a later record may widen
    std::map<int, std::uint64_t> held_before;              // by device
    std::size_t index = 0;                                 // of the event that is looked at
    std::uint64_t changes_seen = 0;
    struct Line {
        std::optional<Balance> first, fullest, last;
        std::vector<Balance> kept;
        std::size_t stride = 1;
        std::size_t skipped = 0;
    };
    std::map<int, Line> lines;

    Work(const Trace& t, ProcessIndex p, const Activity& a, std::size_t k)
        : trace(t), process(p), kept(k), losses(losses_of(t, p)), activity(a) {}

    Losses lost(const ProcessState& state, Layer layer) const {
        return with_contradictions(narrowed(losses, layer), state.contradictions());
    }
    void note_change(const ProcessState& state, const Event& event);
    void ask_device(Group& group, const ProcessState& state, const Event& event);
    void end(Group& group, const ProcessState& state, const Event& event);
    Quantity pools_of(const Group& group, const ProcessState& state, const Question& question,
                      std::uint64_t not_asked) const;
    void keep(Balance balance);
    void settle(bool all);
};

// Books count an acquisition after its call and a release before it; the device does somewhere in between.
void SampleRecorder::Work::note_change(const ProcessState& state, const Event& event) {
    if (event.failed() || !(acquires(event.kind) || releases(event.kind))) return;
    const std::uint64_t end = event.start.value + event.duration_ns;
    for (const auto& [device, totals] : state.all_totals()) {
        const std::uint64_t now = held(state, device);
        std::uint64_t& before = held_before[device];
        const std::uint64_t difference = now > before ? now - before : before - now;
        const bool more = now > before;
        before = now;
        if (difference == 0) continue;
        if (!more) {
            recent.push_back({event.thread, event.start.value, end, device, difference});
            if (recent.size() > kNear) recent.pop_front();
            continue;
        }
        const auto widen = [&](Question& question, std::uint64_t asked_until) {
            if (question.balance.device == device && event.start.value < asked_until)
                question.under_way += std::min(difference, UINT64_MAX - question.under_way);
        };
        for (auto& [thread, group] : groups) {
            if (thread == event.thread) continue;
            for (Question& question : group.devices) widen(question, question.balance.to_ns);
        }
        for (auto& [ended, question] : waiting) widen(question, question.balance.to_ns);
    }
    if (!touches_pools(event.kind)) return;
    for (auto& [thread, group] : groups) {
        if (thread != event.thread && !group.devices.empty()) group.pools_moved = true;
    }
}

void SampleRecorder::Work::ask_device(Group& group, const ProcessState& state, const Event& event) {
    Question question;
    Balance& b = question.balance;
    b.process = process;
    b.device = event.device;
    const std::string uuid = device_uuid(trace, process, event.device);
    b.device_name = uuid.empty() ? fmt::format("device {}", event.device) : uuid;
    b.index = index;
    b.from_ns = event.start.value;
    b.to_ns = event.start.value + event.duration_ns;
    b.scope.process = process.value;
    b.scope.device = b.device_name;
    b.scope.domain = "physical";
    b.scope.snapshot = event.sequence.value;
    b.scope.time_ns = since_start(trace, event.start);
    b.device_free = event.address.value;
    b.capacity = event.bytes.value;
    const DeviceTotals& totals = state.totals(event.device);
    b.parts.push_back({"handles", "physical handles (cuMemCreate) of this process",
                       booked(charged_handles(state, event.device), lost(state, Layer::kHandles), b.scope,
                              "sizes of what a handle or a mapping keeps alive")});
    b.parts.push_back(
        {"linear", "linear, pitched and managed memory of this process (cuMemAlloc…)",
         booked(charged_linear(state, event.device) +
                    Interval{std::min(activity.resident_at(event.device, b.from_ns, b.to_ns), totals.managed),
                             totals.managed},
                lost(state, Layer::kBlocks), b.scope, "between what was requested and whole pages")});
    b.parts.push_back({"arrays", "arrays of this process",
                       booked(charged_arrays(state, event.device), lost(state, Layer::kArrays), b.scope,
                              "at least their texels")});
    for (ActivityPart& part : parts_of(activity, event.device, state.page(event.device), b.scope, b.from_ns, b.to_ns))
        b.parts.push_back({part.id, part.words, std::move(part.bytes)});
    for (const Change& change : recent) {
        if (change.device == event.device && change.thread != event.thread && change.end_ns > b.from_ns)
            question.under_way += std::min(change.bytes, UINT64_MAX - question.under_way);
    }
    b.may_hold = in_the_rest(state, event.device);
    for (std::string& what : in_the_rest(activity)) b.may_hold.push_back(std::move(what));
    group.devices.push_back(std::move(question));
}

Quantity SampleRecorder::Work::pools_of(const Group& group, const ProcessState& state,
                                        const Question& question, std::uint64_t not_asked) const {
    const Balance& b = question.balance;
    const bool one_device =
        process.value < trace.processes.size() && trace.processes[process.value].devices_size() == 1;
    Interval sum = Interval::exactly(0);
    bool all_said = true;
    for (const auto& [id, pool] : state.pools()) {
        if (!pool.on_device || pool.imported) continue;
        const auto word = group.pools.find(id);
        const bool said = word != group.pools.end() && word->second.reserved.has_value();
        int device = pool.device;
        if (device == kNoDevice && one_device) device = b.device;
        if (device != kNoDevice && device != b.device) continue;
        Interval one =
            said ? Interval::exactly(*word->second.reserved) : Interval{pool.live_bytes, std::nullopt};
        if (!said && pool.high_live_bytes == 0 && pool.live_count == 0 &&
            !narrowed(losses, Layer::kPools).any())
            one = Interval::exactly(0);
        if (device == kNoDevice) one.low = 0;
        all_said = all_said && one.exact();
        sum.low = (sum + one).low;
        sum.high = sum.high && one.high ? (sum + one).high : std::nullopt;
    }
    const char* why =
        all_said ? "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT of each pool, asked together with the device"
                 : "not every pool was asked: at least what its live blocks take";
    if (not_asked != 0) sum.high.reset();
    if (group.pools_moved) {
        sum = {0, std::nullopt};
        why = "another thread used pools while the driver was asked";
    }
    return sum.exact() ? Quantity::measured(report::Quantity::charged, *sum.low, b.scope, why)
                       : Quantity::bounded(report::Quantity::charged, sum, b.scope, why);
}

void SampleRecorder::Work::end(Group& group, const ProcessState& state, const Event& event) {
    for (Question& question : group.devices) {
        Balance& b = question.balance;
        b.parts.push_back({"pools", "stream-ordered pools of this process, with what they keep unused",
                           pools_of(group, state, question, event.bytes.value)});
        const auto graphs = group.graphs.find(b.device);
        Quantity held_by_graphs =
            Quantity::bounded(report::Quantity::charged, {0, std::nullopt}, b.scope,
                              "graphs may hold memory of their own, and the driver was not asked");
        if (graphs != group.graphs.end()) {
            held_by_graphs = Quantity::measured(report::Quantity::charged, graphs->second.reserved, b.scope,
                                                "CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT");
        } else if (!state.graphs().used() && !narrowed(losses, Layer::kGraphs).any()) {
            held_by_graphs = Quantity::derived(report::Quantity::charged, 0, b.scope,
                                               "no graph with an allocation in it was seen");
        }
        b.parts.push_back({"graphs", "what graphs of this process hold", held_by_graphs});
        waiting.emplace_back(index, std::move(question));
    }
    group = {};
}

// Samples that no later record can widen any more are complete.
void SampleRecorder::Work::settle(bool all) {
    while (!waiting.empty() && (all || waiting.front().first + kNear < index)) {
        Question question = std::move(waiting.front().second);
        waiting.pop_front();
        if (question.under_way != 0) {
            question.balance.parts.push_back(
                {"under_way", "calls of other threads that were under way: they may or may not count",
                 Quantity::bounded(report::Quantity::charged, {0, question.under_way}, question.balance.scope,
                                   "their calls overlap with the question")});
        }
        keep(std::move(question.balance));
    }
}

void SampleRecorder::Work::keep(Balance balance) {
    Line& line = lines[balance.device];
    if (!line.first) line.first = balance;
    if (!line.fullest || balance.taken() > line.fullest->taken()) line.fullest = balance;
    line.last = balance;
    if (++line.skipped < line.stride) return;
    line.skipped = 0;
    line.kept.push_back(std::move(balance));
    if (line.kept.size() / 2 < kept) return;
    for (std::size_t i = 0; i < kept; ++i) {
        if (i != 0) line.kept[i] = std::move(line.kept[2 * i]);
    }
    line.kept.resize(kept);
    line.stride *= 2;
}

SampleRecorder::SampleRecorder(const Trace& trace, ProcessIndex process, const Activity& activity,
                               std::size_t kept)
    : work_(std::make_unique<Work>(trace, process, activity, kept)) {}
SampleRecorder::~SampleRecorder() = default;
SampleRecorder::SampleRecorder(SampleRecorder&&) noexcept = default;

void SampleRecorder::add(const ProcessState& state, const Event& event) {
    Work& work = *work_;
    if (event.has(wire::kByShim) && event.has(wire::kSample)) {
        Group& group = work.groups[event.thread];
        if (event.kind == Kind::kSampleEnd) {
            work.end(group, state, event);
        } else if (!event.failed()) {
            if (event.kind == Kind::kDeviceMemory) work.ask_device(group, state, event);
            if (event.kind == Kind::kPoolState) group.pools[event.object].reserved = event.bytes.value;
            if (event.kind == Kind::kGraphMemory)
                group.graphs[event.device] = {event.address.value, event.bytes.value};
        }
    } else {
        // A sample whose end does not come next on its thread lost it: none of its numbers is used.
        if (!event.has(wire::kByShim)) work.groups.erase(event.thread);
        work.note_change(state, event);
    }
    work.settle(false);
    ++work.index;
}

std::vector<Balance> SampleRecorder::take() {
    work_->settle(true);
    std::vector<Balance> out;
    for (auto& [device, line] : work_->lines) {
        std::map<std::size_t, Balance> by_index;
        for (Balance& balance : line.kept) by_index.emplace(balance.index, std::move(balance));
        for (auto* each : {&line.first, &line.fullest, &line.last}) {
            if (*each) by_index.emplace((*each)->index, **each);
        }
        for (auto& [index, balance] : by_index) out.push_back(std::move(balance));
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Balance& a, const Balance& b) { return a.from_ns < b.from_ns; });
    return out;
}

void add_neighbours(const Trace& trace, std::vector<Balance>& balances) {
    std::vector<Balance*> by_time;
    for (Balance& balance : balances) {
        if (!device_uuid(trace, balance.process, balance.device).empty()) by_time.push_back(&balance);
    }
    if (by_time.empty()) return;
    std::stable_sort(by_time.begin(), by_time.end(),
                     [](const Balance* a, const Balance* b) { return a->from_ns < b->from_ns; });
    Neighbours neighbours(trace);
    for (Balance* balance : by_time) {
        for (const OtherProcess& other :
             neighbours.at(balance->process, balance->device_name, balance->from_ns, balance->to_ns)) {
            balance->parts.push_back(
                {"process", process_in_words(trace, other.process),
                 Quantity::bounded(report::Quantity::other_processes, other.charged, balance->scope,
                                   "from its own records, at that time by the clock")});
        }
    }
}

}  // namespace fragscope::analysis
