// Columns to events. A batch is checked whole before any of its events is made, and checking makes none: so a
// file can be checked when it is opened and decoded when it is needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/event_log.h"
#include "analysis/read/batch_columns.h"

namespace fragscope::analysis {

// Function names of a trace, each once.
class FunctionNames {
  public:
    FunctionId intern(std::string_view name);
    const std::vector<std::string>& list() const { return names_; }  // by FunctionId

  private:
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::uint32_t> ids_;
};

// What checking a batch shows of it.
inline constexpr std::size_t kSampled = 4096;
struct BatchFacts {
    std::uint64_t first = 0;  // sequence numbers
    std::uint64_t last = 0;
    std::vector<std::uint64_t> samples;  // the sequence number of each kSampled-th event, from the first on
    BlockFacts block;                    // without its place in the log
};

// Empty: every event can be made. Else what is wrong with the batch. `facts`, unless null, is filled in where
// nothing is wrong.
std::string check_batch(const BatchColumns& batch, std::uint64_t max_events, BatchFacts* facts);

// Of the batch's events those from `from` to `to` (not included), in order, to `out` on, all fields set.
// `functions` names those of the batch. Only of a batch that was checked.
void decode_batch(const BatchColumns& batch, const std::vector<FunctionId>& functions, std::size_t from,
                  std::size_t to, Event* out);

// The sequence numbers of all its events. Only of a batch that was checked.
std::vector<std::uint64_t> sequences_of(const BatchColumns& batch);

}  // namespace fragscope::analysis
