// Patterns of messages whose amounts stand in one or a few lines: literal text without white space, with roles
// for the amounts between it. See message_rows.cpp for what is looked for.
//
//   %r request            %f device-free        %c capacity            %l limit of the allocator
//   %u held by it         %i in blocks          %h what the host has   %x taken on the device by anybody
//   %d number of the device                     %% the sign itself
//   %n an amount or a number that is not used   %* anything, up to the next literal
//   %F, %C, %R, %H: the same without a unit, in GiB
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "analysis/quantity.h"

namespace fragscope::analysis {

struct PatternAmounts {
    std::optional<Interval> request;
    std::optional<Interval> device_free;
    std::optional<Interval> capacity;
    std::optional<Interval> limit;
    std::optional<Interval> held;
    std::optional<Interval> in_blocks;
    std::optional<Interval> host;
    std::optional<Interval> taken;
    std::optional<std::uint64_t> device;
    bool contradicts = false;  // two amounts of one role, and no number is both; the last one stands
};

// The bytes of `squeezed` that the pattern takes from its beginning; nothing: it does not stand there. `breaks` are
// the places in it at which lines end, in order: words go on across them, digits do not.
std::optional<std::size_t> match_pattern(std::string_view pattern, std::string_view squeezed,
                                         std::span<const std::size_t> breaks, PatternAmounts& out);

}  // namespace fragscope::analysis
