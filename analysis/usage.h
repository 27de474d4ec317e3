// By which kind of call a process asked for memory of each device, and how much: what stands for "as this
// program does it".
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "analysis/event.h"

namespace fragscope::analysis {

class UsageRecorder {
  public:
    struct Use {
        std::uint64_t calls = 0;
        std::uint64_t bytes = 0;  // asked for, not what was held at once
    };
    // Every event of the process, in order.
    void add(const Event& event);

    // The kind with most bytes on the device, as the kind of its requests: kBlockRefused stands for blocks of
    // a framework's allocator. Of equal ones the first by the order of kinds. Nothing: none.
    struct Most {
        wire::Kind kind = wire::Kind::kNone;
        Use use;
    };
    std::optional<Most> most_on(int device) const;
    // The device with most bytes, or kNoDevice.
    int busiest() const;

  private:
    std::map<int, std::map<wire::Kind, Use>> uses_;
};

}  // namespace fragscope::analysis
