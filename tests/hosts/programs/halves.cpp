// halves PLUGIN: takes 100 MiB by itself, and 1000 MiB through a library that was opened with RTLD_DEEPBIND; then asks for more
// than there is.
#include "host.h"

int main(int count, char** words) {
    if (count < 2) return 2;
    void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    auto keep = library != nullptr ? reinterpret_cast<int (*)(std::size_t)>(dlsym(library, "plugin_keep")) : nullptr;
    if (keep == nullptr) return 1;
    CUcontext context = nullptr;
    CUdeviceptr own = 0, refused = 0;
    host::say("cuInit", &cuInit, 0u);
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", &cuCtxSetCurrent, context);
    host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &own, std::size_t{100} << 20);
    std::printf("kept %d\n", keep(std::size_t{1000} << 20));
    host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &refused, std::size_t{8000} << 20);
    return 0;
}
