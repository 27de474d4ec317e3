// The CSV log of RAPIDS RMM's logging_resource_adaptor (rmm.enable_logging, RMM_LOG_FILE). See rmm_log.cpp.
#pragma once

#include "analysis/read/importer.h"

namespace fragscope::analysis {

// So many events are taken from one log; a longer one is refused. About 88 bytes each.
inline constexpr std::size_t kMaxRmmEvents = std::size_t{1} << 26;

extern const Importer kRmmLog;

}  // namespace fragscope::analysis
