#include "tests/soak/steps.h"

#include <sys/wait.h>
#include <unistd.h>

namespace fragscope::soak {

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kHostPage = 4096;

CUmemAllocationProp on(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
}

}  // namespace

bool Shared::start() {
    if (cuInit(0) != CUDA_SUCCESS) return false;
    for (int device = 0; device < 2; ++device)
        for (int again = 0; again < 2; ++again)
            if (cuDevicePrimaryCtxRetain(&contexts[device], device) != CUDA_SUCCESS) return false;
    return true;
}

void Shared::stop() {
    for (int device = 0; device < 2; ++device)
        for (int again = 0; again < 2; ++again) cuDevicePrimaryCtxRelease_v2(device);
}

Steps::Steps(Shared& shared, unsigned seed, bool first)
    : shared_(shared),
      random_(seed),
      first_(first),
      device_(static_cast<int>(seed % 2)),
      room_(16 * kHostPage) {
    cuCtxSetCurrent(shared_.contexts[device_]);
    cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
}

std::size_t Steps::some_bytes(unsigned most_bits) {
    const unsigned bits = below(most_bits) + 1;
    return 1 + random_() % (std::size_t{1} << bits);
}

void Steps::step() {
    switch (below(40)) {
        case 0:
            return below(2) == 0 ? pitch() : array();
        case 1:
        case 2:
            return managed();
        case 3:
            return host();
        case 4:
            return registered();
        case 5:
        case 6:
            return reservation();
        case 7:
        case 8:
        case 9:
        case 10:
        case 11:
            return grow();
        case 12:
        case 13:
            return cut();
        case 14:
        case 15:
        case 16:
        case 17:
        case 18:
        case 19:
        case 20:
            return pool_memory();
        case 21:
            return pool_life();
        case 22:
            return below(10) == 0 ? context_life() : linear();
        case 23:
            return below(4) != 0 ? linear() : below(2) == 0 ? capture() : built_graph();
        case 24:
            return below(8) == 0 ? too_much() : linear();
        case 25:
            return below(4) == 0 ? nonsense() : linear();
        case 26:
            return below(200) == 0 ? child() : linear();
        default:
            return linear();
    }
}

void Steps::linear() {
    if (linear_.size() < 40 && below(2) == 0) {
        CUdeviceptr address = 0;
        if (cuMemAlloc_v2(&address, some_bytes(23)) != CUDA_SUCCESS) return;
        if (below(4) != 0) return linear_.push_back(address);
        std::lock_guard<std::mutex> guard(shared_.lock);
        shared_.handed_over.push_back(address);
        return;
    }
    CUdeviceptr address = 0;
    if (below(3) == 0) {
        std::lock_guard<std::mutex> guard(shared_.lock);
        address = take(shared_.handed_over, CUdeviceptr{0});
    }
    if (address == 0) address = take(linear_, CUdeviceptr{0});
    if (address != 0) cuMemFree_v2(address);
}

void Steps::pitch() {
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    if (cuMemAllocPitch_v2(&address, &pitch, some_bytes(12), 1 + below(64), 4) == CUDA_SUCCESS)
        linear_.push_back(address);
}

void Steps::managed() {
    CUdeviceptr address = 0;
    if (managed_.size() < 4 &&
        cuMemAllocManaged(&address, some_bytes(20), CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS)
        managed_.push_back(address);
    else if ((address = take(managed_, CUdeviceptr{0})) != 0)
        cuMemFree_v2(address);
}

void Steps::host() {
    void* address = nullptr;
    if (host_.size() < 4) {
        const CUresult result = below(2) == 0
                                    ? cuMemHostAlloc(&address, some_bytes(18), CU_MEMHOSTALLOC_PORTABLE)
                                    : cuMemAllocHost_v2(&address, some_bytes(18));
        if (result == CUDA_SUCCESS) host_.push_back(address);
    } else if ((address = take(host_, static_cast<void*>(nullptr))) != nullptr) {
        cuMemFreeHost(address);
    }
}

void Steps::registered() {
    if (cuMemHostRegister_v2(room_.data(), (1 + below(16)) * kHostPage, 0) == CUDA_SUCCESS)
        cuMemHostUnregister(room_.data());
}

void Steps::reservation() {
    if (spaces_.size() < 4) {
        Space space;
        space.pages = 1 + below(16);
        if (cuMemAddressReserve(&space.base, space.pages * kPage, 0, 0, 0) == CUDA_SUCCESS)
            spaces_.push_back(space);
        return;
    }
    Space space = take(spaces_, Space{});
    drop(space);
}

// Backs the next pages of a reservation.
void Steps::grow() {
    if (spaces_.empty()) return;
    Space& space = spaces_[below(static_cast<unsigned>(spaces_.size()))];
    if (space.mapped == space.pages) return;
    const CUmemAllocationProp properties = on(device_);
    CUmemGenericAllocationHandle handle = 0;
    if (cuMemCreate(&handle, kPage, &properties, 0) != CUDA_SUCCESS) return;
    const CUdeviceptr at = space.base + space.mapped * kPage;
    if (cuMemMap(at, kPage, 0, handle, 0) != CUDA_SUCCESS) {
        cuMemRelease(handle);
        return;
    }
    ++space.mapped;
    space.handles.push_back(handle);
    CUmemAccessDesc access[2] = {};
    for (int i = 0; i < 2; ++i) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = i;
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    cuMemSetAccess(at, kPage, access, 1 + below(2));
    switch (below(8)) {
        case 0: {  // a second reference, at once given back
            CUmemGenericAllocationHandle same = 0;
            if (cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(at)) == CUDA_SUCCESS)
                cuMemRelease(same);
            break;
        }
        case 1: {  // once around through a file descriptor
            int file = -1;
            CUmemGenericAllocationHandle other = 0;
            if (cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
                CUDA_SUCCESS)
                break;
            if (cuMemImportFromShareableHandle(&other,
                                               reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS)
                cuMemRelease(other);
            close(file);
            break;
        }
        default:
            break;
    }
}

// Unmaps the highest pages, several by one call.
void Steps::cut() {
    if (spaces_.empty()) return;
    Space& space = spaces_[below(static_cast<unsigned>(spaces_.size()))];
    if (space.mapped == 0) return;
    const std::size_t count = 1 + below(static_cast<unsigned>(space.mapped));
    const CUdeviceptr at = space.base + (space.mapped - count) * kPage;
    if (cuMemUnmap(at, count * kPage) != CUDA_SUCCESS) return;
    for (std::size_t i = 0; i < count; ++i) {
        cuMemRelease(space.handles.back());
        space.handles.pop_back();
    }
    space.mapped -= count;
}

void Steps::drop(Space& space) {
    // References first: the mapping keeps the memory alive.
    for (const CUmemGenericAllocationHandle handle : space.handles) cuMemRelease(handle);
    if (space.mapped != 0) cuMemUnmap(space.base, space.mapped * kPage);
    cuMemAddressFree(space.base, space.pages * kPage);
}

void Steps::pool_memory() {
    if (asynchronous_.size() < 30 && below(2) == 0) {
        CUdeviceptr address = 0;
        const CUmemoryPool pool =
            pools_.empty() || below(2) == 0 ? nullptr : pools_[below(static_cast<unsigned>(pools_.size()))];
        const CUresult result = pool == nullptr
                                    ? cuMemAllocAsync(&address, some_bytes(22), stream_)
                                    : cuMemAllocFromPoolAsync(&address, some_bytes(22), pool, stream_);
        if (result == CUDA_SUCCESS) asynchronous_.push_back(address);
        return;
    }
    if (below(12) == 0) cuStreamSynchronize(stream_);
    const CUdeviceptr address = take(asynchronous_, CUdeviceptr{0});
    if (address == 0) return;
    if (below(8) == 0)
        cuMemFree_v2(address);
    else
        cuMemFreeAsync(address, stream_);
}

void Steps::pool_life() {
    if (pools_.size() < 2) {
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device_;
        properties.maxSize = below(2) == 0 ? 0 : std::size_t{64} << 20;
        CUmemoryPool pool = nullptr;
        if (cuMemPoolCreate(&pool, &properties) != CUDA_SUCCESS) return;
        cuuint64_t threshold = some_bytes(26);
        cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
        pools_.push_back(pool);
        return;
    }
    if (below(2) == 0) {
        cuMemPoolTrimTo(pools_[0], some_bytes(24));
        return;
    }
    cuMemPoolDestroy(take(pools_, CUmemoryPool{nullptr}));
}

// A context of its own that ends with memory in it.
void Steps::context_life() {
    if (first_) return;
    CUcontext context = nullptr;
    CUctxCreateParams parameters{};
    if (cuCtxCreate_v4(&context, &parameters, 0, device_) != CUDA_SUCCESS) return;
    std::vector<CUdeviceptr> own;
    for (unsigned i = below(6); i > 0; --i) {
        CUdeviceptr address = 0;
        if (cuMemAlloc_v2(&address, some_bytes(22)) == CUDA_SUCCESS) own.push_back(address);
    }
    CUarray kept = nullptr;
    CUDA_ARRAY_DESCRIPTOR flat{};
    flat.Width = 100;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 1;
    cuArrayCreate_v2(&kept, &flat);
    void* pinned = nullptr;
    cuMemHostAlloc(&pinned, some_bytes(16), 0);
    if (!own.empty() && below(2) == 0) cuMemFree_v2(own[0]);
    cuCtxDestroy_v2(context);
    cuCtxSetCurrent(shared_.contexts[device_]);
}

// Allocations in a capture are nodes: they take memory when the graph is launched.
void Steps::capture() {
    if (cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return;
    CUdeviceptr inside[3] = {};
    const unsigned count = 1 + below(3);
    for (unsigned i = 0; i < count; ++i) cuMemAllocAsync(&inside[i], some_bytes(20), stream_);
    for (unsigned i = 0; i < count; ++i)
        if (inside[i] != 0) cuMemFreeAsync(inside[i], stream_);
    CUgraph graph = nullptr;
    if (cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS) launch(graph);
}

// The same by the graph's own interface.
void Steps::built_graph() {
    CUgraph graph = nullptr;
    if (cuGraphCreate(&graph, 0) != CUDA_SUCCESS) return;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.poolProps.location.id = device_;
    wanted.bytesize = some_bytes(20);
    CUgraphNode allocation = nullptr, end = nullptr;
    if (cuGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &wanted) == CUDA_SUCCESS)
        cuGraphAddMemFreeNode(&end, graph, &allocation, 1, wanted.dptr);
    launch(graph);
}

void Steps::launch(CUgraph graph) {
    CUgraphExec executable = nullptr;
    if (cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS) {
        for (unsigned i = below(3); i > 0; --i) cuGraphLaunch(executable, stream_);
        cuStreamSynchronize(stream_);
        cuGraphExecDestroy(executable);
    }
    cuGraphDestroy(graph);
    if (below(4) == 0) cuDeviceGraphMemTrim(device_);
}

void Steps::array() {
    if (arrays_.size() < 5) {
        CUarray made = nullptr;
        CUDA_ARRAY_DESCRIPTOR flat{};
        flat.Width = 1 + below(500);
        flat.Height = below(300);
        flat.Format = below(2) == 0 ? CU_AD_FORMAT_FLOAT : CU_AD_FORMAT_UNSIGNED_INT8;
        flat.NumChannels = 1u << below(3);
        CUDA_ARRAY3D_DESCRIPTOR deep{};
        deep.Width = flat.Width;
        deep.Height = 1 + below(100);
        deep.Depth = below(8);
        deep.Format = flat.Format;
        deep.NumChannels = flat.NumChannels;
        CUmipmappedArray chain = nullptr;
        switch (below(3)) {
            case 0:
                if (cuMipmappedArrayCreate(&chain, &deep, 1 + below(3)) == CUDA_SUCCESS)
                    cuMipmappedArrayDestroy(chain);
                return;
            case 1:
                if (cuArray3DCreate_v2(&made, &deep) == CUDA_SUCCESS) arrays_.push_back(made);
                return;
            default:
                if (cuArrayCreate_v2(&made, &flat) == CUDA_SUCCESS) arrays_.push_back(made);
                return;
        }
    }
    cuArrayDestroy(take(arrays_, CUarray{nullptr}));
}

// More than the device has, by each way in turn.
void Steps::too_much() {
    const std::size_t bytes = std::size_t{1} << 40;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = on(device_);
    switch (below(3)) {
        case 0:
            cuMemAlloc_v2(&address, bytes);
            break;
        case 1:
            cuMemAllocAsync(&address, bytes, stream_);
            break;
        default:
            cuMemCreate(&handle, bytes, &properties, 0);
            break;
    }
}

void Steps::nonsense() {
    CUdeviceptr address = 0;
    cuMemAlloc_v2(&address, 0);
    cuMemFree_v2(0x1234);
    cuMemUnmap(0x1000, kPage);
    cuMemRelease(0x77);
    cuMemFreeAsync(0x1234, stream_);
}

// In a forked child the driver cannot be used: whatever it tries fails.
void Steps::child() {
    const pid_t made = fork();
    if (made == 0) {
        CUdeviceptr address = 0;
        cuMemAlloc_v2(&address, 4096);
        for (const CUdeviceptr each : linear_) cuMemFree_v2(each);
        _exit(0);
    }
    if (made > 0) waitpid(made, nullptr, 0);
}

void Steps::finish() {
    while (linear_.size() > 1) cuMemFree_v2(take(linear_, CUdeviceptr{0}));  // one is a leak
    while (!managed_.empty()) cuMemFree_v2(take(managed_, CUdeviceptr{0}));
    while (!asynchronous_.empty()) cuMemFreeAsync(take(asynchronous_, CUdeviceptr{0}), stream_);
    while (!arrays_.empty()) cuArrayDestroy(take(arrays_, CUarray{nullptr}));
    while (!host_.empty()) cuMemFreeHost(take(host_, static_cast<void*>(nullptr)));
    while (!spaces_.empty()) {
        Space space = take(spaces_, Space{});
        drop(space);
    }
    cuStreamSynchronize(stream_);
    while (!pools_.empty()) cuMemPoolDestroy(take(pools_, CUmemoryPool{nullptr}));
    cuStreamDestroy_v2(stream_);
}

}  // namespace fragscope::soak
