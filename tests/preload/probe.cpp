// A program that is not linked to the driver and asks what there is, as libraries do.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>

int main(int count, char** arguments) {
    if (count > 1 && std::strcmp(arguments[1], "no-driver") == 0) {
        void* found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        std::printf("cuMemAlloc_v2 %s by default\n", found != nullptr ? "present" : "absent");
        return 0;
    }
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return 1;
    for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuMemAllocAsync", "cuGetProcAddress",
                             "cuGetProcAddress_v2", "cuMemSetMemPool", "cuMemCreate"})
        for (void* handle : {driver, RTLD_DEFAULT, RTLD_NEXT}) {
            void* found = dlsym(handle, name);
            std::printf("%s %s %s\n", handle == driver ? "handle" : "scope", name,
                        found != nullptr ? "present" : "absent");
        }
    auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto alloc = reinterpret_cast<int (*)(unsigned long long*, std::size_t)>(dlsym(driver, "cuMemAlloc_v2"));
    unsigned long long address = 0;
    std::printf("init %d\n", init(0));
    std::printf("alloc %d\n", alloc(&address, 100));
    return 0;
}
