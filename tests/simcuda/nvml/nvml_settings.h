// What the stand-in management library is told by `nvml.*` settings: README.md, "The management library".
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "settings.h"

namespace fragscope::sim {

struct NvmlSettings {
    enum class Lists { kTold, kEmpty, kForbidden };
    enum class Bytes { kTold, kNotAvailable, kZero };
    std::string driver_version = "580.95.05";
    std::string library_version;  // empty: "13." and the driver's
    std::uint64_t reserved = std::uint64_t{256} << 20;  // bytes beyond what cuMemGetInfo calls total
    bool mig = false;
    Lists processes = Lists::kTold;
    Bytes process_bytes = Bytes::kTold;
    std::uint64_t pid_offset = 0;
    std::uint64_t process_layout = 24;  // bytes of an entry of the third version of the lists: 16, 24 or 32
    std::map<std::string, int> errors;            // by function: what it answers
    std::map<std::string, std::uint64_t> delays;  // by function: nanoseconds that it sleeps first
};

// Reads FRAGSCOPE_SIM_CONFIG and FRAGSCOPE_SIM_NVML_*. Returns "" or what is wrong.
std::string load_nvml_settings(NvmlSettings& settings);

}  // namespace fragscope::sim
