// Green contexts, as far as memory is concerned: one retains its device's primary context, and memory that is
// allocated while it is current belongs to that. Multiprocessors are counted out and mean nothing else.
#include <algorithm>

#include "contexts.h"

namespace fragscope::sim {
namespace {

constexpr unsigned kMultiprocessors = 132;  // as CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr unsigned kSmallestPart = 8;       // of compute capability 9.0, by cuda.h's own example of such limits

// What a CUdevResource of this driver says of itself in its padding.
struct Origin {
    std::uint64_t magic;
    int device;
};
constexpr std::uint64_t kMagic = 0x5352'564e'4545'5247;  // "GREENVRS", little endian
static_assert(sizeof(Origin) <= sizeof(CUdevResource::_internal_padding));

struct Descriptor {
    int device;
    unsigned multiprocessors;
};

struct Green {
    std::uint64_t id;
    int device;
    unsigned multiprocessors;
    CUcontext context;
};

struct Greens {
    std::unordered_map<CUdevResourceDesc, std::unique_ptr<Descriptor>> descriptors;
    std::unordered_map<CUgreenCtx, std::unique_ptr<Green>> contexts;
};

Greens& greens() {
    static auto* const state = new Greens;
    return *state;
}

Green* find_green(CUgreenCtx handle) {
    const auto found = greens().contexts.find(handle);
    return found == greens().contexts.end() ? nullptr : found->second.get();
}

CUresult fill(CUdevResource* resource, CUdevResourceType type, int device, unsigned multiprocessors) {
    if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = {};
    const Origin origin{kMagic, device};
    std::copy_n(reinterpret_cast<const unsigned char*>(&origin), sizeof origin, resource->_internal_padding);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = multiprocessors;
    resource->sm.minSmPartitionSize = kSmallestPart;
    resource->sm.smCoscheduledAlignment = kSmallestPart;
    return CUDA_SUCCESS;
}

// The device of a resource that this driver made; -1 when it is no such resource.
int device_of(const CUdevResource& resource) {
    Origin origin{};
    std::copy_n(resource._internal_padding, sizeof origin, reinterpret_cast<unsigned char*>(&origin));
    return origin.magic == kMagic && driver().device_ok(origin.device) ? origin.device : -1;
}

}  // namespace

namespace impl {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    return fill(resource, type, device, kMultiprocessors);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
    Locked guard(driver().lock);
    const Context* context = context_of_locked(hCtx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return fill(resource, type, context->device, kMultiprocessors);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type) {
    Locked guard(driver().lock);
    const Green* green = find_green(hCtx);
    if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return fill(resource, type, green->device, green->multiprocessors);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int, unsigned int minCount) {
    if (nbGroups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    const int device = device_of(*input);
    if (device < 0 || minCount > input->sm.smCount) return CUDA_ERROR_INVALID_VALUE;
    const unsigned part = (std::max(minCount, 1U) + kSmallestPart - 1) / kSmallestPart * kSmallestPart;
    const unsigned most = input->sm.smCount / part;
    if (result == nullptr) return *nbGroups = most, CUDA_SUCCESS;
    *nbGroups = std::min(*nbGroups, most);
    for (unsigned i = 0; i < *nbGroups; ++i) fill(&result[i], CU_DEV_RESOURCE_TYPE_SM, device, part);
    if (remaining != nullptr) fill(remaining, CU_DEV_RESOURCE_TYPE_SM, device, input->sm.smCount - *nbGroups * part);
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources, unsigned int nbResources) {
    if (phDesc == nullptr || resources == nullptr || nbResources == 0) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_unique<Descriptor>();
    made->device = device_of(resources[0]);
    made->multiprocessors = 0;
    for (unsigned i = 0; i < nbResources; ++i) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (device_of(resources[i]) < 0) return CUDA_ERROR_INVALID_VALUE;
        if (device_of(resources[i]) != made->device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        made->multiprocessors += resources[i].sm.smCount;
    }
    if (made->multiprocessors > kMultiprocessors) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    Locked guard(driver().lock);
    *phDesc = reinterpret_cast<CUdevResourceDesc>(made.get());
    greens().descriptors.emplace(*phDesc, std::move(made));
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
    // "CU_GREEN_CTX_DEFAULT_STREAM is required."
    if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    auto made = std::make_unique<Green>();
    {
        Locked guard(driver().lock);
        const auto found = greens().descriptors.find(desc);
        if (found == greens().descriptors.end() || found->second->device != dev) return CUDA_ERROR_INVALID_VALUE;
        made->multiprocessors = found->second->multiprocessors;
        made->id = driver().next_id++;
    }
    made->device = dev;
    if (const CUresult error = impl::cuDevicePrimaryCtxRetain(&made->context, dev); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    *phCtx = reinterpret_cast<CUgreenCtx>(made.get());
    ledger({"green_create", made->id, 0, 0, dev, driver().physical.free_bytes_now(dev),
            context_of_locked(made->context)->id});
    greens().contexts.emplace(*phCtx, std::move(made));
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    int device = 0;
    {
        Locked guard(driver().lock);
        const Green* green = find_green(hCtx);
        if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        device = green->device;
        ledger({"green_destroy", green->id, 0, 0, device, driver().physical.free_bytes_now(device)});
        greens().contexts.erase(hCtx);
    }
    return impl::cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
    if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Green* green = find_green(hCtx);
    if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *pContext = green->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    CUcontext context = nullptr;
    if (const CUresult error = impl::cuCtxFromGreenCtx(&context, greenCtx); error != CUDA_SUCCESS) return error;
    if (const CUresult error = impl::cuCtxPushCurrent_v2(context); error != CUDA_SUCCESS) return error;
    const CUresult result = impl::cuStreamCreateWithPriority(phStream, flags, priority);
    impl::cuCtxPopCurrent_v2(nullptr);
    return result;
}

}  // namespace impl
}  // namespace fragscope::sim
