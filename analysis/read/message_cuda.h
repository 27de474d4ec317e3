// Lines that name CUDA's error for memory and say nothing else of it. See message_cuda.cpp.
#pragma once

#include "analysis/read/message_reader.h"

namespace fragscope::analysis {

extern const MessageKind kCudaError;

}  // namespace fragscope::analysis
