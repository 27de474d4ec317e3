#include "interpose/emit.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "interpose/state.h"

namespace fragscope::interpose {

constinit thread_local ThreadState thread_state;
constinit std::atomic<bool> name_sent[kNamedCount];
constinit std::atomic<void (*)(ThreadState&)> thread_ends{nullptr};

namespace {

constinit std::atomic<bool> key_made{false};
constinit std::atomic<std::uint32_t> key_phase{0};
constinit pthread_key_t exit_key = 0;

void leave_ring(ThreadState& thread) {
    thread.ring = {};
    thread.generation = kNone;
    thread.gate_when_idle = kNone;
    if (!thread.inside()) thread.gate = kNone;
}

// A thread ends: its ring is for others. Other destructors may still call the driver afterwards; a ring taken
// then comes back here, as pthread runs destructors again for keys that were set anew.
void give_back(void*) {
    ThreadState& thread = thread_state;
    if (thread.ring && thread.generation == generation())
        thread.ring.header()->state.store(wire::SlotState::kReleased, std::memory_order_release);
    leave_ring(thread);
    if (const auto more = thread_ends.load(std::memory_order_relaxed); more != nullptr) more(thread);
}

// One key for the process; a thread that comes while another makes it does without (its ring stays taken till
// the end of the process).
void watch_thread_end() {
    std::uint32_t untried = 0;
    if (key_phase.compare_exchange_strong(untried, 1) && pthread_key_create(&exit_key, give_back) == 0)
        key_made.store(true, std::memory_order_release);
    if (key_made.load(std::memory_order_acquire)) pthread_setspecific(exit_key, &thread_state);
}

bool claim_ring(ThreadState& thread) {
    const auto id = static_cast<std::int32_t>(syscall(SYS_gettid));
    for (std::uint32_t i = 0; i < session.ring_count; ++i) {
        wire::RingHeader& ring = session.rings[i];
        wire::SlotState free_slot = wire::SlotState::kFree;
        if (ring.state.load(std::memory_order_relaxed) != wire::SlotState::kFree ||
            !ring.state.compare_exchange_strong(free_slot, wire::SlotState::kClaimed,
                                                std::memory_order_acq_rel))
            continue;
        ring.process = session.process;
        ring.thread = id;
        auto* records = reinterpret_cast<wire::Record*>(
            session.base +
            wire::ring_records_offset(session.rings_offset, session.ring_count, session.ring_records, i));
        thread.ring = wire::RingWriter(&ring, records, session.ring_records);
        thread.generation = generation();
        thread.gate_when_idle = thread.generation;
#if defined(__x86_64__)
        if (!use_tsc.load(std::memory_order_relaxed)) thread.gate_when_idle = kNone;
#endif
        thread.gave_up_at = kNever;
        ring.state.store(wire::SlotState::kLive, std::memory_order_release);
        return true;
    }
    return false;
}

// As the kernel has it: what pthread_setname_np() gave, else the program's name.
void send_thread_name() {
    char text[16];
    if (prctl(PR_GET_NAME, text) == 0)
        emit_text(wire::TextKind::kThreadName, 0, text, strnlen(text, sizeof text));
}

// The thread's ring belongs to no attachment, or to the parent's: get one of this process. How often a thread
// that found none looks again: every 64 records.
bool take_ring(ThreadState& thread) {
    const int saved = errno;
    bool taken = false;
    if (attach()) {
        // Attaching has sent records of its own and thereby taken a ring.
        if (thread.generation == generation()) return true;
        leave_ring(thread);
        if (thread.refused % 64 == 0) taken = claim_ring(thread);
        if (taken) {
            thread.refused = 0;
            watch_thread_end();
            send_thread_name();
        } else {
            if (thread.refused++ == 0)
                session.slot->threads_without_ring.fetch_add(1, std::memory_order_relaxed);
            session.slot->records_without_ring.fetch_add(1, std::memory_order_relaxed);
        }
    }
    errno = saved;
    return taken;
}

void count_kind(wire::Kind kind) {
    session.slot->lost_kinds[static_cast<std::uint32_t>(kind)].fetch_add(1, std::memory_order_relaxed);
}

void count_lost(wire::RingHeader& ring, wire::Kind kind, std::uint16_t result, std::uint64_t bytes) {
    count_kind(kind);
    switch (kind) {
        case wire::Kind::kLinearAcquired:
        case wire::Kind::kPitchAcquired:
        case wire::Kind::kManagedAcquired:
        case wire::Kind::kHostAcquired:
        case wire::Kind::kHostRegistered:
        case wire::Kind::kHandleCreated:
        case wire::Kind::kPoolAcquired:
        case wire::Kind::kArrayCreated:
            if (result == 0) {
                ring.lost_acquisitions.fetch_add(1, std::memory_order_relaxed);
                ring.lost_acquired_bytes.fetch_add(bytes, std::memory_order_relaxed);
                return;
            }
            break;
        case wire::Kind::kReserved:
        case wire::Kind::kMapped:
        case wire::Kind::kHandleImported:
        case wire::Kind::kHandleRetained:
        case wire::Kind::kArrayMapped:
        case wire::Kind::kIpcOpened:
        case wire::Kind::kPoolPointerImported:
        case wire::Kind::kExternalMapped:
        case wire::Kind::kGraphAllocNode:
            if (result == 0) {
                ring.lost_acquisitions.fetch_add(1, std::memory_order_relaxed);
                return;
            }
            break;
        case wire::Kind::kLinearReleased:
        case wire::Kind::kHostReleased:
        case wire::Kind::kHostUnregistered:
        case wire::Kind::kReservationFreed:
        case wire::Kind::kHandleReleased:
        case wire::Kind::kUnmapped:
        case wire::Kind::kPoolReleased:
        case wire::Kind::kContextDestroyed:
        case wire::Kind::kPrimaryReset:
        case wire::Kind::kArrayReleased:
        case wire::Kind::kIpcClosed:
        case wire::Kind::kGraphFreeNode:
            ring.lost_releases.fetch_add(1, std::memory_order_relaxed);
            return;
        default:
            break;
    }
    ring.lost_others.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t monotonic_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_nsec);
}

// The ring is full. Waits for the collector once, at most wait_ns and only while it lives; then gives up
// without waiting until the collector has moved again.
wire::Record* wait_for_slot(ThreadState& thread) {
    wire::RingHeader& ring = *thread.ring.header();
    if (ring.tail.load(std::memory_order_relaxed) == thread.gave_up_at) return nullptr;
    const int saved = errno;
    wire::Record* slot = nullptr;
    if (collector_alive()) {
        const std::uint64_t deadline = monotonic_ns() + session.wait_ns;
        while (slot == nullptr && monotonic_ns() < deadline) {
            const timespec nap{0, 20'000};
            nanosleep(&nap, nullptr);
            slot = thread.ring.reserve();
        }
    }
    if (slot == nullptr) thread.gave_up_at = ring.tail.load(std::memory_order_relaxed);
    errno = saved;
    return slot;
}

// A slot of the thread's ring, or nullptr when there is none to be had; a loss is then counted by the caller.
inline wire::Record* reserve(ThreadState& thread) {
    wire::Record* slot = thread.ring.reserve();
    if (slot == nullptr) [[unlikely]]
        return wait_for_slot(thread);
    return slot;
}

inline bool has_ring(ThreadState& thread) {
    if (thread.generation == generation()) [[likely]]
        return true;
    return take_ring(thread);
}

void send_name(std::uint16_t function) {
    const char* text = kHookNames[function];
    if (emit_text(wire::TextKind::kFunctionName, function, text, strlen(text)))
        name_sent[function].store(true, std::memory_order_relaxed);
}

}  // namespace

wire::Record* open_record(std::uint16_t function, Kind kind, std::uint16_t result, std::uint64_t bytes) {
    ThreadState& thread = thread_state;
    if (!has_ring(thread)) [[unlikely]] {
        if (attached()) count_kind(kind);
        return nullptr;
    }
    if (!name_sent[function].load(std::memory_order_relaxed)) [[unlikely]]
        send_name(function);
    wire::Record* slot = reserve(thread);
    if (slot == nullptr) [[unlikely]]
        count_lost(*thread.ring.header(), kind, result, bytes);
    return slot;
}

void leave_out(Kind kind, std::uint64_t records) {
    ThreadState& thread = thread_state;
    if (records == 0 || !has_ring(thread)) return;
    session.slot->lost_kinds[static_cast<std::uint32_t>(kind)].fetch_add(static_cast<std::uint32_t>(records),
                                                                         std::memory_order_relaxed);
    thread.ring.header()->lost_others.fetch_add(records, std::memory_order_relaxed);
}

void emit(const wire::Record& record) {
    wire::Record* slot = open_record(record.function, record.kind, record.result, record.bytes);
    if (slot == nullptr) return;
    *slot = record;
    thread_state.ring.commit();
}

bool emit_text(wire::TextKind kind, std::uint16_t subject, const char* text, std::size_t bytes,
               std::uint32_t id) {
    ThreadState& thread = thread_state;
    if (bytes == 0 || !has_ring(thread)) return false;
    if (bytes > wire::kMaxTextBytes) bytes = wire::kMaxTextBytes;
    std::uint16_t part = 0;
    for (std::size_t at = 0; at < bytes; at += sizeof(wire::TextRecord::text), ++part) {
        wire::Record* slot = reserve(thread);
        if (slot == nullptr) {
            count_lost(*thread.ring.header(), wire::Kind::kText, 0, 0);
            return false;
        }
        wire::TextRecord record{};
        record.start = now();
        record.total_bytes = static_cast<std::uint32_t>(bytes);
        record.subject = subject;
        record.kind = wire::Kind::kText;
        record.text_kind = kind;
        record.part = part;
        record.id = id;
        const std::size_t left = bytes - at;
        record.part_bytes = static_cast<std::uint16_t>(left < sizeof record.text ? left : sizeof record.text);
        memcpy(record.text, text + at, record.part_bytes);
        record.sequence = next_sequence();
        memcpy(slot, &record, sizeof record);
        thread.ring.commit();
    }
    return true;
}

void count_untold() {
    if (!attached()) return;
    const ThreadState& thread = thread_state;
    if (thread.ring && thread.generation == generation())
        thread.ring.header()->lost_others.fetch_add(1, std::memory_order_relaxed);
    else
        session.slot->records_without_ring.fetch_add(1, std::memory_order_relaxed);
}

void forget_names() {
    for (std::atomic<bool>& sent : name_sent) sent.store(false, std::memory_order_relaxed);
}

}  // namespace fragscope::interpose
