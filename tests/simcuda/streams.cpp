// cuStream*, cuEvent*, cuCtxSynchronize and host functions; see streams.h for when work runs.
#include "streams.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "capture.h"
#include "pools.h"

namespace fragscope::sim {
namespace {

struct Event {
    Context* context = nullptr;
    unsigned flags = 0;
    bool recorded = false;
    std::uint64_t stream = 0;  // id
    std::uint64_t number = 0;  // work of that stream that came before
    std::uint64_t time = 0;    // nanoseconds
    std::uint64_t offered = 0;  // key under which other processes find it; 0: none
    std::shared_ptr<Capture> capture;
};

struct Streams {
    std::unordered_map<CUstream, std::unique_ptr<Stream>> named;
    std::map<std::pair<Context*, long>, std::unique_ptr<Stream>> defaults;  // thread number; 0: legacy
    std::unordered_map<CUevent, std::unique_ptr<Event>> events;
};

Streams& streams() {
    static Streams* const state = new Streams;
    return *state;
}

Stream* find_by_id(std::uint64_t id) {
    for (auto& [handle, stream] : streams().named) {
        if (stream->id == id) return stream.get();
    }
    for (auto& [key, stream] : streams().defaults) {
        if (stream->id == id) return stream.get();
    }
    return nullptr;
}

Event* find_event(CUevent handle) {
    const auto found = streams().events.find(handle);
    return found == streams().events.end() ? nullptr : found->second.get();
}

std::uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// Work on the legacy default stream comes after all work on the context's blocking streams.
void complete_stream_handle(Stream& stream, CUstream handle) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY) {
        for (auto& [key, each] : streams().named) {
            if (each->context == stream.context && (each->flags & CU_STREAM_NON_BLOCKING) == 0) {
                complete_locked(*each, each->issued);
            }
        }
    }
    complete_locked(stream, stream.issued);
}

CUresult with_stream(CUstream handle, CUresult (*body)(Stream&, CUstream)) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(handle, *context);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(*stream, handle);
}

CUresult make_stream(CUstream* handle, unsigned flags, int priority) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    auto stream = std::make_unique<Stream>();
    stream->id = driver().next_id++;
    stream->context = context;
    stream->flags = flags;
    stream->priority = std::clamp(priority, -5, 0);
    *handle = reinterpret_cast<CUstream>(stream.get());
    streams().named.emplace(*handle, std::move(stream));
    return CUDA_SUCCESS;
}

CUresult record(CUevent handle, CUstream stream_handle) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Event* event = find_event(handle);
    Stream* stream = find_stream_locked(stream_handle, *context);
    if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    event->recorded = true;
    event->stream = stream->id;
    event->number = stream->issued;
    event->time = now();
    event->capture = stream->capture;
    return CUDA_SUCCESS;
}

}  // namespace

Stream* find_stream_locked(CUstream handle, Context& context) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        const long thread = handle == CU_STREAM_PER_THREAD ? ::syscall(SYS_gettid) : 0;
        auto& slot = streams().defaults[{&context, thread}];
        if (!slot) {
            slot = std::make_unique<Stream>();
            slot->id = driver().next_id++;
            slot->context = &context;
        }
        return slot.get();
    }
    const auto found = streams().named.find(handle);
    return found == streams().named.end() ? nullptr : found->second.get();
}

void complete_locked(Stream& stream, std::uint64_t upto) {
    stream.completed = std::max(stream.completed, upto);
    pools_stream_completed_locked(stream.id, stream.completed);
    pools_synchronised_locked(stream.context->device);
}

void complete_context_locked(Context& context) {
    for (auto& [handle, stream] : streams().named) {
        if (stream->context == &context) complete_locked(*stream, stream->issued);
    }
    for (auto& [key, stream] : streams().defaults) {
        if (key.first == &context) complete_locked(*stream, stream->issued);
    }
    pools_synchronised_locked(context.device);
}

void leave_capture_locked(const Capture& capture) {
    for (auto& [handle, stream] : streams().named) {
        if (stream->capture.get() == &capture) stream->capture.reset();
    }
    for (auto& [key, stream] : streams().defaults) {
        if (stream->capture.get() == &capture) stream->capture.reset();
    }
}

void destroy_streams_locked(Context& context) {
    complete_context_locked(context);
    std::erase_if(streams().named, [&](const auto& each) { return each.second->context == &context; });
    std::erase_if(streams().defaults, [&](const auto& each) { return each.first.first == &context; });
    std::erase_if(streams().events, [&](const auto& each) { return each.second->context == &context; });
}

namespace impl {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) { return make_stream(phStream, Flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
    return make_stream(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const auto found = streams().named.find(hStream);
    if (found == streams().named.end()) return CUDA_ERROR_INVALID_HANDLE;
    // Returns at once in the real driver, which finishes the work later; here the work is finished now.
    complete_locked(*found->second, found->second->issued);
    streams().named.erase(found);
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream hStream) { return impl::cuStreamDestroy_v2(hStream); }

CUresult cuStreamSynchronize(CUstream hStream) {
    if (const CUresult error = check_unsafe(Function::cuStreamSynchronize); error != CUDA_SUCCESS) return error;
    return with_stream(hStream, [](Stream& stream, CUstream handle) {
        if (stream.capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        complete_stream_handle(stream, handle);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamQuery(CUstream hStream) {
    if (const CUresult error = check_unsafe(Function::cuStreamQuery); error != CUDA_SUCCESS) return error;
    return with_stream(hStream, [](Stream& stream, CUstream handle) {
        if (stream.capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        complete_stream_handle(stream, handle);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Event* event = find_event(hEvent);
    Stream* stream = find_stream_locked(hStream, *context);
    if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture && capture_active(*event->capture)) {
        stream->capture = event->capture;  // the wait makes this stream part of the capture
    } else if (event->recorded) {
        auto& after = stream->after[event->stream];
        after = std::max(after, event->number);
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
    if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *streamId = stream->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pctx = handle_of(stream->context);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
    CUcontext handle = nullptr;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Seen to be refused in a capture, though no document says so.
    if (const CUresult error = check_unsafe(Function::cuStreamGetDevice); error != CUDA_SUCCESS) return error;
    if (const CUresult error = impl::cuStreamGetCtx(hStream, &handle); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    *device = context_of_locked(handle)->device;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    {
        Locked guard(driver().lock);
        Stream* stream = find_stream_locked(hStream, *context);
        if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        ++stream->issued;
        if (stream->capture) return capture_work_locked(*stream, CU_GRAPH_NODE_TYPE_HOST);
    }
    fn(userData);  // at once and without the lock
    return CUDA_SUCCESS;
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    {
        Locked guard(driver().lock);
        const Stream* stream = find_stream_locked(hStream, *context);
        if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    callback(hStream, CUDA_SUCCESS, userData);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuCtxSynchronize); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    complete_context_locked(*context);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    if (ctx == nullptr) return impl::cuCtxSynchronize();
    if (const CUresult error = check_unsafe(Function::cuCtxSynchronize_v2); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Context* context = context_of_locked(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->sticky != 0) return static_cast<CUresult>(context->sticky.load());
    complete_context_locked(*context);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    auto event = std::make_unique<Event>();
    event->context = context;
    event->flags = Flags;
    *phEvent = reinterpret_cast<CUevent>(event.get());
    streams().events.emplace(*phEvent, std::move(event));
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Event* event = find_event(hEvent);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (event->offered != 0) driver().physical.withdraw(event->offered);
    streams().events.erase(hEvent);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent hEvent) { return impl::cuEventDestroy_v2(hEvent); }

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Event* found = find_event(event);
    const unsigned needed = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    if (found == nullptr || (found->flags & needed) != needed) return CUDA_ERROR_INVALID_HANDLE;
    if (found->offered == 0) found->offered = driver().physical.offer({context->device, 0, 0});
    if (found->offered == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(pHandle, 0, sizeof *pHandle);
    std::memcpy(pHandle, &found->offered, sizeof found->offered);
    return CUDA_SUCCESS;
}

// An event of another process never holds this one's work up: that process's work is not seen here.
CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t key = 0;
    std::memcpy(&key, &handle, sizeof key);
    Offer offer{};
    bool own = false;
    if (!driver().physical.find_offer(key, offer, own)) return CUDA_ERROR_INVALID_HANDLE;
    return impl::cuEventCreate(phEvent, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return record(hEvent, hStream); }
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int) { return record(hEvent, hStream); }

CUresult cuEventSynchronize(CUevent hEvent) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuEventSynchronize); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Event* event = find_event(hEvent);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    Stream* stream = event->recorded ? find_by_id(event->stream) : nullptr;
    if (stream != nullptr) complete_locked(*stream, event->number);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent hEvent) {
    if (const CUresult error = check_unsafe(Function::cuEventQuery); error != CUDA_SUCCESS) return error;
    return impl::cuEventSynchronize(hEvent);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Event* start = find_event(hStart);
    const Event* end = find_event(hEnd);
    if (start == nullptr || end == nullptr || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    const auto difference = static_cast<std::int64_t>(end->time - start->time);
    *pMilliseconds = static_cast<float>(static_cast<double>(difference) / 1e6);
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
    return impl::cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

}  // namespace impl
}  // namespace fragscope::sim
