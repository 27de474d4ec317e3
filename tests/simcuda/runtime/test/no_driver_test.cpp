// The runtime on a machine without a driver: it says so instead of failing to load. Not linked with the
// simulated driver, and run without it on the library path; skipped where the machine has a driver of its
// own.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>

namespace {

int g_failures = 0;

void expect(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "expected: %s\n", what);
    ++g_failures;
}

}  // namespace

int main() {
    constexpr int kSkipped = 77;
    if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) return kSkipped;
    int count = -1;
    expect(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver,
           "cudaGetDeviceCount says insufficient driver");
    expect(count == 0, "no devices");
    void* pointer = nullptr;
    expect(cudaMalloc(&pointer, 4096) == cudaErrorInsufficientDriver, "cudaMalloc says insufficient driver");
    expect(cudaGetLastError() == cudaErrorInsufficientDriver, "the error is remembered");
    int version = -1;
    expect(cudaDriverGetVersion(&version) == cudaSuccess && version == 0, "driver version 0");
    void* function = nullptr;
    expect(cudaGetDriverEntryPointByVersion("cuInit", &function, 2000, cudaEnableDefault, nullptr) ==
               cudaErrorInsufficientDriver,
           "no entry points");
    return g_failures == 0 ? 0 : 1;
}
