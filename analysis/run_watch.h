// Facts of the whole run of one process: what calls took, how often requests recur, what made and used
// memory. All of them in one pass over its events, which may be the pass that replays them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "analysis/call_times.h"
#include "analysis/mechanism_facts.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

class RunWatch {
  public:
    // Times of calls by size are those of this device. Of requests only those in `likely` are followed. The
    // trace must outlive it.
    RunWatch(const Trace& trace, ProcessIndex process, int device, const std::vector<RequestMade>& likely);

    // The process's events, each once and in order. The first `read()` of them were.
    void add(std::span<const Event> events);
    std::size_t read() const { return read_; }
    // The rest of the log. Whatever is asked below is about what was read.
    void finish();

    TimesByKind call_times() const;
    // Whether `facts` of such a request can be told.
    bool follows(int device, const RequestMade& request) const;
    MechanismFacts facts(const RequestMade& request) const;  // on the device, of a request that is followed

  private:
    const Trace* trace_;
    ProcessIndex process_;
    int device_;
    CallTimesWatch call_times_;
    SizedTimesWatch sized_;
    std::vector<RecurrenceWatch> reuse_;
    BlockTellers tellers_;
    std::uint64_t ipc_exports_ = 0;
    bool creates_handles_ = false;
    bool uses_pools_ = false;
    std::size_t read_ = 0;
};

}  // namespace fragscope::analysis
