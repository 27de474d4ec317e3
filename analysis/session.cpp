#include "analysis/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "analysis/charged.h"
#include "analysis/kinds.h"

namespace fragscope::analysis {

std::string device_uuid(const Trace& trace, ProcessIndex process, int ordinal) {
    const trace::Device* device = device_of(trace, process, ordinal);
    if (device == nullptr || device->uuid().size() != 16) return "";
    std::string out = "GPU";
    for (std::size_t i = 0; i < 16; ++i) {
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) out += '-';
        out += fmt::format("{:02x}", static_cast<unsigned char>(device->uuid()[i]));
    }
    return out;
}

const char* capacity_source(const Trace& trace) {
    return trace.session.has_provenance() ? "the imported file says so" : "cuDeviceTotalMem: it does not change";
}

const trace::Device* device_of(const Trace& trace, ProcessIndex process, int ordinal) {
    if (process.value >= trace.processes.size() || ordinal < 0) return nullptr;
    for (const trace::Device& device : trace.processes[process.value].devices()) {
        if (device.ordinal() == static_cast<std::uint32_t>(ordinal)) return &device;
    }
    return nullptr;
}

int ordinal_of(const Trace& trace, ProcessIndex process, const std::string& uuid) {
    if (uuid.empty() || process.value >= trace.processes.size()) return kNoDevice;
    for (const trace::Device& device : trace.processes[process.value].devices()) {
        const int ordinal = static_cast<int>(device.ordinal());
        if (device_uuid(trace, process, ordinal) == uuid) return ordinal;
    }
    return kNoDevice;
}

std::string process_in_words(const Trace& trace, ProcessIndex process) {
    if (process.value >= trace.processes.size()) return fmt::format("process {}", process.value);
    const trace::Process& p = trace.processes[process.value];
    const std::size_t slash = p.executable().rfind('/');
    const std::string name = slash == std::string::npos ? p.executable() : p.executable().substr(slash + 1);
    if (p.pid() == 0)
        return name.empty() ? fmt::format("process {}", process.value)
                            : fmt::format("process {} ({})", process.value, name);
    return name.empty() ? fmt::format("process {} (pid {})", process.value, p.pid())
                        : fmt::format("process {} (pid {}, {})", process.value, p.pid(), name);
}

std::map<int, std::uint64_t> pages_of(const Trace& trace, ProcessIndex process) {
    std::map<int, std::uint64_t> out;
    if (process.value >= trace.processes.size()) return out;
    for (const trace::Device& device : trace.processes[process.value].devices()) {
        // No device has pages beyond these; such a number is the file's fault, and the default page stands
        // in.
        const std::uint64_t page = device.minimum_granularity_bytes();
        if (page >= 4096 && page <= (std::uint64_t{1} << 30)) out[static_cast<int>(device.ordinal())] = page;
    }
    return out;
}

ProcessState state_of(const Trace& trace, ProcessIndex process) {
    const std::int64_t pid =
        process.value < trace.processes.size() ? trace.processes[process.value].pid() : 0;
    return ProcessState(pages_of(trace, process), pid);
}

SessionWalk::SessionWalk(const Trace& trace, Watcher watcher, std::size_t copies, Reader reader)
    : trace_(trace), neighbours_(trace) {
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        StateSeeker::Watcher told;
        if (watcher) {
            told = [watcher, process](const ProcessState& state, const Event& event) {
                watcher({process}, state, event);
            };
        }
        StateSeeker::Reader read;
        if (reader) read = [reader, process](std::span<const Event> events) { reader({process}, events); };
        own_.emplace_back(trace, ProcessIndex{process}, std::move(told), copies, StateSeeker::kShortest,
                          std::move(read));
    }
}

void SessionWalk::advance(const Failure& failure, const FailureSnapshot& snapshot) {
    current_ = failure.process.value;
    own_[current_].move_to(snapshot.moment);
}

const ProcessState& SessionWalk::at(ProcessIndex process, std::size_t index) {
    own_[process.value].move_to(index);
    return own_[process.value].state();
}

const Activity& SessionWalk::activity(ProcessIndex process) {
    const auto found = activities_.find(process);
    return found != activities_.end()
               ? found->second
               : activities_.emplace(process, activity_of(trace_, process)).first->second;
}

const ProcessState& SessionWalk::at_the_end(ProcessIndex process) {
    return at(process, trace_.events[process.value].size());
}

std::vector<OtherProcess> SessionWalk::others(const std::string& uuid, std::uint64_t from_ns,
                                              std::uint64_t to_ns) {
    return neighbours_.at({static_cast<std::uint32_t>(current_)}, uuid, from_ns, to_ns);
}

std::set<std::uint64_t> SessionWalk::imported() const {
    return neighbours_.imported({static_cast<std::uint32_t>(current_)});
}

std::set<std::uint64_t> Neighbours::imported(ProcessIndex self) const {
    std::set<std::uint64_t> out;
    for (std::uint32_t process = 0; process < cursors_.size(); ++process) {
        if (process == self.value || process >= trace_.processes.size()) continue;
        const trace::Process& p = trace_.processes[process];
        if (p.has_ended_ns() && p.ended_ns() <= cursors_[process].from_ns) continue;
        for (const auto& [address, foreign] : cursors_[process].state.foreign().addresses()) {
            if (foreign.kind == ForeignKind::kIpc && foreign.identity != 0) out.insert(foreign.identity);
        }
    }
    return out;
}

namespace {

// What is held if a call that is counted in it, and changed it from `before` to `after`, does not count yet.
Interval with_or_without(Interval held, const Interval& before, const Interval& after) {
    if (!held.low || !before.low || !after.low) {
        held.low.reset();
    } else if (*after.low > *before.low) {
        held.low = *held.low - std::min(*held.low, *after.low - *before.low);
    }
    if (!held.high || !before.high || !after.high) {
        held.high.reset();
    } else if (*before.high > *after.high) {
        held.high = *held.high + std::min(UINT64_MAX - *held.high, *before.high - *after.high);
    }
    return held;
}

}  // namespace

std::uint64_t Begins::operator()(std::size_t index) {
    if (index >= first_ && index - first_ < known_.size()) return known_[index - first_];
    const EventLog::Run run = events_->run(index, events_->size());
    first_ = index;
    known_.resize(run.events.size());
    std::uint64_t first = events_->earliest_acquired_ns(index + run.events.size());
    for (std::size_t i = known_.size(); i-- > 0;) {
        if (acquires(run.events[i].kind)) first = std::min(first, run.events[i].start.value);
        known_[i] = first;
    }
    return known_[index - first_];
}

Neighbours::Neighbours(const Trace& trace) : trace_(trace), absent_(trace.events.size()) {
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        std::vector<int> ordinals;
        if (process < trace.processes.size()) {
            for (const trace::Device& device : trace.processes[process].devices())
                ordinals.push_back(static_cast<int>(device.ordinal()));
        }
        cursors_.push_back(
            {state_of(trace, {process}), 0, std::move(ordinals), Begins(trace.events[process]), {}, 0});
    }
    find_checkpoints();
}

std::vector<Interval> Neighbours::books_of(const Cursor& cursor) {
    std::vector<Interval> out;
    for (const int ordinal : cursor.ordinals) out.push_back(charged_by_records(cursor.state, ordinal));
    return out;
}

void Neighbours::find_checkpoints() {
    for (std::uint32_t actor = 0; actor < trace_.events.size(); ++actor) {
        const Kinds checkpoints = kinds_of({wire::Kind::kCheckpoint});
        trace_.events[actor].for_each_of(checkpoints, [&](std::size_t, const Event& event) {
            if (event.failed()) return;
            for (std::uint32_t process = 0; process < trace_.processes.size() && process < absent_.size();
                 ++process) {
                // Of its own steps the state knows.
                if (process == actor || event.object.value == 0 ||
                    event.object.value != static_cast<std::uint64_t>(trace_.processes[process].pid()))
                    continue;
                std::vector<Absence>& absences = absent_[process];
                const bool open = !absences.empty() && absences.back().to_ns == UINT64_MAX;
                if (event.address.value == kCheckpointTaken && !open)
                    absences.push_back({event.start.value + event.duration_ns});
                if (event.address.value == kCheckpointRestored && open)
                    absences.back().to_ns = event.start.value;
            }
        });
    }
}

std::vector<OtherProcess> Neighbours::at(ProcessIndex self, const std::string& uuid, std::uint64_t from_ns,
                                         std::uint64_t to_ns) {
    std::vector<OtherProcess> out;
    for (std::uint32_t process = 0; process < cursors_.size(); ++process) {
        const int ordinal = ordinal_of(trace_, {process}, uuid);
        if (process == self.value || ordinal == kNoDevice) continue;
        Cursor& cursor = cursors_[process];
        const auto& events = trace_.events[process];
        const auto ended = [](const Event& e) { return e.start.value + e.duration_ns; };
        if (from_ns < cursor.from_ns) {
            cursor.state = state_of(trace_, {process});
            cursor.next = 0;
            cursor.under_way.clear();
        }
        cursor.from_ns = from_ns;
        std::erase_if(cursor.under_way, [from_ns](const Call& call) { return call.end_ns <= from_ns; });
        if (cursor.under_way.empty()) {
            for (; cursor.next < events.size() && ended(events[cursor.next]) <= from_ns; ++cursor.next)
                cursor.state.apply(events[cursor.next]);
        }
        // Calls that were under way, or came while the driver was asked: each of them may or may not count.
        std::vector<Interval> now = books_of(cursor);
        for (; cursor.next < events.size() &&
               (events[cursor.next].start.value <= to_ns || cursor.begins(cursor.next) <= to_ns);
             ++cursor.next) {
            const Event& event = events[cursor.next];
            cursor.state.apply(event);
            std::vector<Interval> after = books_of(cursor);
            if (after == now) continue;
            if (ended(event) > from_ns)
                cursor.under_way.push_back({event.start.value, ended(event), std::move(now), after});
            now = std::move(after);
        }
        const auto device = static_cast<std::size_t>(
            std::find(cursor.ordinals.begin(), cursor.ordinals.end(), ordinal) - cursor.ordinals.begin());
        auto later = cursor.under_way.end();
        while (later != cursor.under_way.begin() && std::prev(later)->start_ns > to_ns) --later;
        Interval charged = later == cursor.under_way.end() ? now[device] : later->before[device];
        for (auto call = cursor.under_way.begin(); call != later; ++call)
            charged = with_or_without(charged, call->before[device], call->after[device]);
        const trace::Process& p = trace_.processes[process];
        if (p.has_ended_ns() && p.ended_ns() <= from_ns) continue;  // the driver took everything back
        for (const Absence& absence : absent_[process]) {
            if (absence.from_ns > to_ns || absence.to_ns < from_ns) continue;
            charged.low = 0;
            if (absence.from_ns <= from_ns && absence.to_ns >= to_ns) charged.high = 0;
        }
        const bool uses = charged.low != std::optional<std::uint64_t>(0) || charged.high != charged.low;
        if (!uses) continue;
        const Losses losses = losses_of(trace_, {process});
        for (const Layer layer : {Layer::kBlocks, Layer::kHandles, Layer::kArrays, Layer::kPools}) {
            charged = weakened(charged,
                               with_contradictions(narrowed(losses, layer), cursor.state.contradictions()));
        }
        out.push_back({{process}, process_in_words(trace_, {process}), charged});
    }
    return out;
}

}  // namespace fragscope::analysis
