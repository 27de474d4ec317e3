// The names of a snapshot as a trace has them: a text for each place in source that a call stack names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "analysis/read/torch_snapshot_file.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

class SnapshotNames {
  public:
    SnapshotNames(const SnapshotFile& file, ProcessNames& names) : file_(file), names_(names) {}

    // Stacks keep their numbers; those beyond what a trace can hold are left out.
    void add_stacks();
    // The number of a text; 0: there is room for no more.
    std::uint32_t text(const std::string& text);
    // Of SnapshotFile::texts.
    std::uint32_t text(std::uint32_t of_file);
    std::uint32_t stack(std::uint32_t of_file) const;
    bool complete() const { return complete_; }

  private:
    std::uint32_t place(const SnapshotFrame& frame);

    const SnapshotFile& file_;
    ProcessNames& names_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> places_;
    std::map<std::uint32_t, std::uint32_t> texts_;
    bool complete_ = true;
};

}  // namespace fragscope::analysis
