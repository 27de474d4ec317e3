// Allocates once by every mechanism, uses what it got, and frees all of it: nothing fails, and at the end
// nothing is left. Links libcuda directly for the VMM part.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <vector>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Allocates and frees by every mechanism: linear, pitched, managed, pinned, registered, array, "
    "stream-ordered,\n"
    "explicit pool, VMM. Exit code 0.\n";

constexpr std::size_t kBytes = 3 * demo::kMiB + 512;

cudaError_t linear() {
    void* pointer = nullptr;
    std::vector<unsigned char> out(kBytes, 0x11);
    std::vector<unsigned char> in(kBytes, 0);
    if (const cudaError_t error = cudaMalloc(&pointer, kBytes)) return error;
    if (const cudaError_t error = cudaMemcpy(pointer, out.data(), kBytes, cudaMemcpyHostToDevice))
        return error;
    if (const cudaError_t error = cudaMemcpy(in.data(), pointer, kBytes, cudaMemcpyDeviceToHost))
        return error;
    if (in != out) return cudaErrorUnknown;
    return cudaFree(pointer);
}

cudaError_t pitched() {
    void* pointer = nullptr;
    std::size_t pitch = 0;
    if (const cudaError_t error = cudaMallocPitch(&pointer, &pitch, 1000, 300)) return error;
    if (const cudaError_t error = cudaMemset2D(pointer, pitch, 0, 1000, 300)) return error;
    return cudaFree(pointer);
}

cudaError_t managed() {
    void* pointer = nullptr;
    if (const cudaError_t error = cudaMallocManaged(&pointer, kBytes)) return error;
    static_cast<unsigned char*>(pointer)[kBytes - 1] = 1;
    return cudaFree(pointer);
}

cudaError_t pinned() {
    void* pointer = nullptr;
    if (const cudaError_t error = cudaMallocHost(&pointer, kBytes)) return error;
    std::memset(pointer, 0, kBytes);
    if (const cudaError_t error = cudaFreeHost(pointer)) return error;
    if (const cudaError_t error = cudaHostAlloc(&pointer, kBytes, cudaHostAllocMapped)) return error;
    return cudaFreeHost(pointer);
}

cudaError_t registered() {
    constexpr std::size_t kPage = 4096;
    void* pointer = std::aligned_alloc(kPage, 4 * kPage);
    if (pointer == nullptr) return cudaErrorUnknown;
    cudaError_t error = cudaHostRegister(pointer, 4 * kPage, cudaHostRegisterDefault);
    if (error == cudaSuccess) error = cudaHostUnregister(pointer);
    std::free(pointer);
    return error;
}

cudaError_t array() {
    cudaArray_t texture = nullptr;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    if (const cudaError_t error = cudaMallocArray(&texture, &format, 256, 128)) return error;
    return cudaFreeArray(texture);
}

cudaError_t stream_ordered() {
    cudaStream_t stream = nullptr;
    void* pointer = nullptr;
    if (const cudaError_t error = cudaStreamCreate(&stream)) return error;
    if (const cudaError_t error = cudaMallocAsync(&pointer, kBytes, stream)) return error;
    if (const cudaError_t error = cudaMemsetAsync(pointer, 0, kBytes, stream)) return error;
    if (const cudaError_t error = cudaFreeAsync(pointer, stream)) return error;
    if (const cudaError_t error = cudaStreamSynchronize(stream)) return error;
    return cudaStreamDestroy(stream);
}

cudaError_t explicit_pool() {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t pool = nullptr;
    void* pointer = nullptr;
    if (const cudaError_t error = cudaMemPoolCreate(&pool, &properties)) return error;
    if (const cudaError_t error = cudaMallocFromPoolAsync(&pointer, kBytes, pool, nullptr)) return error;
    if (const cudaError_t error = cudaFreeAsync(pointer, nullptr)) return error;
    if (const cudaError_t error = cudaDeviceSynchronize()) return error;
    return cudaMemPoolDestroy(pool);
}

cudaError_t vmm() {
    CUmemAllocationProp where = {};
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    where.location.id = 0;
    std::size_t granule = 0;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access = {};
    access.location = where.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    bool good =
        cuMemGetAllocationGranularity(&granule, &where, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
        cuMemAddressReserve(&address, 4 * granule, 0, 0, 0) == CUDA_SUCCESS &&
        cuMemCreate(&handle, 2 * granule, &where, 0) == CUDA_SUCCESS &&
        cuMemMap(address, 2 * granule, 0, handle, 0) == CUDA_SUCCESS &&
        cuMemSetAccess(address, 2 * granule, &access, 1) == CUDA_SUCCESS &&
        cuMemsetD8(address, 7, granule) == CUDA_SUCCESS;
    good = good && cuMemUnmap(address, 2 * granule) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_SUCCESS &&
           cuMemAddressFree(address, 4 * granule) == CUDA_SUCCESS;
    return good ? cudaSuccess : cudaErrorUnknown;
}

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    struct Part {
        const char* name;
        cudaError_t (*run)();
    };
    const Part parts[] = {{"linear", linear},
                          {"pitched", pitched},
                          {"managed", managed},
                          {"pinned", pinned},
                          {"registered", registered},
                          {"array", array},
                          {"stream-ordered", stream_ordered},
                          {"explicit pool", explicit_pool},
                          {"VMM", vmm}};
    for (const Part& part : parts) {
        if (const cudaError_t error = part.run()) return demo::no_scene(part.name, error);
        demo::say("%s: allocated, used, freed", part.name);
    }
    return demo::kFinished;
}
