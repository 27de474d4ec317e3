// Rows of an Nsight export as events of a trace: what each says in terms of memory. Their order, their calls
// and their process are for nsight_sqlite.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/event.h"
#include "analysis/read/nsight_tables.h"

namespace fragscope::analysis {

// Functions of events whose calls are not in the export; the calls' own names stand behind them.
enum class NsightFunction : std::uint32_t { kAllocation, kDeallocation, kPoolEvent, kSynchronization, kCall };
extern const std::vector<std::string> kNsightFunctions;

// Nothing where the row says nothing of memory that a trace keeps books of: pageable memory, memory of a kind
// that the profiler did not know, and allocations of no size.
std::optional<Event> event_of(const NsightMemoryRow& row);
Event event_of(const NsightPoolRow& row);
Event event_of(const NsightSynchronizationRow& row);
// What the driver said of the pool at that event, where it said all of it.
std::optional<Event> pool_state_at(const Event& event, const NsightPool& pool);
// `kind`: of what the call would have taken; its size is not told. `device`: kNoDevice if it is not known.
Event event_of_failed(const NsightCallRow& row, wire::Kind kind, std::int16_t device);

// 16 bytes of "GPU-00112233-4455-…" or of the bare digits; empty if it is nothing of that kind.
std::string uuid_bytes(std::string_view text);

}  // namespace fragscope::analysis
