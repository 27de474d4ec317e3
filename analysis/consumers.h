// Who used memory of each kind in a process, as far as its calls show it: what they demand of its layout
// stands in contract.h.
//
// An address is looked up in the state of the moment at which the call named it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/event.h"
#include "analysis/state.h"

namespace fragscope::analysis {

// Memory by the kind of call that made it.
enum class MadeBy : std::uint8_t { kLinear, kHandle, kPool, kManaged, kAny };
inline constexpr std::size_t kMadeBys = 5;

enum class Use : std::uint8_t {
    kCopied,          // named in a copy or memset
    kIpcExported,     // cuIpcGetMemHandle
    kRangeExported,   // cuMemGetHandleForAddressRange
    kHandleExported,  // cuMemExportToShareableHandle
    kPoolExported,    // the pool, or a pointer of it
    kPeers,           // other devices were given access
    kMulticast,       // bound to a multicast object
    kArrays,          // behind an array
    kGraphs,          // graphs were launched, which keep the addresses that they were made with
    kBlocks,          // a framework's allocator cuts blocks out of it
    kStitched,        // several handles side by side in one reservation
};
inline constexpr std::size_t kUses = 11;

class ConsumerRecorder {
  public:
    struct Seen {
        std::uint64_t count = 0;
        std::vector<FunctionId> functions;  // by which it was seen; the first few
    };
    // `state` after the event. Every event, in order.
    void add(const ProcessState& state, const Event& event);
    // Of memory that was made so, or of all kinds; nothing: it was not seen.
    const Seen* seen(Use use, MadeBy kind) const;

  private:
    void note(Use use, MadeBy kind, const Event& event);

    std::array<std::array<Seen, kMadeBys>, kUses> seen_;
    // What a framework's blocks lie in: the first ones are looked up, the many that follow are taken to lie
    // as the last of those did.
    MadeBy blocks_lie_in_ = MadeBy::kAny;
    std::uint32_t blocks_looked_up_ = 0;
};

}  // namespace fragscope::analysis
