// From a call in the shim outwards, caller by caller. By the unwind tables of each file (x86-64), whose
// answer for a place in code is kept, so that a frame costs one look into a table; code without tables is
// passed by its frame pointer where that leads to a call. Takes no lock, allocates nothing, and reads nothing
// that is not known to be readable.
#pragma once

#include <cstdint>

#include "interpose/modules.h"

namespace fragscope::interpose {

// Whether the 8 aligned bytes that `at` lies in can be read; asks the kernel. Changes errno.
bool can_read(std::uintptr_t at);

// The word at `at`, in a place of this thread's stack outwards of `sp`, which lies in it. False: it cannot be read.
bool word_on_stack(std::uintptr_t sp, std::uintptr_t at, std::uintptr_t& out);

class Walk {
  public:
    // `frame`: __builtin_frame_address(0) of the function that starts the walk; the first place is in its
    // caller.
    explicit Walk(const void* frame);

    // Finds out what is known of the place where the walk stands. False: it stands nowhere.
    bool locate();
    // On to the wrapper's caller: from here to it there are only functions of the shim, and few. False: it was not
    // met.
    bool to(const void* caller);
    // On to the caller of the place that was located. False: there is none, or it cannot be found (lost()).
    bool up();

    // The place: the address after the call (of an interrupted instruction: one more than its own address).
    std::uintptr_t pc() const { return pc_; }
    std::uintptr_t sp() const { return sp_; }         // the stack pointer there
    std::uint32_t module() const { return module_; }  // 0: none, or not known
    bool lost() const { return lost_; }

  private:
    bool step(std::uintptr_t cfa, KeptFrame kept, std::int64_t kept_offset);
    bool step_by_signal();
    bool step_by_frame_pointer();
    bool word(std::uintptr_t at, std::uintptr_t& out);
    bool leave(bool lost);

    LoaderState loader_;
    std::uintptr_t pc_, sp_, fp_;
    std::uint32_t module_ = 0;
    std::uint32_t signals_ = 0;
    std::uint64_t rule_ = 0;
    bool lost_ = false;
};

}  // namespace fragscope::interpose
