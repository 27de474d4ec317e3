// Tables that torch.cuda.memory_summary() prints. See message_torch_summary.cpp.
#pragma once

#include "analysis/read/message_reader.h"

namespace fragscope::analysis {

extern const MessageKind kTorchSummary;

}  // namespace fragscope::analysis
