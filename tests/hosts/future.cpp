// What the driver of driver-14.0/ has beyond the simulated driver: a variant of a known function with other parameters under
// its old name (as cuCtxCreate and cuCtxGetDevice had with CUDA 13), a new function, a newer resolver, and a variant that
// only the resolver hands out. None of them may be taken for what it is not.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "procaddress.h"

namespace {

constexpr unsigned long long kMark = 0x1234567890abcdef;

// Exported under no name.
CUresult hidden_free(CUdeviceptr address, unsigned long long mark) {
    return mark == kMark ? ::cuMemFree_v2(address) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {
CUresult cuMemAlloc_v3(unsigned long long mark, CUdeviceptr* out, std::size_t bytes) {
    return mark == kMark ? ::cuMemAlloc_v2(out, bytes) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuFutureAlloc(CUdeviceptr* out, std::size_t bytes, int many) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < many && result == CUDA_SUCCESS; ++i) result = ::cuMemAlloc_v2(out + i, bytes);
    return result;
}
CUresult cuGetProcAddress_v3(unsigned long long mark, const char* name, void** out) {
    return mark == kMark ? ::cuGetProcAddress_v2(name, out, 14000, 0, nullptr) : CUDA_ERROR_INVALID_VALUE;
}
}

namespace fragscope::sim {

using Rows = const std::vector<LookupRow>&;
Rows real_lookup_rows() asm("__real__ZN9fragscope3sim11lookup_rowsEv");
Rows more_lookup_rows() asm("__wrap__ZN9fragscope3sim11lookup_rowsEv");

Rows more_lookup_rows() {
    static const std::vector<LookupRow> rows = [] {
        std::vector<LookupRow> all = real_lookup_rows();
        const auto code = [](auto* function) { return reinterpret_cast<LookupRow::Code>(function); };
        all.push_back({"cuMemAlloc", 14000, false, "cuMemAlloc_v3", code(&cuMemAlloc_v3)});
        all.push_back({"cuFutureAlloc", 14000, false, "cuFutureAlloc", code(&cuFutureAlloc)});
        all.push_back({"cuMemFree", 14000, false, "cuMemFree_v3", code(&hidden_free)});
        all.push_back({"cuGetProcAddress", 14000, false, "cuGetProcAddress_v3", code(&cuGetProcAddress_v3)});
        std::stable_sort(all.begin(), all.end(), [](const LookupRow& a, const LookupRow& b) {
            const int order = std::strcmp(a.base, b.base);
            if (order != 0) return order < 0;
            return a.per_thread != b.per_thread ? b.per_thread : a.version < b.version;
        });
        return all;
    }();
    return rows;
}

}  // namespace fragscope::sim
