// PyTorch's messages about memory that it could not get. See message_torch.cpp.
#pragma once

#include "analysis/read/message_reader.h"

namespace fragscope::analysis {

extern const MessageKind kTorchMessage;

}  // namespace fragscope::analysis
