// Memory snapshots of PyTorch as traces: see torch_snapshot.cpp.
#pragma once

#include <vector>

#include "analysis/read/importer.h"
#include "analysis/read/torch_snapshot_file.h"
#include "proto/snapshot.pb.h"

namespace fragscope::analysis {

extern const Importer kTorchSnapshot;

// The sums of each device that has segments or a trace, by ordinal, of what the file says.
std::vector<snapshot::DeviceTotals> totals_of(const SnapshotFile& file);

}  // namespace fragscope::analysis
