#include "interpose/stacks.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "interpose/emit.h"
#include "interpose/intern.h"
#include "interpose/modules.h"
#include "interpose/python_frames.h"
#include "interpose/session.h"
#include "interpose/unwind.h"

namespace fragscope::interpose {

namespace {

struct Stack {
    wire::StackText head{};
    std::uint64_t frames[wire::kMaxFrames];

    std::size_t bytes() const { return sizeof head + head.frames * sizeof frames[0]; }
};
static_assert(offsetof(Stack, frames) == sizeof(wire::StackText));
static_assert(sizeof(Stack) <= wire::kMaxTextBytes);

// -----------------------------------------------------------------------------------------------------------
// numbers

// A stack's number is its place in the table, from 1. Nothing is ever taken out.
struct Entry {
    std::atomic<std::uint64_t> hash;     // of the whole stack, which is thereby known; 0: a free place
    std::atomic<std::uint32_t> told_by;  // attachment
};
constinit std::atomic<Entry*> table{nullptr};
// A stack that finds no place this near to its own has none: a bound for the time of a look-up.
constexpr std::uint32_t kNeighbours = 64;

Entry* get_table() {
    Entry* known = table.load(std::memory_order_acquire);
    if (known != nullptr) return known;
    constexpr std::size_t kBytes = kMaxStacks * sizeof(Entry);
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* made = static_cast<Entry*>(memory);
    if (table.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
    munmap(memory, kBytes);
    return known;
}

std::uint64_t hash_of(const Stack& stack) {
    std::uint64_t hash = 0x9e3779b97f4a7c15u;
    const auto add = [&hash](std::uint64_t word) {
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    };
    std::uint64_t head = 0;
    static_assert(sizeof head == sizeof stack.head);
    std::memcpy(&head, &stack.head, sizeof head);
    add(head);
    for (std::uint32_t i = 0; i < stack.head.frames; ++i) add(stack.frames[i]);
    return hash != 0 ? hash : 1;
}

// The number of the stack, or 0.
std::uint32_t number_of(const Stack& stack, Entry* entries) {
    const std::uint64_t hash = hash_of(stack);
    for (std::uint32_t step = 0; step < kNeighbours; ++step) {
        const std::uint32_t at = (static_cast<std::uint32_t>(hash) + step) % kMaxStacks;
        std::uint64_t found = entries[at].hash.load(std::memory_order_relaxed);
        if (found == 0 && entries[at].hash.compare_exchange_strong(found, hash, std::memory_order_relaxed))
            return at + 1;
        if (found == hash) return at + 1;
    }
    return 0;
}

bool tell_frames(const Stack& stack) {
    for (std::uint32_t i = 0; i < stack.head.frames; ++i) {
        const std::uint64_t frame = stack.frames[i];
        if (wire::frame_form(frame) == wire::FrameForm::kModule && !tell_module(wire::frame_module(frame)))
            return false;
        if (wire::frame_form(frame) == wire::FrameForm::kPython) tell_string(wire::frame_place(frame));
    }
    tell_string(stack.head.origin);
    return true;
}

// The number of the stack, which is told. What could not be sent is sent with a later record that names it.
std::uint32_t told_stack(const Stack& stack) {
    if (!attached()) return 0;
    Entry* entries = get_table();
    const std::uint32_t number = entries != nullptr ? number_of(stack, entries) : 0;
    if (number == 0) {
        session.slot->lost_kinds[static_cast<std::uint32_t>(wire::Kind::kText)].fetch_add(
            1, std::memory_order_relaxed);
        return 0;
    }
    Entry& entry = entries[number - 1];
    const std::uint32_t attachment = generation();
    if (entry.told_by.load(std::memory_order_relaxed) == attachment) return number;
    if (tell_frames(stack) &&
        emit_text(wire::TextKind::kStack, 0, reinterpret_cast<const char*>(&stack), stack.bytes(), number))
        entry.told_by.store(attachment, std::memory_order_relaxed);
    return number;
}

// ------------------------------------------------------------------------------------------------------------
// origin

// Where a run of a runtime's frames begins: its outermost place, and the place in the program that it was
// called from.
struct Entrance {
    std::uintptr_t pc = 0, caller = 0;
    std::uint32_t module = 0, caller_module = 0;
};

// The function that the program called: by the call itself, where it names one, as a function that ends by a
// jump to another one leaves no place of its own; else the exported one that the outermost place belongs to.
const char* function_entered(const Entrance& at) {
    const std::uintptr_t target = at.caller_module != 0 ? target_of_call(at.caller_module, at.caller) : 0;
    if (module(at.module).holds(target))
        if (const char* name = exported_function(at.module, target); name != nullptr) return name;
    return exported_function(at.module, at.pc - 1);
}

// Its name as a string's number is kept by both places, and the runtime's module.
struct KeptOrigin {
    std::atomic<std::uint64_t> key;    // places ^ value, so that a pair of two writers matches nothing
    std::atomic<std::uint64_t> value;  // module (32 bits), string
};
constexpr std::uint32_t kKeptOrigins = 1024;
constinit KeptOrigin kept_origins[kKeptOrigins];

std::uint32_t origin_of(const Entrance& at) {
    const std::uint64_t places = at.pc ^ (static_cast<std::uint64_t>(at.caller) << 16 | at.caller >> 48) ^
                                 (std::uint64_t{at.caller_module} << 5);
    KeptOrigin& kept = kept_origins[(places * 0x9e3779b97f4a7c15u) >> (64 - __builtin_ctz(kKeptOrigins))];
    const std::uint64_t value = kept.value.load(std::memory_order_relaxed);
    if ((kept.key.load(std::memory_order_relaxed) ^ value) == places && value >> 32 == at.module)
        return static_cast<std::uint32_t>(value);
    const char* name = function_entered(at);
    const std::uint32_t string = name != nullptr ? intern(name, std::strlen(name)) : 0;
    const std::uint64_t fresh = (static_cast<std::uint64_t>(at.module) << 32) | string;
    kept.value.store(fresh, std::memory_order_relaxed);
    kept.key.store(places ^ fresh, std::memory_order_relaxed);
    return string;
}

std::uint64_t frame_of(const Walk& walk) {
    if (walk.module() == 0) return wire::address_frame(walk.pc());
    return wire::module_frame(walk.module(), walk.pc() - module(walk.module()).bias);
}

// The outermost function of the runtime in one unbroken run of its frames, seen frame by frame from the
// driver outwards.
class OriginSearch {
  public:
    // Whether the next frame may still belong to the run.
    bool look(const Walk& walk) {
        const bool known = walk.module() != 0;
        if (known && module(walk.module()).runtime) {
            at_ = {walk.pc(), 0, walk.module(), 0};
            between_ = 0;
            return true;
        }
        if (between_ == 0) {
            at_.caller = walk.pc();
            at_.caller_module = walk.module();
        }
        running_ = at_.pc != 0 && known && module(walk.module()).go_between && ++between_ <= kMostBetween;
        return running_;
    }
    bool running() const { return running_; }
    // Of a walk that got lost in the middle of the run it is not known.
    std::uint32_t found(const Walk& walk) const {
        return at_.pc != 0 && !(running_ && walk.lost()) ? origin_of(at_) : 0;
    }

  private:
    static constexpr std::uint32_t kMostBetween = 4;
    Entrance at_;
    std::uint32_t between_ = 0;
    bool running_ = true;
};

// The frames of Python's evaluation loops among those of a stack.
struct Loops {
    std::uint16_t at[wire::kMaxFrames];  // index of each, innermost first
    std::uint32_t count = 0;
    std::uint32_t module = 0;  // of the innermost: whose loops they are

    void look(const Walk& walk, std::uint32_t index) {
        if (walk.module() == 0 || (module != 0 && walk.module() != module)) return;
        const Module& here = interpose::module(walk.module());
        if (walk.pc() - 1 - here.evaluation_begin >= here.evaluation_end - here.evaluation_begin) return;
        module = walk.module();
        at[count++] = static_cast<std::uint16_t>(index);
    }
};

// Puts the lines of Python where the evaluation loops are that run them, inwards of each.
void insert_lines(const Loops& loops, const PythonFrames& lines, Stack& stack) {
    Stack merged;
    merged.head = stack.head;
    merged.head.frames = 0;
    const auto add = [&merged](std::uint64_t frame) {
        if (merged.head.frames == wire::kMaxFrames)
            merged.head.flags |= wire::kStackCut;
        else
            merged.frames[merged.head.frames++] = frame;
    };
    std::uint32_t loop = 0, line = 0;
    for (std::uint32_t i = 0; i < stack.head.frames; ++i) {
        if (loop < loops.count && loops.at[loop] == i) {
            // What was not met as a native frame comes with the last one.
            const bool last = ++loop == loops.count;
            for (; line < lines.count && (last || lines.frames[line].run < loop); ++line)
                add(wire::python_frame(lines.frames[line].place, lines.frames[line].line));
        }
        add(stack.frames[i]);
    }
    if (lines.cut) merged.head.flags |= wire::kStackCut;
    stack.head = merged.head;
    std::memcpy(stack.frames, merged.frames, merged.head.frames * sizeof merged.frames[0]);
}

[[gnu::noinline]] void add_python(const Loops& loops, std::uintptr_t low, std::uintptr_t high, Stack& stack) {
    PythonFrames lines;
    if (python_frames(loops.module, low, high, lines))
        insert_lines(loops, lines, stack);
    else
        stack.head.flags |= wire::kStackNoLines;
}

// Frames from the caller outwards; `deep` false: only as far as the origin needs.
void fill(Walk& walk, bool deep, Stack& out) {
    OriginSearch origin;
    Loops loops;
    const std::uintptr_t low = walk.sp();
    std::uintptr_t high = low;
    do {
        if (origin.running() && !origin.look(walk) && !deep) break;
        if (deep && out.head.frames == wire::kMaxFrames) {
            out.head.flags |= wire::kStackCut;
            break;
        }
        if (deep) {
            loops.look(walk, out.head.frames);
            out.frames[out.head.frames++] = frame_of(walk);
            high = walk.sp();
        }
    } while (walk.up() && walk.locate());
    out.head.origin = origin.found(walk);
    if (deep && walk.lost()) out.head.flags |= wire::kStackLost;
    if (loops.count != 0) add_python(loops, low, high > walk.sp() ? high : walk.sp(), out);
}

}  // namespace

[[gnu::noinline]] std::uint32_t call_stack(const void* caller, bool deep) {
    if (caller == nullptr) return 0;
    const int saved = errno;
    Stack stack;
    Walk walk(__builtin_frame_address(0));
    if (walk.to(caller))
        fill(walk, deep, stack);
    else if (deep)
        stack.head.flags = wire::kStackLost;
    const std::uint32_t number = deep || stack.head.origin != 0 ? told_stack(stack) : 0;
    errno = saved;
    return number;
}

}  // namespace fragscope::interpose
