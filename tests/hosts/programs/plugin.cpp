// A library that works with the driver: linked to it (PLUGIN_LINKED), or by its own dlopen and dlsym.
#include "host.h"

extern "C" int plugin_run() {
    host::Driver driver;
#ifdef PLUGIN_LINKED
#define HOST_TAKE(symbol, base) driver.symbol = &::symbol;
    HOST_FUNCTIONS(HOST_TAKE)
#else
    driver = host::by_handle(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
#endif
    const int status = host::work(driver);
    std::fflush(stdout);
    return status;
}
