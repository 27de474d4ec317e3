// Handing out driver functions to the program. Compiled twice (see stream_mode.h): the per-thread variant
// asks for per-thread functions by default.
#include "stream_mode.h"

using namespace fragscope::simrt;

static_assert(int{cudaDriverEntryPointSuccess} == int{CU_GET_PROC_ADDRESS_SUCCESS});
static_assert(int{cudaDriverEntryPointSymbolNotFound} == int{CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND});
static_assert(int{cudaDriverEntryPointVersionNotSufficent} ==
              int{CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT});

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int cudaVersion,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
    if (symbol == nullptr || funcPtr == nullptr) return record(cudaErrorInvalidValue);
    *funcPtr = nullptr;
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return record(error);
    if (flags == cudaEnableDefault && kStreamMode == 1) flags = cudaEnablePerThreadDefaultStream;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const cudaError_t error = call(driver().GetProcAddress, symbol, funcPtr, static_cast<int>(cudaVersion),
                                   cuuint64_t{flags}, &status);
    if (driverStatus != nullptr) *driverStatus = static_cast<cudaDriverEntryPointQueryResult>(status);
    return error;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* driverStatus) {
    return cudaGetDriverEntryPointByVersion(symbol, funcPtr, CUDART_VERSION, flags, driverStatus);
}
