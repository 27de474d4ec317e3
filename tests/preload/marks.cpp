// A program that names its moments: `marks header` by fragscope.h, `marks nvtx` by NVTX as its header is
// used. What NVTX answers it writes to stdout.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "fake_driver.h"
#include "fragscope.h"

extern "C" void c89_marks(void);
void cxx98_marks();

namespace {

void use_the_driver() {
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
    CUdeviceptr address = 0;
    cuMemAlloc_v2(&address, 1000);
}

int by_header() {
    fragscope_mark("before the driver");
    use_the_driver();
    c89_marks();
    cxx98_marks();
    std::thread([] {
        pthread_setname_np(pthread_self(), "worker-7");
        fragscope_mark("in a thread");
    }).join();
    return 0;
}

}  // namespace

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace {

nvtxEventAttributes_t attributes(const char* text) {
    nvtxEventAttributes_t what{};
    what.version = NVTX_VERSION;
    what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    what.messageType = NVTX_MESSAGE_TYPE_ASCII;
    what.message.ascii = text;
    return what;
}

int by_nvtx() {
    nvtxMarkA("before the driver");
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("my domain");
    const nvtxStringHandle_t known = nvtxDomainRegisterStringA(domain, "registered early");
    use_the_driver();
    nvtxMarkA("ascii");
    nvtxMarkW(L"wide \u00e4\u20ac\U0001f600");
    nvtxEventAttributes_t what = attributes("with payload");
    what.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    what.payload.iValue = -5;
    nvtxMarkEx(&what);
    std::printf("push %d\n", nvtxRangePushA("pushed"));
    std::printf("push %d\n", nvtxRangePushW(L"pushed wide"));
    what = attributes("pushed ex");
    std::printf("push %d\n", nvtxRangePushEx(&what));
    for (int i = 0; i < 3; ++i) std::printf("pop %d\n", nvtxRangePop());
    const nvtxRangeId_t ranges[] = {nvtxRangeStartA("started"), nvtxRangeStartW(L"started wide"),
                                    nvtxRangeStartEx(&what)};
    for (const nvtxRangeId_t range : ranges) nvtxRangeEnd(range);
    std::printf("ranges differ %d\n", ranges[0] != ranges[1] && ranges[1] != ranges[2]);
    what.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    what.message.registered = known;
    what.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    what.payload.dValue = 1.5;
    nvtxDomainMarkEx(domain, &what);
    std::printf("push %d\n", nvtxDomainRangePushEx(domain, &what));
    std::printf("pop %d\n", nvtxDomainRangePop(domain));
    nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &what));
    what.message.registered = nvtxDomainRegisterStringW(domain, L"registered wide");
    nvtxDomainMarkEx(nvtxDomainCreateW(L"wide domain"), &what);
    nvtxMarkA(nullptr);
    nvtxNameOsThreadA(static_cast<uint32_t>(syscall(SYS_gettid)), "named by nvtx");
    nvtxNameOsThreadA(1, "somebody else");
    nvtxNameCategoryA(3, "left to others");
    nvtxDomainDestroy(domain);
    return 0;
}

}  // namespace
#else
namespace {
int by_nvtx() {
    std::puts("no headers of NVTX");
    return 0;
}
}  // namespace
#endif

int main(int count, char** values) {
    return count > 1 && std::strcmp(values[1], "nvtx") == 0 ? by_nvtx() : by_header();
}
