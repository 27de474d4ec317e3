// Compiled by nvcc, with device code: its registration calls and launches go to the stand-in runtime. The simulated
// driver runs no code, so that only the calls' outcomes are checked, not what the kernel would have written.
#include <cstdio>

__global__ void fill(int* values, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) values[i] = i;
}

int main() {
    int* values = nullptr;
    constexpr int kCount = 1000;
    if (cudaMalloc(&values, kCount * sizeof(int)) != cudaSuccess) return 1;
    fill<<<(kCount + 255) / 256, 256>>>(values, kCount);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t finished = cudaDeviceSynchronize();
    std::printf("launch: %s, finish: %s\n", cudaGetErrorString(launched), cudaGetErrorString(finished));
    return launched == cudaSuccess && finished == cudaSuccess && cudaFree(values) == cudaSuccess ? 0 : 1;
}
