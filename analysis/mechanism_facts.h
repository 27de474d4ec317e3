// What a comparison of mechanisms needs beside the moment's numbers: facts of the whole run of one process on
// one device. They are no quantities of any snapshot, and none of them is combined with one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/clients.h"
#include "analysis/recurrence.h"
#include "analysis/sized_times.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// What the device and its driver can do. Absent: the trace does not say.
struct Capability {
    std::optional<bool> there;
    std::string how;
};

struct MechanismFacts {
    SizedTimes times;
    Recurrence reuse;
    std::vector<Client> clients;
    Capability virtual_memory;
    Capability pools;
    std::uint64_t ipc_exports = 0;  // successful cuIpcGetMemHandle of the process
    bool creates_handles = false;   // the process itself, or a framework in it
    bool uses_pools = false;
};

// What is witnessed stands in `facts`: adds what the device's attributes say.
void add_capabilities(MechanismFacts& facts, const Trace& trace, ProcessIndex process, int device);

}  // namespace fragscope::analysis
