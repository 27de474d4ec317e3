// How to get from a place in x86-64 code to its caller, by the unwind tables of the file that the code is
// from
// (.eh_frame_hdr and .eh_frame: Linux Standard Base, "DWARF Extensions" and "Exception Frames"; DWARF 5,
// section 6.4). Pure functions of readable memory. The tables may hold anything: nothing outside of the spans
// given is read, and a program of theirs ends with its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::interpose {

// Memory that may be read.
struct Span {
    const unsigned char* begin = nullptr;
    const unsigned char* end = nullptr;
    bool holds(const unsigned char* at) const { return at >= begin && at < end; }
};
inline constexpr std::uint32_t kMaxSpans = 6;

struct UnwindTables {
    const unsigned char* header = nullptr;  // .eh_frame_hdr; null: the file has none
    Span spans[kMaxSpans];
    std::uint32_t span_count = 0;
};

// The canonical frame address (CFA) is what the stack pointer is after the return to the caller. In all forms
// but kSignal the return address lies right below it.
enum class RuleForm : std::uint8_t {
    kUntold = 0,        // the tables say nothing of this place
    kStack = 1,         // CFA: stack pointer + offset
    kFrame = 2,         // CFA: frame pointer + offset
    kThroughFrame = 3,  // CFA: the word at frame pointer + offset (a function that aligned its stack)
    kSignal = 4,  // the kernel's frame of a signal handler: registers as in ucontext_t at the stack pointer
    kOutermost = 5,  // there is no caller
    kBeyond = 6,     // a form that is not handled
};
enum class KeptFrame : std::uint8_t {
    kUnchanged = 0,  // the frame pointer is still the caller's
    kAtCfa = 1,      // saved at CFA + kept_offset
    kAtFrame = 2,    // saved at frame pointer + kept_offset
    kGone = 3,
};
struct Rule {
    RuleForm form = RuleForm::kUntold;
    KeptFrame kept = KeptFrame::kUnchanged;
    std::int64_t offset = 0;
    std::int64_t kept_offset = 0;
};

// Where the function begins that the tables say the instruction at `address` is of; 0: they do not say.
std::uintptr_t function_begin(const UnwindTables& tables, std::uintptr_t address);

// The rule for the instruction at `address`.
Rule find_rule(const UnwindTables& tables, std::uintptr_t address);

}  // namespace fragscope::interpose
