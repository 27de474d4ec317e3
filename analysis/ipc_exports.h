// Linear memory that a process exported to others (cuIpcGetMemHandle), and what of it the process has freed
// since: the device gets it back only when no importer maps it any more.
#pragma once

#include <cstdint>
#include <map>

namespace fragscope::analysis {

struct IpcExport {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // of the whole allocation, as it was asked for
    int device = -1;
    bool freed = false;
};

class IpcExports {
  public:
    // `identity`: of the exported description; the importer's record has the same.
    void add(std::uint64_t identity, std::uint64_t address, std::uint64_t bytes, int device) {
        if (identity != 0) by_identity_[identity] = {address, bytes, device, false};
    }
    void freed(std::uint64_t address) {
        for (auto& [identity, each] : by_identity_) each.freed = each.freed || each.address == address;
    }
    bool empty() const { return by_identity_.empty(); }
    const std::map<std::uint64_t, IpcExport>& all() const { return by_identity_; }

  private:
    std::map<std::uint64_t, IpcExport> by_identity_;
};

}  // namespace fragscope::analysis
