// Stand-ins for two libraries of PyTorch's, with its names: libc10.so, where the functions are by which an
// allocator reports, and libc10_cuda.so, whose allocator calls them. They know nothing of the shim.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
    std::int8_t type, index;
};
void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::size_t allocated,
                                 std::size_t reserved, Device device);
void reportOutOfMemoryToProfiler(std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                                 Device device);

namespace cuda {

class CUDAStream {
  public:
    explicit CUDAStream(CUstream handle) : handle_(handle) {}
    CUstream stream() const;

  private:
    CUstream handle_;
};

}  // namespace cuda
}  // namespace c10

extern "C" {

// libc10.so. What the functions above were told since the last time, one line each, into `out`; bytes without
// NUL.
std::size_t fake_heard(char* out, std::size_t size);
void fake_deaf(bool on);   // from now on they note nothing, or do again
void fake_throw(bool on);  // from now on they throw an int, 7, or no longer

// libc10_cuda.so.
void fake_start();  // first use of the driver
void fake_report(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                 c10::Device device);
// The same by a tail call.
void fake_report_by_jump(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         c10::Device device);
void fake_refuse(std::int64_t bytes, std::size_t allocated, std::size_t reserved, c10::Device device);
// Gives a block back that was used on streams: records the events, in a function of its own, then reports.
void fake_free(void* address, std::int64_t bytes, const CUevent* events, int count);
// Takes a block for a stream, whose handle it asks for before; the second without asking.
void fake_allocate(const c10::cuda::CUDAStream* stream, void* address, c10::Device device);
void fake_allocate_with_stream(CUstream handle, void* address, c10::Device device);
void fake_record(CUevent event, CUstream stream);         // for ends of its own
void fake_record_late(const CUevent* events, int count);  // as fake_free() does, and reports nothing
CUresult fake_ask(CUevent event);
CUresult fake_wait(CUevent event);
// Under a lock: the next address, reported as taken and then as given back.
void fake_turn();
}
