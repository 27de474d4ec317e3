// The simulated driver's own account of what it did (tests/simcuda/README.md, "Ledger lines"), read from its
// text file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fragscope::soak {

enum class Operation : std::uint8_t {
#define OPERATION(name) k_##name,
#include "tests/soak/operations.def"
};
const char* name_of(Operation operation);

struct Line {
    std::uint64_t time_ns = 0;
    std::uint64_t object = 0;  // address or handle; of contexts and pools a number of the driver's own
    std::uint64_t bytes = 0;   // as asked for
    std::int64_t charged = 0;
    std::uint64_t other = 0;  // the object that this one lies in, refers to or comes from; 0: none
    std::int32_t pid = 0, thread = 0;
    std::int32_t device = -1;
    Operation operation{};
};

// All lines in the file's order, which is that in which things happened inside one process: each is written
// under the driver's lock. Not empty: what is wrong, with the line's number.
std::string read_ledger(const std::string& path, std::vector<Line>& lines);

}  // namespace fragscope::soak
