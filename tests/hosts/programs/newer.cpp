// A program of the time of driver-14.0/: calls what that driver has and no recorder of today knows.
#include "host.h"

namespace {
constexpr unsigned long long kMark = 0x1234567890abcdef;
}

int main() {
    void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return 1;
    const host::Driver driver = host::by_resolver(handle, 13000);
    int version = 0;
    host::say("cuInit", driver.cuInit, 0u);
    host::say("cuDriverGetVersion", driver.cuDriverGetVersion, &version);
    CUcontext context = nullptr;
    host::say("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", driver.cuCtxSetCurrent, context);
    using NewAlloc = CUresult (*)(unsigned long long, CUdeviceptr*, std::size_t);
    using NewFree = CUresult (*)(CUdeviceptr, unsigned long long);
    using Future = CUresult (*)(CUdeviceptr*, std::size_t, int);
    using NewResolver = CUresult (*)(unsigned long long, const char*, void**);
    using Resolver = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    auto resolver = reinterpret_cast<Resolver>(dlsym(handle, "cuGetProcAddress_v2"));
    const auto ask = [&](const char* name, int since) {
        void* found = nullptr;
        CUdriverProcAddressQueryResult status{};
        const CUresult result = resolver(name, &found, since, 0, &status);
        std::printf("%s@%d %d %d %s\n", name, since, static_cast<int>(result), static_cast<int>(status),
                    found != nullptr ? "found" : "absent");
        return found;
    };
    CUdeviceptr addresses[4] = {}, address = 0;
    host::say("cuMemAlloc@14000", reinterpret_cast<NewAlloc>(ask("cuMemAlloc", 14000)), kMark, &address, std::size_t{1} << 22);
    host::say("cuMemFree@14000", reinterpret_cast<NewFree>(ask("cuMemFree", 14000)), address, kMark);
    host::say("cuMemAlloc_v3", reinterpret_cast<NewAlloc>(dlsym(handle, "cuMemAlloc_v3")), kMark, &address, std::size_t{1} << 22);
    host::say("cuMemFree@13000", reinterpret_cast<decltype(&cuMemFree_v2)>(ask("cuMemFree", 13000)), address);
    for (auto* door : {dlsym(handle, "cuFutureAlloc"), ask("cuFutureAlloc", 14000)}) {
        host::say("cuFutureAlloc", reinterpret_cast<Future>(door), addresses, std::size_t{4096}, 4);
        for (const CUdeviceptr each : addresses) host::say("cuMemFree_v2", driver.cuMemFree_v2, each);
    }
    void* again = nullptr;
    host::say("cuGetProcAddress@14000", reinterpret_cast<NewResolver>(ask("cuGetProcAddress", 14000)), kMark, "cuMemAlloc", &again);
    host::say("cuMemAlloc by the newer resolver", reinterpret_cast<NewAlloc>(again), kMark, &address, std::size_t{1} << 22);
    host::say("cuMemAlloc_v2", driver.cuMemAlloc_v2, &address, std::size_t{1} << 20);
    return 0;
}
