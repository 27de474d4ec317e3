// CUresult values by their names in cuda.h.
#pragma once

#include <cstdint>
#include <string>

namespace fragscope::analysis {

// "CUDA_ERROR_OUT_OF_MEMORY"; "CUresult 1234" for a value that cuda.h does not name.
std::string result_name(std::uint16_t result);

}  // namespace fragscope::analysis
