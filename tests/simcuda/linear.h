// Linear device memory for the other parts: allocation for a context and the general free.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// `operation` names the ledger entry.
CUresult linear_allocate_locked(Context& context, std::uint64_t bytes, const char* operation,
                                std::uint64_t& address);
void linear_free_locked(Region& region);
// What cuMemFree does with any address.
CUresult free_address_locked(std::uint64_t address);
// Notices descriptors of exported handles that were closed everywhere, which may free memory (vmm.cpp).
void poll_exports_locked();

}  // namespace fragscope::sim
