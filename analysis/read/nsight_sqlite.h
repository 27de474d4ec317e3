// The SQLite export of Nsight Systems (`nsys export --type sqlite`). See nsight_sqlite.cpp.
#pragma once

#include "analysis/read/importer.h"

namespace fragscope::analysis {

// So many events are taken from one export; a larger one is refused. About 200 bytes each while it is read.
inline constexpr std::size_t kMaxNsightEvents = std::size_t{1} << 26;

extern const Importer kNsightSqlite;

}  // namespace fragscope::analysis
