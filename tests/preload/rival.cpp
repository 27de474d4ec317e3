// Another preloaded library that stands in front of the driver, as tools that limit or share a device do: it
// has some functions of the driver's names, and, unless built with RIVAL_WITHOUT_DLSYM, a dlsym of its own
// that hands them out. Says what came through it by rival_calls().
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>

namespace {

std::atomic<int> allocations{0}, releases{0}, questions{0};

using Look = void* (*)(void*, const char*);

Look look_up() {
#ifdef RIVAL_WITHOUT_DLSYM
    return dlsym;
#else
    void* found = nullptr;
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"})
        if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", version);
    return reinterpret_cast<Look>(found);
#endif
}

// The function that stands after us. Not by a tail call: whose RTLD_NEXT is meant, the return address tells.
template <typename Function>
Function after_us(const char* name) {
    void* found = look_up()(RTLD_NEXT, name);
    asm volatile("" : "+r"(found));
    return reinterpret_cast<Function>(found);
}

}  // namespace

extern "C" {

// allocations * 10000 + releases * 100 + questions
int rival_calls() { return allocations * 10000 + releases * 100 + questions; }

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
    ++questions;
    const CUresult result = after_us<decltype(&cuMemGetInfo_v2)>("cuMemGetInfo_v2")(free_bytes, total_bytes);
    if (result == CUDA_SUCCESS && total_bytes != nullptr) *total_bytes = 4096;  // its limit
    return result;
}
CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
    ++allocations;
    std::size_t free_bytes = 0, total_bytes = 0;
    cuMemGetInfo_v2(&free_bytes, &total_bytes);  // by the dynamic linker, as any caller
    if (total_bytes != 4096) return CUDA_ERROR_UNKNOWN;
    return after_us<decltype(&cuMemAlloc_v2)>("cuMemAlloc_v2")(out, bytes);
}
CUresult cuMemFree_v2(CUdeviceptr address) {
    ++releases;
    return after_us<decltype(&cuMemFree_v2)>("cuMemFree_v2")(address);
}

#ifndef RIVAL_WITHOUT_DLSYM
void* dlsym(void* handle, const char* name) noexcept {
    if (std::strcmp(name, "cuMemAlloc_v2") == 0) return reinterpret_cast<void*>(&cuMemAlloc_v2);
    if (std::strcmp(name, "cuMemFree_v2") == 0) return reinterpret_cast<void*>(&cuMemFree_v2);
    void* found = look_up()(handle, name);
    asm volatile("" : "+r"(found));
    return found;
}
#endif

}  // extern "C"
