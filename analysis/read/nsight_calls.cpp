#include "analysis/read/nsight_calls.h"

#include <algorithm>
#include <array>

namespace fragscope::analysis {

namespace {

using wire::Kind;

struct Taking {
    std::string_view function;
    Kind kind;
};

constexpr std::array kTaking{
    Taking{"cudaMalloc", Kind::kLinearAcquired},
    Taking{"cuMemAlloc", Kind::kLinearAcquired},
    Taking{"cudaMallocPitch", Kind::kPitchAcquired},
    Taking{"cudaMalloc3D", Kind::kPitchAcquired},
    Taking{"cuMemAllocPitch", Kind::kPitchAcquired},
    Taking{"cudaMallocManaged", Kind::kManagedAcquired},
    Taking{"cuMemAllocManaged", Kind::kManagedAcquired},
    Taking{"cudaMallocAsync", Kind::kPoolAcquired},
    Taking{"cudaMallocFromPoolAsync", Kind::kPoolAcquired},
    Taking{"cuMemAllocAsync", Kind::kPoolAcquired},
    Taking{"cuMemAllocFromPoolAsync", Kind::kPoolAcquired},
    Taking{"cudaMallocArray", Kind::kArrayCreated},
    Taking{"cudaMalloc3DArray", Kind::kArrayCreated},
    Taking{"cudaMallocMipmappedArray", Kind::kArrayCreated},
    Taking{"cuArrayCreate", Kind::kArrayCreated},
    Taking{"cuArray3DCreate", Kind::kArrayCreated},
    Taking{"cuMipmappedArrayCreate", Kind::kArrayCreated},
    Taking{"cudaMallocHost", Kind::kHostAcquired},
    Taking{"cudaHostAlloc", Kind::kHostAcquired},
    Taking{"cuMemAllocHost", Kind::kHostAcquired},
    Taking{"cuMemHostAlloc", Kind::kHostAcquired},
    Taking{"cudaHostRegister", Kind::kHostRegistered},
    Taking{"cuMemHostRegister", Kind::kHostRegistered},
    Taking{"cuMemCreate", Kind::kHandleCreated},
    Taking{"cuMemAddressReserve", Kind::kReserved},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What stands behind the last "_v", if it is a number: its digits; else 0.
std::size_t version_digits(std::string_view name) {
    const std::size_t at = name.rfind("_v");
    if (at == std::string_view::npos || at + 2 == name.size()) return 0;
    const std::string_view digits = name.substr(at + 2);
    return std::all_of(digits.begin(), digits.end(), is_digit) ? digits.size() : 0;
}

std::string_view without_thread_suffix(std::string_view name) {
    if (name.ends_with("_ptsz") || name.ends_with("_ptds")) name.remove_suffix(5);
    return name;
}

}  // namespace

std::string_view nsight_function(std::string_view name) {
    if (!name.starts_with("cuda")) return name;
    if (const std::size_t digits = version_digits(name); digits >= 4) name.remove_suffix(digits + 2);
    return without_thread_suffix(name);
}

Kind taken_by(std::string_view function) {
    function = without_thread_suffix(function);
    if (const std::size_t digits = version_digits(function); digits != 0) function.remove_suffix(digits + 2);
    const auto* const found = std::find_if(kTaking.begin(), kTaking.end(),
                                           [&](const Taking& taking) { return taking.function == function; });
    return found == kTaking.end() ? Kind::kNone : found->kind;
}

}  // namespace fragscope::analysis
