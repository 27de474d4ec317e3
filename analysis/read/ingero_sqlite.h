// The database of Ingero (`ingero trace`, ~/.ingero/ingero.db). See ingero_sqlite.cpp.
#pragma once

#include "analysis/read/importer.h"

namespace fragscope::analysis {

inline constexpr std::size_t kMaxIngeroFailures = std::size_t{1} << 20;

extern const Importer kIngeroSqlite;

}  // namespace fragscope::analysis
