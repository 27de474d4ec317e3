// Logs and pasted text with messages about failed requests for memory somewhere in them. See message_log.cpp.
#pragma once

#include "analysis/read/importer.h"

namespace fragscope::analysis {

extern const Importer kMessages;

}  // namespace fragscope::analysis
