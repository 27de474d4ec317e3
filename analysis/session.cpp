#include "analysis/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/charged.h"

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

SessionWalk::SessionWalk(const Trace& trace, Watcher watcher) : trace_(trace), watcher_(std::move(watcher)) {
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        own_.push_back({ProcessState(pages_of(trace, {process})), 0});
        other_.push_back({ProcessState(pages_of(trace, {process})), 0});
    }
}

void SessionWalk::replay(ProcessIndex process, std::size_t end) {
    Cursor& cursor = own_[process.value];
    const auto& events = trace_.events[process.value];
    for (; cursor.next < std::min(end, events.size()); ++cursor.next) {
        cursor.state.apply(events[cursor.next]);
        if (watcher_) watcher_(process, cursor.state, events[cursor.next]);
    }
}

void SessionWalk::advance(const Failure& failure, const FailureSnapshot& snapshot) {
    current_ = failure.process.value;
    replay(failure.process, snapshot.moment);
}

const ProcessState& SessionWalk::at_the_end(ProcessIndex process) {
    replay(process, trace_.events[process.value].size());
    return own_[process.value].state;
}

std::vector<OtherProcess> SessionWalk::others(const std::string& uuid, std::uint64_t from_ns,
                                              std::uint64_t to_ns) {
    std::vector<OtherProcess> out;
    for (std::uint32_t process = 0; process < other_.size(); ++process) {
        const int ordinal = ordinal_of(trace_, {process}, uuid);
        if (process == current_ || ordinal == kNoDevice) continue;
        Cursor& cursor = other_[process];
        const auto& events = trace_.events[process];
        const auto ended = [](const Event& e) { return e.start.value + e.duration_ns; };
        for (; cursor.next < events.size() && ended(events[cursor.next]) <= from_ns; ++cursor.next) {
            cursor.state.apply(events[cursor.next]);
        }
        Interval charged = charged_by_records(cursor.state, ordinal);
        // Calls that were under way, or came while the failure was: each of them may or may not count.
        for (; cursor.next < events.size() && events[cursor.next].start.value <= to_ns; ++cursor.next) {
            cursor.state.apply(events[cursor.next]);
            const Interval now = charged_quickly(cursor.state, ordinal);
            charged.low =
                charged.low && now.low ? std::optional(std::min(*charged.low, *now.low)) : std::nullopt;
            charged.high =
                charged.high && now.high ? std::optional(std::max(*charged.high, *now.high)) : std::nullopt;
        }
        const trace::Process& p = trace_.processes[process];
        if (p.has_ended_ns() && p.ended_ns() <= from_ns) continue;  // the driver took everything back
        const bool uses = charged.low != std::optional<std::uint64_t>(0) || charged.high != charged.low;
        const Losses losses =
            with_contradictions(losses_of(trace_, {process}), cursor.state.contradictions());
        if (uses) out.push_back({{process}, weakened(charged, losses)});
    }
    return out;
}

}  // namespace fragscope::analysis
