// Contexts for the other parts; driver.h declares the rest.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// The calling thread's current context, whatever its state; null: none.
const Context* current_context();

// The handle of the device's primary context, made when there is none yet, without retaining it.
CUcontext primary_handle_locked(int device);

// A kernel that needs `bytes` of stack for each thread is about to run: the limit rises to them for good, and costs
// what a limit set by the program costs.
CUresult raise_stack_locked(Context& context, std::uint64_t bytes);

}  // namespace fragscope::sim
