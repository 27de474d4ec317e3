// One eligibility domain of a process at a moment: what lies in it, and the extents between, each kind with
// its own sum, largest and count. Extents of different kinds or domains are never added up.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "analysis/framework.h"
#include "analysis/quantity.h"
#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

enum class DomainKind : std::uint8_t { kPhysical, kVirtual, kPool, kFramework, kHost };

struct DomainName {
    DomainKind kind = DomainKind::kVirtual;
    ObjectId pool;  // of kPool
};

// "physical", "virtual", "framework", "host", "pool:0x7f…". Nothing: it is none of them.
std::optional<DomainName> domain_in(const std::string& asked);

// What of a domain the state alone does not keep; filled by a replay.
class DomainWatch {
  public:
    explicit DomainWatch(DomainName name) : name_(name) {}
    // Every event, in order, with the state after it.
    void add(const ProcessState& after, const Event& event);
    // Nothing: the process had no such pool up to here.
    std::optional<report::DomainExtents> shown(const ProcessState& state, const FrameworkState& framework,
                                               const Trace& trace, ProcessIndex process,
                                               const Scope& scope) const;

  private:
    struct Word {
        std::uint64_t free = 0;
        Sequence sequence;
        TimeNs time;
    };
    DomainName name_;
    ExtentSet ever_in_pool_;     // addresses that the pool ever gave out
    std::map<int, Word> words_;  // the driver's, by device
};

}  // namespace fragscope::analysis
