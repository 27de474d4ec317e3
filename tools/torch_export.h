// A trace as a memory snapshot of PyTorch (torch.cuda.memory._snapshot()), so that people can look at it in the viewer
// that they know: what a framework's allocator held at the trace's end, and what it did before.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/read/symbolizer.h"
#include "analysis/trace.h"
#include "tools/pickle_writer.h"

namespace fragscope::tools {

struct ExportedSnapshot {
    std::string problem;  // why there is nothing to write, a sentence without its full stop; empty: written
    std::uint64_t segments = 0;
    std::uint64_t blocks = 0;  // live and waiting
    std::uint64_t entries = 0;
    std::uint64_t outside = 0;  // blocks that lie in no extent of the driver: the format has no place for them
};

// Of one process of the trace.
ExportedSnapshot write_snapshot(const analysis::Trace& trace, analysis::ProcessIndex process,
                                analysis::Symbolizer& symbolizer, PickleWriter& to);

}  // namespace fragscope::tools
