// A library that works with the driver: linked to it (PLUGIN_LINKED), or by its own dlopen and dlsym. HOST_DOOR=default, next:
// by what it finds with that, which for a library opened with RTLD_LOCAL includes what it needs itself.
#include "host.h"

extern "C" int plugin_run() {
    host::Driver driver;
#ifdef PLUGIN_LINKED
#define HOST_TAKE(symbol, base) driver.symbol = &::symbol;
    HOST_FUNCTIONS(HOST_TAKE)
#else
    driver = host::by_handle(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
#endif
    const char* door = std::getenv("HOST_DOOR");
    if (door != nullptr) driver = host::by_handle(std::strcmp(door, "next") == 0 ? RTLD_NEXT : RTLD_DEFAULT);
    const int status = host::work(driver);
    std::fflush(stdout);
    return status;
}

// Takes memory and keeps it.
extern "C" int plugin_keep(std::size_t bytes) {
    const host::Driver driver = host::by_handle(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
    CUdeviceptr kept = 0;
    return driver.cuMemAlloc_v2 != nullptr ? driver.cuMemAlloc_v2(&kept, bytes) : -1;
}
