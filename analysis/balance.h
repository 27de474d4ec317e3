// Where the memory of one device was at one moment: what the driver says is taken, as the sum of what this
// process's books hold, what other recorded processes hold, and a rest that no record explains.
//
// The sum holds by construction: the rest is what the driver says less the parts. It is never clamped in
// silence: a rest below zero for certain shows that the books are wrong or hold for another moment, and is
// said to be a contradiction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/quantity.h"
#include "analysis/situation.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

struct Part {
    std::string id;  // see report::BalancePart
    std::string words;
    Quantity bytes;
};

struct Balance {
    ProcessIndex process;
    int device = kNoDevice;
    std::string device_name;
    std::size_t index = 0;      // of the event in which the driver spoke of the device
    std::uint64_t from_ns = 0;  // while the driver was asked, on the recording machine's clock
    std::uint64_t to_ns = 0;
    Scope scope;
    std::uint64_t capacity = 0;
    std::uint64_t device_free = 0;
    std::vector<Part> parts;
    std::vector<std::string> may_hold;

    std::uint64_t taken() const { return capacity - std::min(device_free, capacity); }
};

// `taken` less the parts.
Margin rest_of(const Balance& balance);
// The rest as a quantity; unknown, with the contradiction as its reason, where it is below zero for certain.
Quantity unattributed_of(const Balance& balance);

report::Balance message_of(const Balance& balance);

// The balance at a failure; nothing where the driver was not asked about the device.
std::optional<Balance> balance_of(const Situation& situation);

}  // namespace fragscope::analysis
