// Private tables of the driver, passed through; and the profiler switches, which have nothing to switch here.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

cudaError_t cudaGetExportTable(const void** ppExportTable, const cudaUUID_t* pExportTableId) {
    static_assert(sizeof(cudaUUID_t) == sizeof(CUuuid));
    return call_driver(&DriverTable::GetExportTable, ppExportTable, pExportTableId);
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }

cudaError_t cudaProfilerStop() { return cudaSuccess; }
