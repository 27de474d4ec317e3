// The driver's end of sim_activity.h: what is told to the stand-in CUPTI, where there is one.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// From ledger(): an entry with what belongs to it and the ledger does not say.
void note_activity(const LedgerEntry& entry);
// What has no entry in the ledger; `operation` as in sim_activity.h.
void note_variable_locked(const char* operation, const char* name, std::uint64_t address, std::uint64_t bytes, int device);
void note_pool_trim_locked(std::uint64_t pool, std::uint64_t keep, int device);
// A prefetch of managed memory to `device`, or to the host (-1).
void note_prefetch_locked(std::uint64_t address, std::uint64_t bytes, int device);
// What a listening CUPTI takes in the context: charged with its overhead, as far as the device has it.
void charge_listener_locked(Context& context);

}  // namespace fragscope::sim
