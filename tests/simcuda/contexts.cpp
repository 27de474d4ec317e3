// Contexts: creation, the primary ones, each thread's stack of current contexts, limits, peers.
#include "contexts.h"

#include <algorithm>

#include "activity.h"
#include "arrays.h"
#include "external.h"
#include "host.h"
#include "ipc.h"
#include "linear.h"
#include "modules.h"
#include "small_heap.h"
#include "streams.h"

namespace fragscope::sim {
namespace {

// Plain data: host programs call the driver after a thread's destructors have run.
constexpr unsigned kMaxDepth = 64;
struct Stack {
    Context* items[kMaxDepth];
    unsigned depth;
};
thread_local Stack stack;

constexpr std::size_t kMostStack = 512 << 10;  // bytes of a thread, by the CUDA programming guide

std::size_t default_limit(int limit) {
    switch (limit) {
        case CU_LIMIT_STACK_SIZE: return 1024;
        case CU_LIMIT_PRINTF_FIFO_SIZE: return 1 << 20;
        case CU_LIMIT_MALLOC_HEAP_SIZE: return 8 << 20;
        case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: return 2;
        case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: return 2048;
        case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: return 64;
        default: return 0;
    }
}

std::size_t limit_of(const Context& context, int limit) {
    const auto found = context.limits.find(limit);
    return found == context.limits.end() ? default_limit(limit) : found->second;
}

// Device memory that a limit costs above its default, which the context's overhead pays for: a stack for each
// thread that can be resident, the heap, the buffer of printf.
std::uint64_t limit_bytes(int limit, std::size_t value) {
    constexpr std::uint64_t kResidentThreads = 132 * 2048;  // multiprocessors, threads on each
    if (limit != CU_LIMIT_STACK_SIZE && limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) {
        return 0;
    }
    const std::size_t standard = default_limit(limit);
    const std::uint64_t above = value > standard ? value - standard : 0;
    return limit == CU_LIMIT_STACK_SIZE ? above * kResidentThreads : above;
}

std::uint64_t pages_in(const std::vector<PageRun>& runs) {
    std::uint64_t pages = 0;
    for (const PageRun& run : runs) pages += run.count;
    return pages;
}

// `bytes` for all limits of the context; one of them, `limit`, is why.
CUresult charge_limits(Context& context, std::uint64_t bytes, int limit) {
    Driver& d = driver();
    const std::uint64_t before = pages_in(context.limit_pages), after = d.pages_for(bytes);
    if (before == after) return CUDA_SUCCESS;
    std::vector<PageRun> more;
    std::uint64_t free_after = 0;
    if (after > before) {
        if (!take_pages_locked(context.device, after - before, false, more, free_after)) return CUDA_ERROR_OUT_OF_MEMORY;
        context.limit_pages.insert(context.limit_pages.end(), more.begin(), more.end());
    } else {
        std::uint64_t surplus = before - after;
        while (surplus > 0) {
            PageRun& last = context.limit_pages.back();
            const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(surplus, last.count));
            more.push_back({last.first + (last.count - part), part});
            last.count -= part;
            surplus -= part;
            if (last.count == 0) context.limit_pages.pop_back();
        }
        free_after = d.physical.release(context.device, more);
    }
    ledger({"limit", context.id, bytes,
            (static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before)) *
                static_cast<std::int64_t>(d.settings.page_size),
            context.device, free_after, static_cast<std::uint64_t>(limit)});
    return CUDA_SUCCESS;
}

CUresult set_limit(Context& context, int limit, std::size_t value) {
    if (driver().settings.limit_memory) {
        std::uint64_t bytes = limit_bytes(limit, value);
        if (bytes > driver().settings.capacity) return CUDA_ERROR_OUT_OF_MEMORY;
        for (const int each : {CU_LIMIT_STACK_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE}) {
            if (each != limit) bytes += limit_bytes(each, limit_of(context, each));
        }
        if (const CUresult error = charge_limits(context, bytes, limit); error != CUDA_SUCCESS) return error;
    }
    context.limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult charge_overhead(Context& context) {
    Driver& d = driver();
    std::uint64_t free_after = 0;
    if (!take_pages_locked(context.device, d.pages_for(d.settings.context_overhead), false, context.overhead,
                           free_after)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context.alive = true;
    context.sticky = 0;
    ledger({"context_create", context.id, d.settings.context_overhead,
            static_cast<std::int64_t>(d.pages_for(d.settings.context_overhead) * d.settings.page_size),
            context.device, free_after});
    charge_listener_locked(context);
    return CUDA_SUCCESS;
}

void end_context(Context& context) {
    Driver& d = driver();
    if (!context.alive) return;
    destroy_resources_locked(context);
    charge_limits(context, 0, 0);
    context.limits.clear();
    std::int64_t charged = 0;
    for (const PageRun& run : context.overhead) {
        charged += static_cast<std::int64_t>(run.count * d.settings.page_size);
    }
    const std::uint64_t free_after = d.physical.release(context.device, context.overhead);
    context.overhead.clear();
    context.alive = false;
    ledger({"context_destroy", context.id, d.settings.context_overhead, -charged, context.device, free_after});
}

Context& add_context(int device) {
    auto context = std::make_unique<Context>();
    context->id = driver().next_id++;
    context->device = device;
    Context& added = *context;
    driver().contexts.emplace(reinterpret_cast<std::uint64_t>(&added), std::move(context));
    return added;
}

Context& primary_context(int device) {
    Context*& primary = driver().primary[device];
    if (primary == nullptr) {
        primary = &add_context(device);
        primary->primary = true;
    }
    return *primary;
}

CUresult create(CUcontext* handle, unsigned flags, CUdevice device) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    if (stack.depth == kMaxDepth) return CUDA_ERROR_OUT_OF_MEMORY;
    Context& context = add_context(device);
    context.flags = flags;
    if (const CUresult error = charge_overhead(context); error != CUDA_SUCCESS) {
        driver().contexts.erase(reinterpret_cast<std::uint64_t>(&context));
        return error;
    }
    stack.items[stack.depth++] = &context;
    *handle = handle_of(&context);
    return CUDA_SUCCESS;
}

Context* top() { return stack.depth == 0 ? nullptr : stack.items[stack.depth - 1]; }

bool is_sticky(CUresult error) {
    switch (error) {
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_CONTAINED: return true;
        default: return false;
    }
}

}  // namespace

const Context* current_context() { return top(); }

CUresult require_context(Context*& context) {
    context = top();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return static_cast<CUresult>(context->sticky.load(std::memory_order_relaxed));
}

void poison_current_context(CUresult error) {
    if (is_sticky(error) && top() != nullptr) top()->sticky = error;
}

Context* context_of_locked(CUcontext handle) {
    const auto found = driver().contexts.find(reinterpret_cast<std::uint64_t>(handle));
    return found == driver().contexts.end() ? nullptr : found->second.get();
}

CUcontext handle_of(const Context* context) { return reinterpret_cast<CUcontext>(const_cast<Context*>(context)); }

CUresult raise_stack_locked(Context& context, std::uint64_t bytes) {
    if (bytes <= limit_of(context, CU_LIMIT_STACK_SIZE)) return CUDA_SUCCESS;
    return set_limit(context, CU_LIMIT_STACK_SIZE, bytes);
}

CUcontext primary_handle_locked(int device) { return handle_of(&primary_context(device)); }

void destroy_resources_locked(Context& context) {
    destroy_streams_locked(context);
    destroy_arrays_locked(context);
    destroy_modules_locked(context);
    small_free_all_locked(context);
    auto& regions = driver().regions;
    for (auto at = regions.begin(); at != regions.end();) {
        Region& region = at->second;
        ++at;
        if (region.context != &context) continue;
        switch (region.kind) {
            case Region::Kind::Linear: linear_free_locked(region); break;
            case Region::Kind::External: external_free_locked(region); break;
            case Region::Kind::Global: break;  // gone already
            case Region::Kind::Ipc: ipc_unmap_locked(region); break;
            default: host_free_locked(region); break;
        }
    }
}

namespace impl {

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) { return create(pctx, flags, dev); }
CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) { return create(pctx, flags, dev); }
CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}
CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams*, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    Locked guard(driver().lock);
    Context* context = context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    end_context(*context);
    if (top() == context) --stack.depth;
    return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext ctx) { return impl::cuCtxDestroy_v2(ctx); }

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    Locked guard(driver().lock);
    Context* context = context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive && !context->primary) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (stack.depth == kMaxDepth) return CUDA_ERROR_OUT_OF_MEMORY;
    stack.items[stack.depth++] = context;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return impl::cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
    if (stack.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != nullptr) *pctx = handle_of(top());
    --stack.depth;
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* pctx) { return impl::cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxSetCurrent(CUcontext ctx) {
    if (ctx == nullptr) {
        if (stack.depth > 0) --stack.depth;
        return CUDA_SUCCESS;
    }
    Locked guard(driver().lock);
    Context* context = context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive && !context->primary) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (stack.depth == 0) ++stack.depth;
    stack.items[stack.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = handle_of(top());
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (top() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = top()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
    if (ctx == nullptr) return impl::cuCtxGetDevice(device);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Context* context = context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
    if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Context* context = ctx == nullptr ? top() : context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Context* context = ctx == nullptr ? top() : context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *version = context->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (limit < CU_LIMIT_STACK_SIZE || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    // "only applicable to devices of compute capability < 9.0"
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_STACK_SIZE && value > kMostStack) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    return set_limit(*context, limit, value);
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (limit < CU_LIMIT_STACK_SIZE || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    Locked guard(driver().lock);
    *pvalue = limit_of(*context, limit);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
    Context* context = nullptr;
    return require_context(context);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    Context& context = primary_context(dev);
    if (!context.alive) {
        if (const CUresult error = charge_overhead(context); error != CUDA_SUCCESS) return error;
    }
    ++context.references;
    *pctx = handle_of(&context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    Context& context = primary_context(dev);
    if (context.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context.references == 0) end_context(context);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return impl::cuDevicePrimaryCtxRelease_v2(dev); }

// Does not release: who retained it must still do that (cuda.h).
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    end_context(primary_context(dev));
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return impl::cuDevicePrimaryCtxReset_v2(dev); }

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    const Context& context = primary_context(dev);
    if (flags != nullptr) *flags = context.flags;
    if (active != nullptr) *active = context.alive ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    primary_context(dev).flags = flags;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return impl::cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Context* peer = context_of_locked(peerContext);
    if (peer == nullptr || peer->device == context->device) return CUDA_ERROR_INVALID_CONTEXT;
    auto& peers = context->peers;
    if (std::count(peers.begin(), peers.end(), peer->device) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    peers.push_back(peer->device);
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Context* peer = context_of_locked(peerContext);
    if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return std::erase(context->peers, peer->device) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace impl
}  // namespace fragscope::sim
