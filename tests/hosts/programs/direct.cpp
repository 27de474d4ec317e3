// Linked to the driver as with -lcuda. `direct [look]`: the workload, by direct calls and by pointers that the linker filled
// in; `look` also looks around, before and after. Compiled several times, see meson.build.
#include "host.h"

namespace {

// Taken when the program is loaded: what a data relocation binds to.
CUresult (*const kLoaded)(CUdeviceptr*, std::size_t) = cuMemAlloc_v2;
CUresult (*volatile kept)(CUdeviceptr*, std::size_t) = cuMemAlloc_v2;

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define STREAM(name) name##_ptsz
#else
#define STREAM(name) name
#endif

}  // namespace

int main(int count, char** words) {
    const bool look = count > 1 && std::strcmp(words[1], "look") == 0;
    if (look) host::look_around("before");
    host::Driver driver;
#define HOST_TAKE(symbol, base) driver.symbol = &::symbol;
    HOST_FUNCTIONS(HOST_TAKE)
    driver.cuMemAllocAsync = &STREAM(cuMemAllocAsync);
    driver.cuMemFreeAsync = &STREAM(cuMemFreeAsync);
    driver.cuStreamSynchronize = &STREAM(cuStreamSynchronize);
    std::printf("one function %d\n", kLoaded == kept && kept == &cuMemAlloc_v2);
    const int status = host::work(driver);
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    std::printf("plain calls %d", cuMemAlloc_v2(&address, 2000));
    std::printf(" %d", cuMemFree_v2(address));
    std::printf(" %d", kept(&address, 3000));
    std::printf(" %d\n", cuMemFree_v2(address));
    if (look) host::look_around("after");
    return status;
}
