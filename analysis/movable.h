// Which of a process's device memory could be moved to other physical pages without a pointer becoming wrong:
// what is reached through a mapping (copied, unmapped and mapped again at the same address), and nobody else
// holds. Everything else is known to the program, or to the driver, by where it lies.
//
// That the bytes could be moved does not say that it is safe at any moment: while a kernel or a copy may
// touch them, or a graph has their address, they must not be, and of that no record speaks.
#pragma once

#include <cstdint>

#include "analysis/state.h"

namespace fragscope::analysis {

struct Movable {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;     // physical allocations
    std::uint64_t smallest = 0;  // a move needs as much again while it lasts
    std::uint64_t largest = 0;
    std::uint64_t shared =
        0;  // bytes in mapped allocations that are exported, imported, or behind arrays or multicast objects
    std::uint64_t fixed = 0;  // bytes of linear memory and of live blocks of pools, as requested
};

Movable movable_of(const ProcessState& state, int device);

}  // namespace fragscope::analysis
