// A trace in memory to a trace file: what `import` made of another tool's file.
#pragma once

#include <string>

#include "analysis/trace.h"
#include "collector/sink.h"

namespace fragscope::tools {

// Writes all of the trace. Empty: done; else why not, in one sentence, and then there is no whole file.
std::string write_trace(const analysis::Trace& trace, collector::Sink& sink);

}  // namespace fragscope::tools
