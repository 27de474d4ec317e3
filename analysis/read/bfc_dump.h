// Dumps of TensorFlow's and XLA's "best fit with coalescing" allocator. See bfc_dump.cpp.
#pragma once

#include "analysis/read/message_reader.h"

namespace fragscope::analysis {

extern const MessageKind kBfcDump;

}  // namespace fragscope::analysis
