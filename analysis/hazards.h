// Memory that somebody may reach, or whose contents somebody may see, beyond its owner's time: two addresses
// of one memory, mappings that outlive a handle or an owner, and memory that goes from one owner to another
// without a recorded write in between.
//
// An owner is what may use memory in its own name: a process, a context of it, or a device that was granted
// access. What kernels read and write has no record, and neither has what the driver clears; so a passing-on
// is possible, never certain, and each hazard says what the trace shows and what it does not.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/framework.h"
#include "analysis/leaks.h"
#include "analysis/sharing.h"
#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/leaks.pb.h"

namespace fragscope::analysis {

// Follows one process and finds memory that changed its owner. Costs next to nothing where the process has
// one context on each device and grants access to one location only.
class HazardWatch {
  public:
    HazardWatch(const Trace& trace, ProcessIndex process);

    // `after`: the state after the event. Every event, in order.
    void add(const ProcessState& after, const Event& event);
    // What was seen up to here.
    std::vector<report::Hazard> found() const;

  private:
    // Memory that has come to another owner, as far as no copy or memset has written to it since.
    struct PassedOn {
        ExtentSet unwritten;  // addresses; of physical allocations offsets
        report::HazardExample example;
    };
    struct Sum {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::vector<report::HazardExample> largest;
        void add(const PassedOn& passed);
    };
    // Who could reach a physical allocation by its present mapping, and by those before.
    struct Reached {
        std::set<std::uint64_t> now, before;  // packed locations
        std::vector<PassedOn> passed_on;
    };

    void find_out_what_is_needed();
    void acquired(const Event& event, ObjectId context, std::uint64_t bytes);
    void released(const Event& event);
    void mapped(const ProcessState& after, const Event& event);
    void granted(const ProcessState& after, const Event& event);
    void touched(const ProcessState& after, const Event& event);
    void forget_gone(const ProcessState& after);
    report::HazardExample example_of(const Event& event, std::uint64_t address) const;
    report::Hazard message_of(const Sum& sum, const std::string& device, const char* what) const;

    const Trace& trace_;
    ProcessIndex process_;
    bool several_contexts_ = false;
    bool several_locations_ = false;
    std::unordered_map<ObjectId, ObjectId> context_of_;  // of streams
    // Addresses by the device and context that used them last.
    std::map<int, std::map<ObjectId, ExtentSet>> used_;
    std::map<std::uint64_t, PassedOn> open_;  // blocks that are live, by address
    std::unordered_map<PhysicalId, Reached> reached_;
    Sum contexts_, locations_;
};

// What the state at one moment shows. `framework` may be null.
std::vector<report::Hazard> hazards_at(const LeakMoment& moment, const Sharing& sharing,
                                       const FrameworkState* framework);

}  // namespace fragscope::analysis
