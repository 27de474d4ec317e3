// libc10_cuda.so.
#include <mutex>

#include "../fake_driver.h"
#include "fake_c10.h"

namespace {

constexpr c10::Device kDevice{1, 0};
std::mutex lock;
std::uintptr_t turns = 0;
volatile int after = 0;  // written after a call that is not to be a jump

[[gnu::noinline]] void insert_events(const CUevent* events, int count) {
    for (int i = 0; i < count; ++i) cuEventRecord(events[i], reinterpret_cast<CUstream>(0x60 + 0x10 * i));
    after = count;
}

}  // namespace

namespace c10::cuda {

// One of the kind that the loader keeps a file for.
template <typename>
struct Kept {
    static inline int value = 0;
};

CUstream CUDAStream::stream() const {
    after = Kept<int>::value;
    return handle_;
}

}  // namespace c10::cuda

namespace {

// For ends of the allocator's own.
[[gnu::noinline]] bool is_captured(CUstream handle) {
    const c10::cuda::CUDAStream other(reinterpret_cast<CUstream>(0x7777));
    const bool same = handle == other.stream();
    after = 6;
    return same;
}

[[gnu::noinline]] void take(void* address, CUstream handle, c10::Device device) {
    after = is_captured(handle) ? 1 : 2;
    c10::reportMemoryUsageToProfiler(address, 512, 512, 4096, device);
    after = 3;
}

}  // namespace

extern "C" {

void fake_allocate(const c10::cuda::CUDAStream* stream, void* address, c10::Device device) {
    take(address, stream->stream(), device);
    after = 4;
}
void fake_allocate_with_stream(CUstream handle, void* address, c10::Device device) {
    take(address, handle, device);
    after = 5;
}

void fake_start() {
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
}
void fake_report(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                 c10::Device device) {
    c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device);
    after = 1;
}
void fake_report_by_jump(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         c10::Device device) {
    return c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device);
}
void fake_refuse(std::int64_t bytes, std::size_t allocated, std::size_t reserved, c10::Device device) {
    c10::reportOutOfMemoryToProfiler(bytes, allocated, reserved, device);
    after = 1;
}
void fake_free(void* address, std::int64_t bytes, const CUevent* events, int count) {
    insert_events(events, count);
    c10::reportMemoryUsageToProfiler(address, -bytes, 0, 4096, kDevice);
    after = 1;
}
void fake_record(CUevent event, CUstream stream) {
    cuEventRecord(event, stream);
    after = 1;
}
void fake_record_late(const CUevent* events, int count) {
    insert_events(events, count);
    after = 2;
}
CUresult fake_ask(CUevent event) { return cuEventQuery(event); }
CUresult fake_wait(CUevent event) { return cuEventSynchronize(event); }
void fake_turn() {
    std::lock_guard guard(lock);
    auto* address = reinterpret_cast<void*>(++turns);
    c10::reportMemoryUsageToProfiler(address, 1, 1, 1, kDevice);
    c10::reportMemoryUsageToProfiler(address, -1, 0, 1, kDevice);
}

}  // extern "C"
