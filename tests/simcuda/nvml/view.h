// The true state of the simulated devices, as somebody sees it who only looks.
#pragma once

#include <cstdint>
#include <vector>

#include "settings.h"

namespace fragscope::sim {

struct HolderView {
    int pid;              // as the process sees itself
    std::uint64_t bytes;  // whole pages, its contexts' overhead and its code among them
};

struct DeviceView {
    std::uint64_t capacity = 0;  // what cuMemGetInfo calls total
    std::uint64_t reserve = 0;   // of it: nobody can have it
    std::uint64_t free = 0;
    std::vector<HolderView> holders;  // those that hold anything
};

// Looks at `device`. False: nothing can be known from here, because each process has devices of its own (no `shared`
// setting) and this one has not loaded the driver.
//
// Of memory that processes share by a handle the exporter is the holder while it holds it, else the first of the
// others. What only an exported descriptor keeps has no holder.
bool look_at(const Settings& settings, int device, DeviceView& view);

}  // namespace fragscope::sim
