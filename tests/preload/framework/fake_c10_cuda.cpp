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

extern "C" {

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
