#include "analysis/foreign.h"

#include <algorithm>

namespace fragscope::analysis {

void ForeignMemory::open(std::uint64_t address, Foreign opened) {
    const auto [at, fresh] = at_.try_emplace(address, opened);
    if (!fresh && at->second.kind != opened.kind) {
        at->second = opened;
        at->second.references = 0;
    }
    ++at->second.references;
}

bool ForeignMemory::close(std::uint64_t address, ForeignKind kind) {
    const auto found = at_.find(address);
    if (found == at_.end() || found->second.kind != kind) return false;
    if (--found->second.references == 0) at_.erase(found);
    return true;
}

bool ForeignMemory::release(std::uint64_t address) {
    const auto found = at_.find(address);
    return found != at_.end() && close(address, found->second.kind);
}

void ForeignMemory::unmap_graphics(ObjectId resource) {
    std::erase_if(at_, [&](const auto& one) {
        return one.second.kind == ForeignKind::kGraphics && one.second.object == resource;
    });
}

std::uint64_t ForeignMemory::external_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [object, bytes] : external_) sum += std::min(bytes, UINT64_MAX - sum);
    return sum;
}

}  // namespace fragscope::analysis
