// cudaDeviceProp: a table of which driver attribute fills which field. A field without a row has no attribute
// in the driver interface and stays 0.
#include <cuda_runtime_api.h>

#include <cstring>
#include <limits>

#include "state.h"

using namespace fragscope::simrt;

namespace {

// Where an attribute goes: most fields are int, some size_t, a few unsigned.
struct Field {
    CUdevice_attribute attribute;
    int cudaDeviceProp::*as_int = nullptr;
    size_t cudaDeviceProp::*as_size = nullptr;
    unsigned cudaDeviceProp::*as_unsigned = nullptr;

    Field(CUdevice_attribute a, int cudaDeviceProp::*field) : attribute(a), as_int(field) {}
    Field(CUdevice_attribute a, size_t cudaDeviceProp::*field) : attribute(a), as_size(field) {}
    Field(CUdevice_attribute a, unsigned cudaDeviceProp::*field) : attribute(a), as_unsigned(field) {}
};

struct ElementField {
    CUdevice_attribute attribute;
    int* place;
};

int query(CUdevice device, CUdevice_attribute attribute) {
    int value = 0;
    if (driver().DeviceGetAttribute == nullptr) return 0;
    return driver().DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

void fill_single_fields(CUdevice device, cudaDeviceProp* prop) {
    using P = cudaDeviceProp;
    const Field fields[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &P::sharedMemPerBlock},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &P::regsPerBlock},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &P::warpSize},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &P::memPitch},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &P::maxThreadsPerBlock},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &P::totalConstMem},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &P::major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &P::minor},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &P::textureAlignment},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, &P::texturePitchAlignment},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &P::multiProcessorCount},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, &P::integrated},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &P::canMapHostMemory},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, &P::maxTexture1D},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, &P::maxTexture1DMipmap},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, &P::maxTextureCubemap},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, &P::maxSurface1D},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, &P::maxSurfaceCubemap},
        {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, &P::surfaceAlignment},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, &P::concurrentKernels},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, &P::ECCEnabled},
        {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &P::pciBusID},
        {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &P::pciDeviceID},
        {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &P::pciDomainID},
        {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, &P::tccDriver},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &P::asyncEngineCount},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &P::unifiedAddressing},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &P::memoryBusWidth},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &P::l2CacheSize},
        {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, &P::persistingL2CacheMaxSize},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &P::maxThreadsPerMultiProcessor},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, &P::streamPrioritiesSupported},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, &P::globalL1CacheSupported},
        {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, &P::localL1CacheSupported},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &P::sharedMemPerMultiprocessor},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &P::regsPerMultiprocessor},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &P::managedMemory},
        {CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, &P::isMultiGpuBoard},
        {CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID, &P::multiGpuBoardGroupID},
        {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, &P::hostNativeAtomicSupported},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &P::pageableMemoryAccess},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &P::concurrentManagedAccess},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, &P::computePreemptionSupported},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, &P::canUseHostPointerForRegisteredMem},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &P::cooperativeLaunch},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &P::sharedMemPerBlockOptin},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
         &P::pageableMemoryAccessUsesHostPageTables},
        {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, &P::directManagedMemAccessFromHost},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &P::maxBlocksPerMultiProcessor},
        {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, &P::accessPolicyMaxWindowSize},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, &P::reservedSharedMemPerBlock},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, &P::hostRegisterSupported},
        {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, &P::sparseCudaArraySupported},
        {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, &P::hostRegisterReadOnlySupported},
        {CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, &P::timelineSemaphoreInteropSupported},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &P::memoryPoolsSupported},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, &P::gpuDirectRDMASupported},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, &P::gpuDirectRDMAFlushWritesOptions},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, &P::gpuDirectRDMAWritesOrdering},
        {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, &P::memoryPoolSupportedHandleTypes},
        {CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, &P::deferredMappingCudaArraySupported},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, &P::ipcEventSupported},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, &P::clusterLaunch},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, &P::unifiedFunctionPointers},
#if CUDA_VERSION >= 13000
        {CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, &P::deviceNumaConfig},
        {CU_DEVICE_ATTRIBUTE_NUMA_ID, &P::deviceNumaId},
        {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, &P::mpsEnabled},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, &P::hostNumaId},
        {CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID, &P::gpuPciDeviceID},
        {CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID, &P::gpuPciSubsystemID},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, &P::hostNumaMultinodeIpcSupported},
#else
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &P::clockRate},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, &P::deviceOverlap},
        {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, &P::kernelExecTimeoutEnabled},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &P::computeMode},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, &P::maxTexture1DLinear},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &P::memoryClockRate},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, &P::singleToDoublePrecisionPerfRatio},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, &P::cooperativeMultiDeviceLaunch},
#endif
    };
    for (const Field& field : fields) {
        const int value = query(device, field.attribute);
        if (field.as_int != nullptr)
            prop->*field.as_int = value;
        else if (field.as_size != nullptr)
            prop->*field.as_size = value < 0 ? 0 : static_cast<size_t>(value);
        else
            prop->*field.as_unsigned = static_cast<unsigned>(value);
    }
}

void fill_array_fields(CUdevice device, cudaDeviceProp* prop) {
    const ElementField fields[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &prop->maxThreadsDim[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &prop->maxThreadsDim[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &prop->maxThreadsDim[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &prop->maxGridSize[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &prop->maxGridSize[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &prop->maxGridSize[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, &prop->maxTexture2D[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, &prop->maxTexture2D[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, &prop->maxTexture2DMipmap[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, &prop->maxTexture2DMipmap[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, &prop->maxTexture2DLinear[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, &prop->maxTexture2DLinear[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, &prop->maxTexture2DLinear[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, &prop->maxTexture2DGather[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, &prop->maxTexture2DGather[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, &prop->maxTexture3D[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, &prop->maxTexture3D[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, &prop->maxTexture3D[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, &prop->maxTexture3DAlt[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, &prop->maxTexture3DAlt[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, &prop->maxTexture3DAlt[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, &prop->maxTexture1DLayered[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, &prop->maxTexture1DLayered[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, &prop->maxTexture2DLayered[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, &prop->maxTexture2DLayered[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, &prop->maxTexture2DLayered[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, &prop->maxTextureCubemapLayered[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, &prop->maxTextureCubemapLayered[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, &prop->maxSurface2D[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, &prop->maxSurface2D[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, &prop->maxSurface3D[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, &prop->maxSurface3D[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, &prop->maxSurface3D[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, &prop->maxSurface1DLayered[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, &prop->maxSurface1DLayered[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, &prop->maxSurface2DLayered[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, &prop->maxSurface2DLayered[1]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, &prop->maxSurface2DLayered[2]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, &prop->maxSurfaceCubemapLayered[0]},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, &prop->maxSurfaceCubemapLayered[1]},
    };
    for (const ElementField& field : fields) *field.place = query(device, field.attribute);
}

}  // namespace

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
    if (prop == nullptr) return record(cudaErrorInvalidValue);
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    *prop = {};
    constexpr int kNameBytes = static_cast<int>(sizeof prop->name);
    if (const cudaError_t error = call(driver().DeviceGetName, prop->name, kNameBytes, handle);
        error != cudaSuccess)
        return error;
    if (const cudaError_t error = call(driver().DeviceTotalMem, &prop->totalGlobalMem, handle);
        error != cudaSuccess)
        return error;
    CUuuid uuid = {};
    if (const cudaError_t error = call(driver().DeviceGetUuid, &uuid, handle); error != cudaSuccess)
        return error;
    static_assert(sizeof uuid == sizeof prop->uuid);
    std::memcpy(&prop->uuid, &uuid, sizeof uuid);
    fill_single_fields(handle, prop);
    fill_array_fields(handle, prop);
    return cudaSuccess;
}

// The device whose compute capability and memory come closest to what is asked for: those are the two wishes
// that this stand-in understands.
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* prop) {
    if (device == nullptr || prop == nullptr) return record(cudaErrorInvalidValue);
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return error;
    int best_score = std::numeric_limits<int>::min();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        cudaDeviceProp candidate = {};
        const cudaError_t error = cudaGetDeviceProperties(&candidate, ordinal);
        if (error != cudaSuccess) return error;
        const bool able = candidate.major * 100 + candidate.minor >= prop->major * 100 + prop->minor;
        const int score = (able ? 2 : 0) + (candidate.totalGlobalMem >= prop->totalGlobalMem ? 1 : 0);
        if (score > best_score) {
            best_score = score;
            *device = ordinal;
        }
    }
    return cudaSuccess;
}
