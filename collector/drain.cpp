#include "collector/drain.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstring>

#include "collector/environment.h"
#include "collector/utf8.h"
#include "proto/chunk.h"

namespace fragscope::collector {

namespace {

constexpr std::uint64_t kLivenessNs = 2'000'000;
constexpr std::uint32_t kThreadChecksARound = 4;
// So many threads of a process are named in the trace, each by at most so many bytes (the kernel's names have
// 15).
constexpr std::size_t kMaxThreadNames = 4096;
constexpr std::size_t kMaxThreadNameBytes = 64;
// Longer than any function's name; what is longer is a damaged program's rubbish.
constexpr std::size_t kMaxFunctionNameBytes = 256;
constexpr std::uint32_t kNoProcess = UINT32_MAX;
constexpr std::uint16_t kKnownFlags = wire::kByShim | wire::kCaptured | wire::kCaptureUnknown |
                                      wire::kContinued | wire::kUnknownDevice | wire::kNoContext |
                                      wire::kPerThreadStream | wire::kSnapshot | wire::kSample |
                                      wire::kDuringCapture;

bool is_plausible(const wire::Record& record) {
    if (record.kind == wire::Kind::kNone || record.kind > wire::kLastKind) return false;
    if ((record.flags & ~kKnownFlags) != 0) return false;
    return record.sequence != 0 || is_environment(record.kind);
}

std::uint64_t lost_of(const trace::Loss& loss) {
    return loss.acquisitions() + loss.releases() + loss.others() + loss.records_without_ring();
}

}  // namespace

void Drain::Losses::add(const wire::RingHeader& ring) {
    acquisitions += ring.lost_acquisitions.load(std::memory_order_relaxed);
    releases += ring.lost_releases.load(std::memory_order_relaxed);
    others += ring.lost_others.load(std::memory_order_relaxed);
    acquired_bytes += ring.lost_acquired_bytes.load(std::memory_order_relaxed);
}

Drain::Drain(RingHost& host, TraceWriter& writer, ClockPair session_start)
    : host_(host), writer_(writer), converter_(host.clock(), session_start), by_slot_(kProcessSlots) {
    rings_.reserve(kRings);
    for (std::uint32_t i = 0; i < kRings; ++i) {
        host_.ring(i).process = kNoProcess;
        rings_.push_back(
            {wire::RingReader(&host_.ring(i), host_.records(i), host_.ring_records()), {}, 0, false, 0, {}});
    }
    last_flush_ns_ = session_start.ns;
}

std::uint32_t Drain::processes_attached() const {
    return static_cast<std::uint32_t>(std::count_if(processes_.begin(), processes_.end(),
                                                    [](const Process& p) { return p.liveness != nullptr; }));
}

std::optional<std::uint32_t> Drain::process_called(std::int64_t pid_here, std::uint64_t start_time) const {
    for (std::size_t i = processes_.size(); i-- > 0;) {
        const trace::Process& info = processes_[i].info;
        if (pid_here != 0 && info.collector_pid_view() == pid_here && start_time != 0 && info.start_time() == start_time)
            return static_cast<std::uint32_t>(i);
    }
    return std::nullopt;
}

std::uint64_t Drain::records_lost() const {
    std::uint64_t lost = 0;
    for (const Process& p : processes_) lost += lost_of(p.loss);
    return lost;
}

std::uint64_t Drain::rings_damaged() const {
    std::uint64_t damaged = 0;
    for (const Process& p : processes_) damaged += p.rings_damaged;
    return damaged;
}

std::uint64_t Drain::records_refused() const {
    std::uint64_t refused = 0;
    for (const Process& p : processes_) refused += p.records_refused;
    return refused;
}

std::size_t Drain::poll() {
    const ClockPair now = read_clock_pair(host_.clock());
    converter_.add(now);
    // Who is dead is found out before the rings are drained: then nothing of theirs can come later.
    find_processes(now.ns);
    const std::size_t taken = drain_rings(now.ns);
    // Where many processes were found, that took a while: what was drained then is not of the future.
    if (taken != 0) converter_.add(read_clock_pair(host_.clock()));
    for (std::uint32_t i = 0; i < processes_.size(); ++i) {
        Process& process = processes_[i];
        if (process.liveness == nullptr) continue;
        if (process.dead && process.rings == 0)
            finish_process(i, process.replaced ? "exec" : "unknown");
        else
            release(i, now.ns, false);
    }
    if (now.ns - last_flush_ns_ >= kFlushNs) flush(now.ns);
    return taken;
}

void Drain::find_processes(std::uint64_t now_ns) {
    const bool check_liveness = now_ns - last_liveness_ns_ >= kLivenessNs;
    if (check_liveness) last_liveness_ns_ = now_ns;
    for (std::uint32_t slot = 0; slot < kProcessSlots; ++slot) {
        wire::ProcessSlot& shared = host_.process_slot(slot);
        const wire::SlotState state = shared.state.load(std::memory_order_acquire);
        if (state != wire::SlotState::kLive && state != wire::SlotState::kReleased) continue;
        if (!by_slot_[slot]) {
            if (processes_.size() < trace::kMaxProcesses) attach(slot, shared, state);
            continue;
        }
        Process& process = processes_[*by_slot_[slot]];
        if (!check_liveness || process.dead) continue;
        const Liveness::State liveness = process.liveness->state();
        // Where its end cannot be seen, its word has to do.
        process.dead = liveness == Liveness::State::kDead ||
                       (liveness == Liveness::State::kUnknown && state == wire::SlotState::kReleased);
    }
    if (check_liveness) free_dead_threads();
}

void Drain::attach(std::uint32_t slot, const wire::ProcessSlot& shared, wire::SlotState state) {
    const std::int32_t pid = shared.pid;
    const std::uint64_t start_time = shared.start_time;
    const std::uint64_t pid_namespace = shared.pid_namespace;
    // A process takes a new place when it becomes another program, and then gives the old one back. Which of two places
    // is the older one, their numbers do not tell.
    const bool replaced = state == wire::SlotState::kReleased;
    for (Process& other : processes_) {
        if (replaced || other.liveness == nullptr || other.info.pid() != pid || other.info.start_time() != start_time ||
            other.info.pid_namespace() != pid_namespace)
            continue;
        other.dead = other.replaced = true;  // the same process, with a new program in it
    }
    const auto index = static_cast<std::uint32_t>(processes_.size());
    Process& process = processes_.emplace_back();
    process.slot = slot;
    process.dead = process.replaced = replaced;
    process.liveness = std::make_unique<Liveness>(pid, start_time, pid_namespace);
    process.merge = std::make_unique<SequenceMerge>();
    process.names = std::make_unique<NameTable>();
    process.info.set_index(index);
    process.info.set_pid(pid);
    process.info.set_start_time(start_time);
    process.info.set_pid_namespace(pid_namespace);
    process.info.set_collector_pid_view(process.liveness->pid());
    if (process.liveness->pid() != 0) process.info.set_parent_pid(parent_of(process.liveness->pid()));
    process.loss.set_process(index);
    process.written_loss.set_process(index);
    by_slot_[slot] = index;
}

std::size_t Drain::drain_rings(std::uint64_t now_ns) {
    std::size_t taken = 0;
    for (std::uint32_t i = 0; i < kRings; ++i) {
        const wire::SlotState state = host_.ring(i).state.load(std::memory_order_acquire);
        if (state == wire::SlotState::kFree) continue;
        Ring& ring = rings_[i];
        if (!ring.process && (ring.damaged || !bind(i, state))) continue;
        Process& process = processes_[*ring.process];
        if (!ring.damaged && state != wire::SlotState::kClaimed) taken += drain_ring(ring, process, now_ns);
        if (state == wire::SlotState::kReleased || process.dead) free_ring(i);
    }
    return taken;
}

// Finds out whose ring it is. Its fields are read once: the owner may change them at any time.
bool Drain::bind(std::uint32_t index, wire::SlotState state) {
    const std::uint32_t slot = host_.ring(index).process;
    if (slot >= kProcessSlots || !by_slot_[slot]) return false;  // perhaps not filled in yet
    // Not all is filled in yet: the thread may be that of its last owner. The dead have no more to say.
    if (state == wire::SlotState::kClaimed && !processes_[*by_slot_[slot]].dead) return false;
    Ring& ring = rings_[index];
    ring.process = *by_slot_[slot];
    ring.thread = host_.ring(index).thread;
    ring.last_sequence = 0;
    ring.text = {};
    ++processes_[*ring.process].rings;
    return true;
}

std::size_t Drain::drain_ring(Ring& ring, Process& process, std::uint64_t now_ns) {
    const std::size_t taken = ring.reader.drain(
        host_.ring_records(), [&](const wire::Record& record) { take(record, ring, process, now_ns); });
    if (ring.reader.fault() != wire::RingReader::Fault::kNone) {
        ring.damaged = true;
        ++process.rings_damaged;
    }
    return taken;
}

void Drain::take_text(const Text& text, const Ring& ring, Process& process) {
    if (is_name(text.kind)) {
        trace::Names one;
        const NameTable::Took took = process.names->take(text, one);
        if (took == NameTable::Took::kNew) writer_.names(process.info.index(), one);
        if (took == NameTable::Took::kRefused) ++process.records_refused;
        return;
    }
    if (text.kind == wire::TextKind::kFunctionName) {
        std::string name = to_utf8(std::string_view(text.text).substr(0, kMaxFunctionNameBytes));
        process.functions[text.subject] = name;
        writer_.name_function(process.info.index(), text.subject, std::move(name));
        return;
    }
    if (text.kind == wire::TextKind::kThreadName) {
        if (process.threads_named.size() >= kMaxThreadNames ||
            !process.threads_named.insert(ring.thread).second)
            return;
        (*process.info.mutable_thread_names())[ring.thread] =
            to_utf8(std::string_view(text.text).substr(0, kMaxThreadNameBytes));
    } else {
        apply_text(text, process.info);
    }
    process.info_changed = true;
}

void Drain::take(const wire::Record& record, Ring& ring, Process& process, std::uint64_t now_ns) {
    if (record.kind == wire::Kind::kText) {
        wire::TextRecord part;
        std::memcpy(&part, &record, sizeof part);
        switch (ring.text.take(part)) {
            case TextAssembly::Took::kPart:
                break;
            case TextAssembly::Took::kRefused:
                ++process.records_refused;
                return;
            case TextAssembly::Took::kWhole:
                take_text(ring.text.text(), ring, process);
                break;
        }
        // A number that a text took is no gap.
        if (record.sequence != 0) process.merge->add(record, ring.thread, now_ns);
        return;
    }
    if (!is_plausible(record)) {
        ++process.records_refused;
        return;
    }
    if (is_environment(record.kind)) {
        apply_environment(record, function_name(process, record.function), process.info);
        process.info_changed = true;
        if (record.sequence != 0) process.merge->add(record, ring.thread, now_ns);
        return;
    }
    ring.last_sequence = record.sequence;
    process.merge->add(record, ring.thread, now_ns);
}

void Drain::free_ring(std::uint32_t index) {
    Ring& ring = rings_[index];
    Process& process = processes_[*ring.process];
    wire::RingHeader& shared = host_.ring(index);
    process.freed.add(shared);
    --process.rings;
    ring.process.reset();
    // What a damaged ring holds cannot be told from rubbish: it is not given to anybody again.
    if (ring.damaged) return;
    shared.lost_acquisitions.store(0, std::memory_order_relaxed);
    shared.lost_releases.store(0, std::memory_order_relaxed);
    shared.lost_others.store(0, std::memory_order_relaxed);
    shared.lost_acquired_bytes.store(0, std::memory_order_relaxed);
    shared.process = kNoProcess;
    shared.state.store(wire::SlotState::kFree, std::memory_order_release);
}

// Threads that ended without giving their ring back. Their last records came before they were gone, so what
// was drained after that was all. A few rings a round: it costs a system call each.
void Drain::free_dead_threads() {
    for (std::uint32_t i = 0; i < kThreadChecksARound; ++i) {
        const std::uint32_t index = next_thread_check_;
        next_thread_check_ = (next_thread_check_ + 1) % kRings;
        Ring& ring = rings_[index];
        if (!ring.process || ring.damaged) continue;
        Process& process = processes_[*ring.process];
        if (process.dead || process.liveness->may_have_thread(ring.thread)) continue;
        drain_ring(ring, process, last_liveness_ns_);
        if (!ring.damaged) free_ring(index);
    }
}

void Drain::release(std::uint32_t index, std::uint64_t now_ns, bool all) {
    processes_[index].merge->release(now_ns, all,
                                     [&](const SequenceMerge::Held& held) { emit(index, held); });
}

void Drain::emit(std::uint32_t index, const SequenceMerge::Held& held) {
    const wire::Record& record = held.record;
    if (record.kind == wire::Kind::kText || is_environment(record.kind)) return;
    Process& process = processes_[index];
    const std::optional<std::uint64_t> start = converter_.to_ns(record.start);
    if (!start) {
        ++process.records_refused;
        return;
    }
    if (!process.info.has_first_ns()) {
        process.info.set_first_ns(*start);
        process.info_changed = true;
    }
    if (record.result == 0) process.answered = true;
    EventRow row;
    row.sequence = record.sequence;
    row.start_ns = *start;
    row.duration_ns = converter_.duration_ns(std::uint64_t{record.duration} << wire::kDurationShift);
    row.address = record.address;
    row.bytes = record.bytes;
    row.object = record.object;
    row.extra = record.extra;
    row.thread = held.thread;
    row.stack = record.stack;
    row.function = record.function;
    row.result = record.result;
    row.flags = record.flags;
    if (record.duration == UINT32_MAX) row.flags |= wire::kDurationFull;
    row.kind = record.kind;
    row.device = record.device;
    writer_.event(index, row);
}

std::string Drain::function_name(const Process& process, std::uint16_t function) const {
    const auto found = process.functions.find(function);
    return found != process.functions.end() ? found->second : fmt::format("function {}", function);
}

void Drain::count_losses(Process& process) {
    Losses total = process.freed;
    for (std::uint32_t i = 0; i < kRings; ++i)
        if (rings_[i].process && *rings_[i].process == process.info.index()) total.add(host_.ring(i));
    trace::Loss& loss = process.loss;
    loss.set_acquisitions(total.acquisitions);
    loss.set_releases(total.releases);
    loss.set_others(total.others);
    loss.set_acquired_bytes(total.acquired_bytes);
    loss.set_rings_damaged(process.rings_damaged);
    loss.set_records_refused(process.records_refused);
    const wire::ProcessSlot& slot = host_.process_slot(process.slot);
    loss.set_records_without_ring(slot.records_without_ring.load(std::memory_order_relaxed));
    loss.set_threads_without_ring(slot.threads_without_ring.load(std::memory_order_relaxed));
    loss.set_kernel_launches(slot.launches.load(std::memory_order_relaxed));
    loss.set_opaque_writes(slot.opaque_writes.load(std::memory_order_relaxed));
    for (std::uint32_t kind = 1; kind <= static_cast<std::uint32_t>(wire::kLastKind); ++kind)
        if (const std::uint32_t lost = slot.lost_kinds[kind].load(std::memory_order_relaxed); lost != 0)
            (*loss.mutable_records_by_kind())[kind] = lost;
    process.info.set_lookups(slot.lookups.load(std::memory_order_relaxed));
    process.info.set_lookups_hooked(slot.lookups_hooked.load(std::memory_order_relaxed));
    process.info.set_lookups_unmatched(slot.lookups_unmatched.load(std::memory_order_relaxed));
}

// Writes what is new about a process, beside its events.
void Drain::write_state(Process& process) {
    const std::uint64_t lookups = process.info.lookups();
    count_losses(process);
    if (process.info_changed || process.info.lookups() != lookups) {
        writer_.process(process.info);
        process.info.clear_thread_names();  // readers gather them
    }
    process.info_changed = false;
    if (google::protobuf::util::MessageDifferencer::Equals(process.loss, process.written_loss)) return;
    writer_.loss(process.loss);
    process.written_loss = process.loss;
}

void Drain::flush(std::uint64_t now_ns) {
    last_flush_ns_ = now_ns;
    // A ring's last call may still have further records to come.
    std::vector<std::uint64_t> below(processes_.size(), UINT64_MAX);
    for (const Ring& ring : rings_)
        if (ring.process && ring.last_sequence != 0)
            below[*ring.process] = std::min(below[*ring.process], ring.last_sequence);
    for (std::uint32_t i = 0; i < processes_.size(); ++i) {
        Process& process = processes_[i];
        if (process.liveness == nullptr) continue;
        write_state(process);
        writer_.set_complete_below(i, std::min(below[i], process.merge->complete_below()));
        writer_.flush(i);
    }
}

// Nothing more comes of this process: its last events and state go to the file.
void Drain::end_process(std::uint32_t index, const std::string& how) {
    Process& process = processes_[index];
    if (process.info.ended_how().empty()) process.info.set_ended_how(how);
    count_losses(process);
    // Nothing was lost and no call succeeded: there is nothing that the driver could have said to it.
    if (!process.answered && lost_of(process.loss) == 0 && process.records_refused == 0 &&
        process.rings_damaged == 0)
        process.info.set_environment_complete(true);
    process.info_changed = true;
    write_state(process);
    writer_.forget(index);
}

void Drain::finish_process(std::uint32_t index, const std::string& how) {
    Process& process = processes_[index];
    release(index, last_flush_ns_, true);
    const wire::SlotState state = host_.process_slot(process.slot).state.load(std::memory_order_acquire);
    process.info.set_ended_ns(monotonic_ns());
    writer_.set_complete_below(index, process.merge->next());
    end_process(index, how == "unknown" && state == wire::SlotState::kReleased ? "detached" : how);
    process.liveness.reset();
    process.merge.reset();
    process.names.reset();
    process.functions.clear();
    process.threads_named.clear();
    by_slot_[process.slot].reset();

    wire::ProcessSlot& slot = host_.process_slot(process.slot);
    for (std::atomic<std::uint64_t>* counter :
         {&slot.launches, &slot.opaque_writes, &slot.threads_without_ring, &slot.records_without_ring,
          &slot.lookups, &slot.lookups_hooked, &slot.lookups_unmatched})
        counter->store(0, std::memory_order_relaxed);
    for (std::atomic<std::uint32_t>& counter : slot.lost_kinds) counter.store(0, std::memory_order_relaxed);
    slot.pid = 0;
    slot.start_time = 0;
    slot.state.store(wire::SlotState::kFree, std::memory_order_release);
}

void Drain::note_end(std::int64_t pid, const std::string& how) {
    // The latest of this number: earlier ones were replaced by it.
    for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) {
        if (process->info.collector_pid_view() != pid || process->replaced) continue;
        process->info.set_ended_how(how);
        if (process->liveness == nullptr)
            writer_.process(process->info);
        else
            process->info_changed = true;
        return;
    }
}

void Drain::finish() {
    const ClockPair now = read_clock_pair(host_.clock());
    converter_.add(now);
    last_liveness_ns_ = 0;
    find_processes(now.ns);
    drain_rings(now.ns);
    converter_.add(read_clock_pair(host_.clock()));
    for (std::uint32_t i = 0; i < processes_.size(); ++i) {
        Process& process = processes_[i];
        if (process.liveness == nullptr) continue;
        if (process.dead && process.rings == 0) {
            finish_process(i, process.replaced ? "exec" : "unknown");
            continue;
        }
        release(i, now.ns, true);
        end_process(i, "still running");
    }
}

}  // namespace fragscope::collector
