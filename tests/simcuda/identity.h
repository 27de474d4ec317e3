// What a simulated device is called by everyone: the driver and the management library.
#pragma once

#include <cstring>

namespace fragscope::sim {

// "FRAGSCOPE SIM" and the ordinal: the same in every process, so that devices can be told apart across processes.
inline void fill_uuid(char (&bytes)[16], int device) {
    static constexpr char kText[] = "FRAGSCOPE SIM";
    std::memset(bytes, 0, sizeof bytes);
    std::memcpy(bytes, kText, sizeof kText - 1);
    bytes[15] = static_cast<char>(device);
}

}  // namespace fragscope::sim
