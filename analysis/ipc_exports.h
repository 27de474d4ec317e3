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
        if (identity == 0) return;
        by_identity_[identity] = {address, bytes, device, false};
        live_.emplace(address, identity);
    }
    void freed(std::uint64_t address) {
        const auto [begin, end] = live_.equal_range(address);
        for (auto each = begin; each != end; ++each) {
            IpcExport& exported = by_identity_[each->second];
            exported.freed = exported.freed || exported.address == address;
        }
        live_.erase(begin, end);
    }
    bool empty() const { return by_identity_.empty(); }
    const std::map<std::uint64_t, IpcExport>& all() const { return by_identity_; }

  private:
    std::map<std::uint64_t, IpcExport> by_identity_;
    std::multimap<std::uint64_t, std::uint64_t> live_;  // identities by address, until that is freed
};

}  // namespace fragscope::analysis
