// Internal fragmentation by allocator, size class and call site: what is charged for live allocations, and
// how much of it holds payload.
//
// Payload is what was asked for. Of VMM handles it is what copies and memsets wrote: the size of a handle is
// chosen by whoever cuts it up, and says nothing of what that was for. The two never stand in one row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/charged.h"
#include "analysis/framework.h"
#include "analysis/losses.h"
#include "analysis/quantity.h"
#include "analysis/state.h"

namespace fragscope::analysis {

struct InternalPart {
    std::string allocator;  // "linear", "VMM", "pool 0x…", "arrays", "framework's blocks"
    std::optional<std::uint64_t>
        size_class;  // requests of this many bytes (a power of two) up to below twice that
    std::optional<std::uint32_t> stack;  // of a call site; 0: no stack was recorded
    std::uint64_t count = 0;             // live allocations
    Quantity charged;
    Quantity payload;  // requested, or payload_written
};

struct InternalParts {
    std::vector<InternalPart> by_allocator;
    std::vector<InternalPart> by_size_class;  // of each allocator from small to large
    std::vector<InternalPart> by_call_site;   // the most charged first
};

// Of one device. `scope`: of its physical memory at that moment. `payload`: see payload_of.
InternalParts internal_parts_of(const ProcessState& state, const FrameworkState& framework, int device,
                                const Payload& payload, const Losses& losses, const Scope& scope);

// charged - payload. Unknown where the two contradict each other.
Quantity waste_of(const InternalPart& part);
// waste / charged; see share().
Share waste_share_of(const InternalPart& part);

}  // namespace fragscope::analysis
