// What the clauses of PyTorch's out-of-memory messages say, in all wordings since 2018.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/quantity.h"

namespace fragscope::analysis {

struct TorchProcess {
    std::optional<std::uint64_t> pid;  // nothing: the process itself
    Interval used;
};

struct TorchMessage {
    enum class Wording : std::uint8_t {
        kCached,    // 2018 to 2019: "(GPU 0; … free; X cached)": X lies in no block
        kReserved,  // 2020 to 2023: "(GPU 0; … X reserved in total by PyTorch)"
        kSentences,  // since 2023: "GPU 0 has a total capacity of …"
        kAsync,     // of the cudaMallocAsync backend
        kMetal      // of Apple's GPUs
    };
    Wording wording = Wording::kSentences;
    std::string platform;  // "CUDA", "HIP", "XPU", …; empty: the message begins behind it
    std::optional<std::uint64_t> gpu;
    std::optional<Interval> tried;
    std::optional<Interval> total;
    std::optional<Interval> device_free;
    std::optional<Interval> allocated;
    std::optional<Interval> active;
    std::optional<Interval> reserved;
    std::optional<Interval> unallocated;      // reserved and in no block
    std::optional<Interval> in_private_pools;
    std::optional<Interval> allowed;          // the most that it may reserve
    std::optional<Interval> other;            // of Metal: of this process, outside of the allocator
    bool without_limit = false;               // it says that there is none
    std::vector<TorchProcess> processes;
    bool whole = false;         // it has its last clause with a number
    std::size_t used_bytes = 0;    // of the text, up to the end of the last clause
    std::size_t capacity_end = 0;  // up to the end of the clause that has the device's capacity
};

// Where a message begins in squeezed text (message_text.h), not before `from`; npos: nowhere.
std::size_t torch_message_at(std::string_view squeezed, std::size_t from);
// The message that begins the text. What follows it is not looked at.
TorchMessage torch_message_in(std::string_view squeezed);

}  // namespace fragscope::analysis
