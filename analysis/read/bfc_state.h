// The state that a dump of the BFC allocator tells of, in whole or in part. bfc_dump.cpp reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/imported_state.h"

namespace fragscope::analysis {

struct BfcChunk {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    bool in_use = false;
};

struct BfcDump {
    static constexpr std::uint64_t kUnit = 256;  // every chunk has whole ones

    std::uint64_t first_line = 0;
    std::uint64_t last_line = 0;
    std::string allocator;             // "GPU_0_bfc"
    std::optional<Interval> request;   // as it was asked for
    std::optional<Interval> rounded;   // to whole units
    std::vector<std::uint64_t> regions;  // sizes, in order, where the dump names them
    std::vector<std::size_t> region_begins;  // of each, how many chunks were listed before it
    std::vector<BfcChunk> chunks;
    std::optional<std::uint64_t> limit;
    std::optional<std::uint64_t> in_use;         // of the statistics
    std::optional<Interval> in_use_in_words;     // "Sum Total of in-use chunks"
    std::optional<std::uint64_t> in_use_by_size;  // the sum of the summary by size
    std::optional<std::uint64_t> pool;           // in all regions
    std::vector<std::string> contradictions;

    bool anything() const {
        return request || rounded || !chunks.empty() || limit || in_use || in_use_in_words || pool;
    }
    bool states_memory() const { return !chunks.empty() || limit || in_use || in_use_in_words || pool; }
};

ImportedState state_of(const BfcDump& dump);

}  // namespace fragscope::analysis
