#include "interpose/waits.h"

#include "interpose/modules.h"
#include "interpose/unwind.h"

namespace fragscope::interpose {

constinit std::atomic<bool> blocks_reported{false};
constinit std::atomic<std::uint32_t> events_awaited{0};

namespace {

// The library that reports; the last one, should there be several.
constinit std::atomic<std::uintptr_t> reporter_begin{0}, reporter_end{0};

bool in_reporter(std::uintptr_t address) {
    return address >= reporter_begin.load(std::memory_order_relaxed) &&
           address < reporter_end.load(std::memory_order_relaxed);
}

// One call of a function: where its code begins, and its frame's canonical address. While it lasts there is
// no other with the same two on its thread.
struct Activation {
    std::uintptr_t function = 0, frame = 0;
    bool operator==(const Activation&) const = default;
};

// The activation at the place where the walk stands, which thereby goes on to its caller. False: it cannot be
// told.
bool take_activation(Walk& walk, Activation& out) {
    if (walk.module() == 0) return false;
    out.function = function_begin(module(walk.module()).tables, walk.pc() - 1);
    walk.up();
    out.frame = walk.sp();
    return out.function != 0 && !walk.lost();
}

constexpr std::uint32_t kMostActivations = 12;  // of the reporting library, in one unbroken run
constexpr std::uint32_t kMostBetween = 12;      // of the runtime, between that library and the driver

// Those that the event record is made from. None: somebody else records it.
std::uint32_t find_activations(const void* caller, Activation* out) {
    Walk walk(__builtin_frame_address(0));
    if (!walk.to(caller)) return 0;
    for (std::uint32_t i = 0; i < kMostBetween && !in_reporter(walk.pc() - 1); ++i) {
        const bool between =
            walk.module() != 0 && (module(walk.module()).runtime || module(walk.module()).go_between);
        if (!between || !walk.up() || !walk.locate()) return 0;
    }
    std::uint32_t count = 0;
    while (count < kMostActivations && in_reporter(walk.pc() - 1)) {
        if (!take_activation(walk, out[count])) break;
        ++count;
        if (!walk.locate()) break;
    }
    return count;
}

// ------------------------------------------------------------------------------------------------------------
// desks

// What a thread has recorded and not yet reported. An allocator holds a lock of its device meanwhile, so that
// few threads need one at a time.
struct Desk {
    static constexpr std::uint32_t kMostEvents = 32;  // streams that one block was used on
    struct Recorded {
        std::uint64_t event = 0, stream = 0;
        std::uint16_t flags = 0;
    };
    HookId function = HookId::kCount;
    std::uint32_t activation_count = 0, event_count = 0;
    std::uint32_t left_out = 0;  // events beyond
    Activation activations[kMostActivations];
    Recorded events[kMostEvents];

    bool made_from(const Activation* others, std::uint32_t count) const {
        if (count != activation_count) return false;
        for (std::uint32_t i = 0; i < count; ++i)
            if (!(activations[i] == others[i])) return false;
        return true;
    }
};
constexpr std::uint32_t kDesks = 64;
constinit Desk desks[kDesks];
constinit std::atomic<bool> desk_taken[kDesks];

Desk* desk_of(ThreadState& thread) {
    if (thread.desk != 0) return &desks[thread.desk - 1];
    for (std::uint32_t i = 0; i < kDesks; ++i) {
        bool free_desk = false;
        if (!desk_taken[i].compare_exchange_strong(free_desk, true, std::memory_order_acquire)) continue;
        thread.desk = static_cast<std::uint8_t>(i + 1);
        thread_ends.store(forget_waits, std::memory_order_relaxed);
        desks[i].activation_count = 0;
        return &desks[i];
    }
    return nullptr;
}

// -----------------------------------------------------------------------------------------------------------
// events

// Events that blocks wait for, by their handles. kTaken: there was one, and others may stand behind it.
constexpr std::uint32_t kAwaited = 16384;
constexpr std::uint32_t kNeighbours = 128;
constexpr std::uint64_t kTaken = 1;
constinit std::atomic<std::uint64_t> awaited[kAwaited];

std::uint32_t first_place(std::uint64_t event) {
    return static_cast<std::uint32_t>((event * 0x9e3779b97f4a7c15u) >> 40) % kAwaited;
}

// False: there is no room for it.
bool await(std::uint64_t event) {
    if (event <= kTaken) return false;
    const std::uint32_t first = first_place(event);
    for (std::uint32_t step = 0; step < kNeighbours; ++step) {
        std::atomic<std::uint64_t>& place = awaited[(first + step) % kAwaited];
        std::uint64_t known = place.load(std::memory_order_relaxed);
        while (known == 0 || known == kTaken)
            if (place.compare_exchange_weak(known, event, std::memory_order_relaxed)) {
                events_awaited.fetch_add(1, std::memory_order_relaxed);
                return true;
            }
        if (known == event) return true;
    }
    return false;
}

}  // namespace

bool take_awaited(std::uint64_t event) {
    if (event <= kTaken) return false;
    const std::uint32_t first = first_place(event);
    for (std::uint32_t step = 0; step < kNeighbours; ++step) {
        std::atomic<std::uint64_t>& place = awaited[(first + step) % kAwaited];
        std::uint64_t known = place.load(std::memory_order_relaxed);
        if (known == 0) return false;
        if (known == event && place.compare_exchange_strong(known, kTaken, std::memory_order_relaxed)) {
            events_awaited.fetch_sub(1, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

void note_reporter(const void* caller) {
    const auto at = reinterpret_cast<std::uintptr_t>(caller);
    if (in_reporter(at)) return;
    if (const std::uint32_t number = module_at(at); number != 0) {
        reporter_begin.store(module(number).begin, std::memory_order_relaxed);
        reporter_end.store(module(number).end, std::memory_order_relaxed);
        blocks_reported.store(true, std::memory_order_relaxed);
    }
}

void note_event(HookId function, const void* caller, std::uint64_t event, std::uint64_t stream,
                std::uint16_t flags) {
    Activation activations[kMostActivations];
    const std::uint32_t count = find_activations(caller, activations);
    if (count == 0) return;
    ThreadState& thread = thread_state;
    Desk* desk = desk_of(thread);
    if (desk == nullptr) {
        leave_out(Kind::kBlockWaits, 1);
        return;
    }
    if (!desk->made_from(activations, count)) {
        desk->function = function;
        desk->event_count = desk->left_out = 0;
        desk->activation_count = count;
        for (std::uint32_t i = 0; i < count; ++i) desk->activations[i] = activations[i];
    }
    if (desk->event_count == Desk::kMostEvents)
        ++desk->left_out;
    else
        desk->events[desk->event_count++] = {event, stream, flags};
}

void tell_waits(ThreadState& thread, const void* caller, std::uint8_t device) {
    const Desk* desk = desk_of(thread);
    Walk walk(__builtin_frame_address(0));
    Activation reporting;
    bool same = false;
    if (desk != nullptr && walk.to(caller) && take_activation(walk, reporting))
        for (std::uint32_t i = 0; i < desk->activation_count; ++i)
            same = same || desk->activations[i] == reporting;
    for (std::uint32_t i = 0; same && i < desk->event_count; ++i) {
        const Desk::Recorded& recorded = desk->events[i];
        wire::Record record{};
        record.sequence = next_sequence();
        record.start = now();
        record.function = static_cast<std::uint16_t>(desk->function);
        record.kind = Kind::kBlockWaits;
        record.device = device;
        record.flags = recorded.flags;
        if (device == wire::kDeviceUnknown) record.flags |= wire::kUnknownDevice;
        record.object = recorded.event;
        record.extra = recorded.stream;
        if (!await(recorded.event)) leave_out(Kind::kBlockWaitOver, 1);
        emit(record);
    }
    if (same) leave_out(Kind::kBlockWaits, desk->left_out);
    forget_waits(thread);
}

void forget_waits(ThreadState& thread) {
    if (thread.desk != 0) desk_taken[thread.desk - 1].store(false, std::memory_order_release);
    thread.desk = 0;
}

void forget_all_waits() {
    blocks_reported.store(false);
    reporter_begin.store(0);
    reporter_end.store(0);
    for (auto& taken : desk_taken) taken.store(false);
    // Where none is awaited, what is left in the table matches nothing, and its memory is left alone.
    if (events_awaited.exchange(0) != 0)
        for (auto& event : awaited) event.store(0);
    thread_state.desk = 0;
}

}  // namespace fragscope::interpose
