// Patches the beginning of functions, as UCX does to see allocations: whatever dlsym finds gets a jump into the program,
// which takes it out, calls, and puts it in again. Other machines than x86-64 need another jump: there it only calls.
#include <sys/mman.h>

#include "host.h"

namespace {

struct Patch {
    unsigned char* code = nullptr;
    unsigned char kept[12];
    int calls = 0;

    bool open() const {
        const auto page = reinterpret_cast<std::uintptr_t>(code) & ~std::uintptr_t{4095};
        return mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
    }
    void put(const void* target) {
        unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov $target, %rax; jmp *%rax
        std::memcpy(jump + 2, &target, 8);
        std::memcpy(kept, code, sizeof kept);
        std::memcpy(code, jump, sizeof jump);
    }
    void take() { std::memcpy(code, kept, sizeof kept); }
};

Patch allocation, release;

CUresult on_allocation(CUdeviceptr* out, std::size_t bytes);
CUresult on_release(CUdeviceptr address);

template <typename Function>
Function original(const Patch& patch) {
    return reinterpret_cast<Function>(patch.code);
}
CUresult on_allocation(CUdeviceptr* out, std::size_t bytes) {
    ++allocation.calls;
    allocation.take();
    const CUresult result = original<decltype(&on_allocation)>(allocation)(out, bytes);
    allocation.put(reinterpret_cast<void*>(&on_allocation));
    return result;
}
CUresult on_release(CUdeviceptr address) {
    ++release.calls;
    release.take();
    const CUresult result = original<decltype(&on_release)>(release)(address);
    release.put(reinterpret_cast<void*>(&on_release));
    return result;
}

}  // namespace

int main(int count, char** words) {
    const bool in_driver = count > 1 && std::strcmp(words[1], "driver") == 0;
    CUcontext context = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    // Before any of it is used, or after the recorder has seen it.
    CUdeviceptr address = 0;
    if (count > 2) host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &address, std::size_t{5000});
#if defined(__x86_64__)
    // In the driver's own code, which UCX finds by the driver's handle; or in what the program's direct calls reach.
    void* handle = in_driver ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : RTLD_DEFAULT;
    const auto find = [&](const char* name) { return static_cast<unsigned char*>(dlsym(handle, name)); };
    allocation.code = find("cuMemAlloc_v2");
    release.code = find("cuMemFree_v2");
    if (!allocation.open() || !release.open()) return 77;
    allocation.put(reinterpret_cast<void*>(&on_allocation));
    release.put(reinterpret_cast<void*>(&on_release));
#endif
    const host::Driver driver = host::by_resolver(dlopen("libcuda.so.1", RTLD_NOW), 12000);
    for (int i = 0; i < 3; ++i) {
        host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &address, std::size_t{1} << 20);
        host::say("cuMemFree_v2", &cuMemFree_v2, address);
        host::say("cuMemAlloc by the resolver", driver.cuMemAlloc_v2, &address, std::size_t{1} << 20);
        host::say("cuMemFree by the resolver", driver.cuMemFree_v2, address);
    }
    std::printf("patches reached %d %d\n", allocation.calls, release.calls);
    return 0;
}
