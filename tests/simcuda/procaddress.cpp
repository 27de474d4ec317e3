// cuGetProcAddress: cuda.h says what it answers; facts of its callers are in README.md.
#include "procaddress.h"

#include <algorithm>
#include <cstring>

#include "call.h"
#include "log.h"

namespace fragscope::sim {
namespace {

struct Answer {
    const LookupRow* row = nullptr;
    bool known = false;  // the name exists, perhaps only from a later version on
};

// The newest row that a program of `version` may have, in a driver that lacks what came after it.
Answer look_up(const char* name, int version, bool per_thread) {
    const auto& rows = lookup_rows();
    auto at = std::lower_bound(rows.begin(), rows.end(), name, [](const LookupRow& row, const char* wanted) {
        return std::strcmp(row.base, wanted) < 0;
    });
    Answer answer;
    for (; at != rows.end() && std::strcmp(at->base, name) == 0; ++at) {
        if (at->version > reported_driver_version() || at->per_thread != per_thread) continue;
        answer.known = true;
        if (at->version <= version) answer.row = &*at;
    }
    return answer;
}

CUresult get(const char* symbol, void** pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
    if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pfn = nullptr;
    if (version > reported_driver_version()) return CUDA_ERROR_INVALID_VALUE;
    const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    Answer answer;
    if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) answer = look_up(symbol, version, true);
    // Where there is no per-thread variant the legacy one is the answer.
    if (answer.row == nullptr) {
        const bool known_per_thread = answer.known;
        answer = look_up(symbol, version, false);
        answer.known = answer.known || known_per_thread;
    }
    const CUdriverProcAddressQueryResult result = answer.row != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                                                  : answer.known        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (answer.row != nullptr) *pfn = reinterpret_cast<void*>(answer.row->function);
    if (status != nullptr) *status = result;
    log_lookup(symbol, version, flags, answer.row == nullptr ? nullptr : answer.row->symbol, result);
    return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
    return get(symbol, pfn, cudaVersion, flags, symbolStatus);
}

// Has no status: what is not there is an error (cuda.h of CUDA 11).
CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
    const CUresult result = get(symbol, pfn, cudaVersion, flags, nullptr);
    return result == CUDA_SUCCESS && *pfn == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

}  // namespace impl
}  // namespace fragscope::sim
