#include "interpose/unwind.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace fragscope::interpose {

namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr std::uint32_t kMaxSignals = 8;  // handlers interrupted by handlers

// ---------------------------------------------------------------------------------------------------- kept
// rules

// A rule and its module in one word: module (16 bits), form (3), kept (2), offset / 8 (24, signed), kept
// offset / 8 (19, signed).
std::uint64_t pack(std::uint32_t module, Rule rule) {
    const auto fits = [](std::int64_t offset, int bits) {
        const std::int64_t words = offset / 8, most = std::int64_t{1} << (bits - 1);
        return offset % 8 == 0 && words >= -most && words < most;
    };
    if (!fits(rule.offset, 24)) rule = {RuleForm::kBeyond, KeptFrame::kGone, 0, 0};
    if (!fits(rule.kept_offset, 19)) rule = {rule.form, KeptFrame::kGone, rule.offset, 0};
    return (module & 0xffffu) | (static_cast<std::uint64_t>(rule.form) << 16) |
           (static_cast<std::uint64_t>(rule.kept) << 19) |
           ((static_cast<std::uint64_t>(rule.offset / 8) & 0xffffff) << 21) |
           (static_cast<std::uint64_t>(rule.kept_offset / 8) << 45);
}
std::uint32_t module_of(std::uint64_t packed) { return static_cast<std::uint32_t>(packed & 0xffff); }
Rule rule_of(std::uint64_t packed) {
    return {static_cast<RuleForm>((packed >> 16) & 7), static_cast<KeptFrame>((packed >> 19) & 3),
            (static_cast<std::int64_t>(packed << 19) >> 40) * 8,
            (static_cast<std::int64_t>(packed) >> 45) * 8};
}

// One place in code. Both words are written without order between writers; a pair that does not belong
// together does not match any place. Who finds a rule finds its module filled in.
struct KeptRule {
    std::atomic<std::uint64_t> key;  // place ^ packed ^ key_of_epoch
    std::atomic<std::uint64_t> packed;
};
constexpr std::uint32_t kKeptRules = 16384;
constinit KeptRule kept_rules[kKeptRules];
// Changes when a file was unloaded: what was kept of its code holds no longer.
constinit std::atomic<std::uint64_t> epoch{1};

std::uint64_t key_of_epoch() { return epoch.load(std::memory_order_relaxed) * 0x9e3779b97f4a7c15u; }
KeptRule& place_of(std::uintptr_t pc) {
    return kept_rules[(pc * 0x9e3779b97f4a7c15u) >> (64 - __builtin_ctz(kKeptRules))];
}

bool find_kept(std::uintptr_t pc, std::uint64_t& packed) {
    const KeptRule& kept = place_of(pc);
    packed = kept.packed.load(std::memory_order_relaxed);
    return (kept.key.load(std::memory_order_acquire) ^ packed ^ key_of_epoch()) == pc && pc != 0;
}

void keep(std::uintptr_t pc, std::uint64_t packed) {
    KeptRule& kept = place_of(pc);
    kept.packed.store(packed, std::memory_order_relaxed);
    kept.key.store(pc ^ packed ^ key_of_epoch(), std::memory_order_release);
}

std::uint64_t look_up_rule(std::uintptr_t pc) {
    const std::uint32_t number = module_at(pc - 1);
    Rule rule;
#if defined(__x86_64__)
    if (number != 0) rule = find_rule(module(number).tables, pc - 1);
#endif
    return pack(number, rule);
}

// ------------------------------------------------------------------------------------------------- readable
// memory

// The pages of this thread's stack that were found readable: those that a call chain lies in stay so.
struct KnownStack {
    std::uintptr_t begin = 0, end = 0;
};
constinit thread_local KnownStack known_stack __attribute__((tls_model("initial-exec")));

bool readable_on_stack(std::uintptr_t at) {
    KnownStack& known = known_stack;
    if (at >= known.begin && at + 8 <= known.end) return true;
    if (at % 8 != 0) return false;
    constexpr std::uintptr_t kNear = 16 * kPage;
    if (at < known.end || at >= known.end + kNear) return can_read(at);
    while (at + 8 > known.end) {
        if (!can_read(known.end)) return false;
        known.end += kPage;
    }
    return true;
}

// The stack pointer stands here: this page is there.
void begin_stack(std::uintptr_t sp) {
    KnownStack& known = known_stack;
    if (sp >= known.begin && sp < known.end) return;
    const std::uintptr_t page = sp & ~(kPage - 1);
    known = {page, page + kPage};
}

[[gnu::no_sanitize("address")]] std::uintptr_t read_word(std::uintptr_t at) {
    return *reinterpret_cast<const volatile std::uintptr_t*>(at);
}

std::uintptr_t without_signature(std::uintptr_t pc) {
#if defined(__aarch64__)
    return pc & ((std::uintptr_t{1} << 48) - 1);  // pointer authentication
#else
    return pc;
#endif
}

// Whether a call ends before `pc`.
[[gnu::no_sanitize("address")]] bool after_call(std::uintptr_t pc) {
#if defined(__x86_64__)
    if (pc < 16 || !can_read(pc - 8) || !can_read(pc - 1)) return false;
    const auto* at = reinterpret_cast<const volatile unsigned char*>(pc);
    if (at[-5] == 0xe8) return true;  // call, relative
    for (int length = 2; length <= 7; ++length)
        if (at[-length] == 0xff && (at[-length + 1] & 0x38) == 0x10) return true;  // call, indirect
    return false;
#else
    return pc >= 4096 && pc % 4 == 0;
#endif
}

}  // namespace

// By a system call that reads 8 bytes first and then refuses what it is asked to do.
bool can_read(std::uintptr_t at) {
    return syscall(SYS_rt_sigprocmask, -1, at & ~std::uintptr_t{7}, nullptr, 8) != 0 && errno == EINVAL;
}

bool word_on_stack(std::uintptr_t sp, std::uintptr_t at, std::uintptr_t& out) {
    begin_stack(sp);
    if (!readable_on_stack(at)) return false;
    out = read_word(at);
    return true;
}

[[gnu::no_sanitize("address")]] Walk::Walk(const void* frame) {
    const auto at = reinterpret_cast<std::uintptr_t>(frame);
    begin_stack(at);
    fp_ = read_word(at);
    pc_ = without_signature(read_word(at + 8));
    sp_ = at + 16;
}

bool Walk::leave(bool lost) {
    lost_ = lost;
    pc_ = 0;
    return false;
}

bool Walk::word(std::uintptr_t at, std::uintptr_t& out) {
    if (!readable_on_stack(at)) return false;
    out = read_word(at);
    return true;
}

bool Walk::locate() {
    if (pc_ == 0) return false;
    if (!find_kept(pc_, rule_)) {
        rule_ = look_up_rule(pc_);
        keep(pc_, rule_);
    } else if (!loader_.unchanged(module_of(rule_), pc_ - 1)) {
        epoch.fetch_add(1, std::memory_order_relaxed);
        rule_ = look_up_rule(pc_);
        keep(pc_, rule_);
    }
    module_ = module_of(rule_);
    return true;
}

bool Walk::to(const void* caller) {
    constexpr std::uint32_t kOwnFrames = 16;
    for (std::uint32_t i = 0; i < kOwnFrames && locate(); ++i) {
        if (pc_ == reinterpret_cast<std::uintptr_t>(caller)) return true;
        if (!up()) return false;
    }
    return false;
}

bool Walk::step(std::uintptr_t cfa, KeptFrame kept, std::int64_t kept_offset) {
    std::uintptr_t pc = 0, fp = fp_;
    if (cfa <= sp_ || !word(cfa - 8, pc)) return leave(true);
    const std::uintptr_t saved =
        (kept == KeptFrame::kAtCfa ? cfa : fp_) + static_cast<std::uintptr_t>(kept_offset);
    if (kept == KeptFrame::kGone)
        fp = 0;
    else if (kept != KeptFrame::kUnchanged && !word(saved, fp))
        return leave(true);
    pc_ = pc;
    sp_ = cfa;
    fp_ = fp;
    return pc != 0 || leave(false);
}

// Linux, x86-64: at the return of a handler the stack pointer is at a ucontext_t, with rbp, rsp, rip at these
// offsets.
bool Walk::step_by_signal() {
    constexpr std::uintptr_t kRbp = 120, kRsp = 160, kRip = 168;
    std::uintptr_t pc = 0, sp = 0, fp = 0;
    if (++signals_ > kMaxSignals || !word(sp_ + kRbp, fp) || !word(sp_ + kRsp, sp) || !word(sp_ + kRip, pc))
        return leave(true);
    // A handler may have a stack of its own, above or below the one that it interrupted.
    begin_stack(sp);
    pc_ = pc + 1;
    sp_ = sp;
    fp_ = fp;
    return pc != 0 || leave(false);
}

bool Walk::step_by_frame_pointer() {
    std::uintptr_t pc = 0, fp = 0;
    if (fp_ == 0) return leave(false);
    if (fp_ < sp_ || fp_ % 8 != 0 || !can_read(fp_) || !can_read(fp_ + 8)) return leave(true);
    fp = read_word(fp_);
    pc = without_signature(read_word(fp_ + 8));
    if (pc == 0) return leave(false);
    if (!after_call(pc)) return leave(true);
    pc_ = pc;
    sp_ = fp_ + 16;
    fp_ = fp;
    return true;
}

bool Walk::up() {
    const Rule rule = rule_of(rule_);
    const auto offset = static_cast<std::uintptr_t>(rule.offset);
    switch (rule.form) {
        case RuleForm::kStack:
            return step(sp_ + offset, rule.kept, rule.kept_offset);
        case RuleForm::kFrame:
            return step(fp_ + offset, rule.kept, rule.kept_offset);
        case RuleForm::kThroughFrame: {
            std::uintptr_t cfa = 0;
            if (!word(fp_ + offset, cfa)) return leave(true);
            return step(cfa, rule.kept, rule.kept_offset);
        }
        case RuleForm::kSignal:
            return step_by_signal();
        case RuleForm::kUntold:
            return step_by_frame_pointer();
        case RuleForm::kOutermost:
            return leave(false);
        case RuleForm::kBeyond:
            break;
    }
    return leave(true);
}

}  // namespace fragscope::interpose
