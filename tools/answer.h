// What `report` and `explain` have in common: reading the trace, and printing the answer with the right exit
// status.
#pragma once

#include <optional>
#include <string>

#include "analysis/read/importer.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::tools {

// Nothing: one sentence stands on standard error, and the command ends with kCannot.
std::optional<analysis::Trace> read_or_complain(const std::string& path);
// The same for a trace or states; `kind`: what to take it as, empty: as what it looks like.
std::optional<analysis::InputResult> read_input_or_complain(const std::string& path, const std::string& kind);

// Writes to standard output; false, with a sentence on standard error, when that fails.
bool write_answer(const std::string& text);
// The same for a message as one line of JSON.
bool write_json(const google::protobuf::Message& message);

// kDone, or kIncompleteTrace where something is known to be missing from the trace.
int status_of(const report::Health& health);

}  // namespace fragscope::tools
