// The state that a message of PyTorch's allocator tells of. See message_torch.cpp for what its numbers are.
#pragma once

#include <cstdint>

#include "analysis/imported_state.h"
#include "analysis/read/message_torch_clauses.h"

namespace fragscope::analysis {

ImportedState state_of(const TorchMessage& message, std::uint64_t line);

// Says that the driver refused, where by its own numbers it had far more than any rounding takes. Less than that
// shows nothing: it may be what the driver needs for itself.
void note_refusal(Scenario& scenario);

}  // namespace fragscope::analysis
