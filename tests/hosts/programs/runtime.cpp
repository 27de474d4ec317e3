// Uses the CUDA runtime only. Compiled against the stand-in runtime: static, shared, and with the per-thread default stream.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
    void *linear = nullptr, *pitched = nullptr, *managed = nullptr, *pinned = nullptr, *pooled = nullptr, *refused = nullptr;
    std::size_t pitch = 0, free_bytes = 0, total_bytes = 0;
    std::printf("linear %d\n", cudaMalloc(&linear, 3 << 20));
    std::printf("pitched %d\n", cudaMallocPitch(&pitched, &pitch, 100, 100));
    std::printf("managed %d\n", cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    std::printf("pinned %d\n", cudaMallocHost(&pinned, 4096));
    std::printf("pooled %d\n", cudaMallocAsync(&pooled, 1 << 20, nullptr));
    std::printf("refused %d", cudaMalloc(&refused, std::size_t{1} << 40));
    std::printf(" last %d", cudaPeekAtLastError());
    std::printf(" %d", cudaGetLastError());
    std::printf(" %d\n", cudaGetLastError());
    std::printf("asked %d", cudaMemGetInfo(&free_bytes, &total_bytes));
    std::printf(" %zu of %zu\n", free_bytes, total_bytes);
    std::printf("freed %d", cudaFreeAsync(pooled, nullptr));
    std::printf(" %d", cudaStreamSynchronize(nullptr));
    std::printf(" %d", cudaFreeHost(pinned));
    std::printf(" %d %d %d\n", cudaFree(managed), cudaFree(pitched), cudaFree(linear));
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult status{};
    std::printf("entry %d", cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &status));
    std::printf(" %d %s\n", static_cast<int>(status), entry != nullptr ? "found" : "absent");
    return 0;
}
