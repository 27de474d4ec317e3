// The shim's own questions to the driver about memory, at the moments of samples and failures. Questions that
// change nothing; none while a stream capture is running, which some of them would break, none while a
// context is being ended, none that could create a context. A capture or an end that begins while another
// thread asks waits for the answer, for a bounded time.
#pragma once

#include <cstdint>

#include "interpose/emit.h"
#include "interpose/state.h"

namespace fragscope::interpose {

// Held while asking.
class Questions {
  public:
    Questions();
    ~Questions();
    Questions(const Questions&) = delete;
    Questions& operator=(const Questions&) = delete;
    bool allowed() const { return refusal_ == Refusal::kNothing; }
    bool capturing() const { return refusal_ == Refusal::kCapturing; }
    // Keeps all others from asking till the end of this; false: somebody else has done so. Waits for those
    // who are at it.
    bool alone();

  private:
    enum class Refusal : std::uint8_t { kNothing, kCapturing, kOthers };
    Refusal refusal_ = Refusal::kNothing;
};

// cuMemGetInfo_v2 of the context that is current. False: it has no answer.
bool tell_device_memory(Place place, unsigned flags, HookId function);
// Of every device but `place`'s of which this process has a context: that is made current for the question,
// and the one before it again.
void tell_other_devices(Place place, unsigned flags, HookId function);
// All pools that were seen; `marks`: with their high-water marks and maximum sizes.
void tell_pools(unsigned flags, HookId function, bool marks);
// What graphs hold on the device, which must have a context.
void tell_graph_memory(std::uint8_t device, unsigned flags, HookId function);

// Of physical memory on the device, in bytes; 0: the driver does not say. Needs no context and makes none.
std::uint64_t granularity_of(CUdevice device, CUmemAllocationGranularity_flags which);

// The program is about to begin a capture on `stream`, which is returned; capture_begun() of the call
// follows.
CUstream capture_begins(CUstream stream);
// The program is about to destroy `stream`, which is returned: with it ends the capture that began on it,
// without a call that says so.
CUstream capture_may_end(CUstream stream);
// A context is gone, and with it the captures of its streams. If another one was seen it is not known whose
// they were: the captures are then taken to go on.
void captures_ended_with_context(std::uint64_t context);
// The program is about to end a context, by whatever call; then it has.
void context_end_begins(HookId function);
void context_end_done();

// Contexts of this process by which tell_other_devices() can ask; one that was created, and the primary one.
void know_context(std::uint8_t device, std::uint64_t context, bool primary);
void lose_context(std::uint64_t context);
std::uint64_t primary_context(std::uint8_t device);  // 0: it was not seen

void forget_questions();  // a new attachment
// The call that this thread was in was left by a jump: what was counted and changed for it is taken back.
void forget_call(ThreadState& thread);

std::uint64_t monotonic_ns();

}  // namespace fragscope::interpose
