// A library that is opened with RTLD_DEEPBIND: its calls of the driver go past every recorder.
#include <cuda.h>

extern "C" CUdeviceptr past_keep(std::size_t bytes) {
    CUdeviceptr address = 0;
    return cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? address : 0;
}

extern "C" int past_pass(std::size_t bytes) {
    const CUdeviceptr address = past_keep(bytes);
    return address != 0 && cuMemFree(address) == CUDA_SUCCESS ? 0 : 1;
}

extern "C" int past_free(CUdeviceptr address) { return cuMemFree(address) == CUDA_SUCCESS ? 0 : 1; }
