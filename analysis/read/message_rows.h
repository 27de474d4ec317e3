// Messages of allocators and libraries whose amounts stand in a line or a few. See message_rows.cpp.
#pragma once

#include "analysis/read/message_reader.h"

namespace fragscope::analysis {

extern const MessageKind kAllocatorMessage;

}  // namespace fragscope::analysis
