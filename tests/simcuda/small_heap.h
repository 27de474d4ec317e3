// Packing of small linear allocations (at most 1 MiB) into shared blocks of 2 MiB, in units of 512 bytes, first
// fit. A block belongs to one context and goes back to the device when its last allocation is freed.
// Source of the numbers: README.md, "What is modelled".
#pragma once

#include <array>
#include <cstdint>

#include "driver.h"

namespace fragscope::sim {

inline constexpr std::uint64_t kSmallUnit = 512;
inline constexpr std::uint64_t kSmallBlock = 2 << 20;
inline constexpr std::uint64_t kSmallLimit = 1 << 20;
inline constexpr unsigned kSmallUnits = kSmallBlock / kSmallUnit;

struct SmallBlock {
    std::array<std::uint64_t, kSmallUnits / 64> used{};     // bit per unit
    std::array<std::uint32_t, kSmallUnits> requested{};     // bytes asked for, at an allocation's first unit
    unsigned free_units = kSmallUnits;
};

CUresult small_allocate_locked(Context& context, std::uint64_t bytes, const char* operation,
                               std::uint64_t& address);
// `region` is a small block and `address` lies in it; false when no allocation begins there. The region may be
// gone afterwards.
bool small_free_locked(Region& region, std::uint64_t address);
// The allocation that holds `address`: its base and size as asked for; false when there is none.
bool small_find(const Region& region, std::uint64_t address, std::uint64_t& base, std::uint64_t& bytes);
// All the context's small allocations at once.
void small_free_all_locked(Context& context);

}  // namespace fragscope::sim
