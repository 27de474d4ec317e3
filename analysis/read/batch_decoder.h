// Columns to events: one trace::EventBatch, checked whole before any of its events is taken.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/event.h"
#include "proto/trace.pb.h"

namespace fragscope::analysis {

// Function names of a trace, each once.
class FunctionNames {
  public:
    explicit FunctionNames(std::vector<std::string>& names) : names_(names) {}
    FunctionId intern(const std::string& name);

  private:
    std::vector<std::string>& names_;
    std::unordered_map<std::string, std::uint32_t> ids_;
};

// Appends the batch's events to `out`. Returns an empty string, or what is wrong with it, and then `out` is
// unchanged.
std::string decode_batch(const trace::EventBatch& batch, std::uint64_t max_events, FunctionNames& names,
                         std::vector<Event>& out);

}  // namespace fragscope::analysis
