// Which processes here the management library's process numbers mean.
//
// Older drivers give numbers of the initial PID namespace to everyone; some newer ones give a container the
// numbers of its own namespace, and in places a thread's number for its process's (public reports:
// NVIDIA/gpu-monitoring-tools issue 63, Project-HAMi/HAMi-core issue 112, NVIDIA/open-gpu-kernel-modules pull
// request 614). No call says which it was. So:
//   - in the initial namespace a number is what it says; of a process that is over, or hidden from us,
//     nothing is known;
//   - elsewhere numbers are taken as those of this namespace only where all of a moment's are processes here,
//     and all of these whose mappings can be read, at least one, have the driver loaded; else it is not known
//     what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fragscope::collector {

struct ProcessHere {
    std::int64_t pid = 0;          // as seen from here
    std::uint64_t start_time = 0;  // clock ticks since boot; 0: not known
    std::string name;
};

class NvmlPids {
  public:
    // `proc`: a process file system of this process's own PID namespace, for tests another folder of that
    // form.
    explicit NvmlPids(std::string proc = "/proc");

    struct Resolved {
        std::vector<std::optional<ProcessHere>> here;  // one for each number asked for
        std::string problem;  // why none can be known, in one sentence; empty where that is not so
    };
    // All numbers of one moment together.
    Resolved resolve(const std::vector<std::int64_t>& pids) const;

  private:
    struct Seen {
        ProcessHere process;
        enum class Driver { kNotReadable, kLoaded, kNotLoaded } driver = Driver::kNotReadable;
    };
    std::optional<Seen> look(std::int64_t pid, bool for_driver) const;

    std::string proc_;
    bool initial_namespace_ = false;
    bool own_proc_ = false;  // the folder numbers processes as this namespace does
};

}  // namespace fragscope::collector
