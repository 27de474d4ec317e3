// Which balances a report shows: of each process and device the first, the fullest, each failure's and the
// last, with what happened from one to the next; and the rest over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/balance.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

struct FailedAt {
    std::uint32_t number = 0;
    Balance balance;
};

// `samples` with their neighbours' parts. Time lines of `out` are there already.
void add_balances(const Trace& trace, const std::vector<Balance>& samples,
                  const std::vector<FailedAt>& failures, report::Report& out);

// Index of the event in which the driver last spoke of the balance's device before `index`, or 0.
std::size_t last_asked_before(const Trace& trace, const Balance& balance, std::size_t index);

}  // namespace fragscope::analysis
