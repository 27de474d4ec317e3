// How often a request's size recurs in a run, and how many such allocations live at once: what a backing that
// is kept could be used for. A fact of the whole run, not of one moment.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "analysis/quantity.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

struct Recurrence {
    wire::Kind kind = wire::Kind::kNone;
    std::uint64_t bytes = 0;
    std::uint64_t acquisitions = 0;  // successful ones, of this kind and exactly this size
    std::uint64_t most_at_once = 0;
    std::uint64_t at_this_site = 0;  // of them, with the request's call stack
    bool site_known = false;         // the request has one

    // Uses of one backing if all that lived at once had been kept: whole numbers around the quotient. Nothing
    // known where no such allocation succeeded.
    Interval uses() const;
};

// Which allocations are looked for.
struct RequestMade {
    wire::Kind kind = wire::Kind::kNone;
    std::uint64_t bytes = 0;
    std::uint32_t stack = 0;  // 0: no site in particular
    bool operator==(const RequestMade&) const = default;
};

// Of kLinearAcquired, kHandleCreated, kPoolAcquired and kBlockAcquired; nothing is counted for other kinds.
class RecurrenceWatch {
  public:
    RecurrenceWatch(int device, const RequestMade& request);
    // Every event of the process, in order.
    void add(const Event& event);
    const Recurrence& seen() const { return seen_; }
    bool follows(const RequestMade& request) const { return request_ == request; }

  private:
    std::uint64_t name_of(const Event& event) const;

    int device_;
    RequestMade request_;
    wire::Kind release_;  // kNone: nothing is counted
    Recurrence seen_;
    std::unordered_set<std::uint64_t> live_;
};

}  // namespace fragscope::analysis
