// What the driver said of a device at a moment that no failed call need mark: in a sample of the recorder, in
// its questions after a failed call, or when the program itself asked.
//
// A word belongs to a moment if no recorded call of the process took or gave back device memory between the
// two: the numbers of any other moment are never used.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "analysis/failures.h"
#include "analysis/quantity.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// Events [begin, end) around a moment (begin <= moment <= end) that neither take nor give back device memory.
struct Stillness {
    std::size_t begin = 0;
    std::size_t end = 0;
};
Stillness stillness_at(const EventLog& events, std::size_t moment);

struct DriverWord {
    FailureSnapshot snapshot;  // its `moment` is the one that was asked for
    std::size_t index = 0;     // of the event in which the device was asked
    Interval device_free;      // as said; wider where calls of other threads were under way then
    bool apart = false;        // calls of the process that change nothing lie between it and the moment
    std::string when;          // "which the recorder asked at this moment"
};

// Of several words the nearest. Nothing: the driver was not asked of this device.
std::optional<DriverWord> driver_word_at(const EventLog& events, std::size_t moment, int device,
                                         std::uint64_t page);

// Sequence numbers of the last and the first event before and after the moment in which the driver was asked
// of the device, whatever happened in between.
struct NearestWords {
    std::optional<Sequence> before, after;
};
NearestWords nearest_words(const EventLog& events, std::size_t moment, int device);

}  // namespace fragscope::analysis
