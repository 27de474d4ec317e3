// Addresses in a process whose memory belongs to somebody else: other processes that exported it, or other
// programming interfaces (Vulkan, OpenGL, Direct3D). Nothing of it is ever in this process's books; what is
// kept here tells that releasing such an address is in order, and that somebody holds on to it.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "analysis/event.h"

namespace fragscope::analysis {

enum class ForeignKind : std::uint8_t { kIpc, kPoolPointer, kExternal, kGraphics };

struct Foreign {
    ForeignKind kind = ForeignKind::kIpc;
    std::uint64_t bytes = 0;     // 0: the call says no size
    ObjectId object;             // pool, external memory or graphics resource that it came from
    std::uint64_t identity = 0;  // of the exported description, where the record has it
    std::uint32_t references = 0;
    int device = kNoDevice;
};

class ForeignMemory {
  public:
    // One more opening of an address; the driver gives the same one again for the same memory.
    void open(std::uint64_t address, Foreign opened);
    // One opening less. False: nothing of this kind is there.
    bool close(std::uint64_t address, ForeignKind kind);
    // cuMemFree and cuMemFreeAsync of an address. False: no foreign memory is there.
    bool release(std::uint64_t address);
    // Whatever else begins at an address now: the closing of what was there is missing. False: nothing was.
    bool forget(std::uint64_t address) { return !at_.empty() && at_.erase(address) != 0; }
    void unmap_graphics(ObjectId resource);

    void import_external(ObjectId external, std::uint64_t bytes) { external_[external] = bytes; }
    bool release_external(ObjectId external) { return external_.erase(external) != 0; }

    const std::map<std::uint64_t, Foreign>& addresses() const { return at_; }
    std::uint64_t external_bytes() const;  // sizes of external memory that is imported now

  private:
    std::map<std::uint64_t, Foreign> at_;
    std::unordered_map<ObjectId, std::uint64_t> external_;
};

}  // namespace fragscope::analysis
