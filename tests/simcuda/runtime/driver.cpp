// Finding the driver and asking it for every function (see driver.h).
#include "driver.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <mutex>

#include "state.h"

namespace fragscope::simrt {
namespace {

constexpr cuuint64_t kLegacyStream = CU_GET_PROC_ADDRESS_DEFAULT;
constexpr cuuint64_t kPerThreadStream = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

DriverTable g_table;
std::once_flag g_once;
cudaError_t g_outcome = cudaErrorInitializationError;

// dlsym and cuGetProcAddress hand out data pointers; POSIX guarantees the conversion.
template <class Function>
Function as_function(void* address) {
    return reinterpret_cast<Function>(address);
}

void* ask(PFN_cuGetProcAddress_v12000 resolver, const char* name, int version, cuuint64_t flags) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (resolver(name, &found, version, flags, &status) != CUDA_SUCCESS) return nullptr;
    return status == CU_GET_PROC_ADDRESS_SUCCESS ? found : nullptr;
}

// NVIDIA's runtime begins with a look-up of the empty name, then fetches the resolver through itself and uses
// only the fetched one from there on. A tracer that replaces only the first resolver would miss everything.
PFN_cuGetProcAddress_v12000 fetch_resolver(void* library) {
    const auto first = as_function<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
    if (first == nullptr) return nullptr;
    (void)ask(first, "", 0, kLegacyStream);
    g_table.Init = as_function<PFN_cuInit_v2000>(ask(first, "cuInit", 2000, kLegacyStream));
    (void)ask(first, "cuGetProcAddress", 11030, kLegacyStream);
    return as_function<PFN_cuGetProcAddress_v12000>(ask(first, "cuGetProcAddress", 12000, kLegacyStream));
}

void fill_table(PFN_cuGetProcAddress_v12000 resolver) {
    g_table.GetProcAddress = resolver;
#define FN(name, version) \
    g_table.name = as_function<PFN_cu##name##_v##version>(ask(resolver, "cu" #name, version, kLegacyStream));
#define STREAM(name, version, per_thread_version)                                                  \
    g_table.stream[0].name =                                                                       \
        as_function<PFN_cu##name##_v##version>(ask(resolver, "cu" #name, version, kLegacyStream)); \
    g_table.stream[1].name = as_function<PFN_cu##name##_v##version>(                               \
        ask(resolver, "cu" #name, per_thread_version, kPerThreadStream));
#include "driver_functions.def"
#undef FN
#undef STREAM
#define ASK(name, version, flags) (void)ask(resolver, "cu" #name, version, flags);
#include "driver_lookups.def"
#undef ASK
}

cudaError_t find_driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return cudaErrorInsufficientDriver;
    const auto resolver = fetch_resolver(library);
    if (resolver == nullptr) return cudaErrorInsufficientDriver;
    fill_table(resolver);
    if (g_table.Init == nullptr || g_table.DriverGetVersion == nullptr) return cudaErrorInsufficientDriver;
    int version = 0;
    // A runtime takes any driver of its own major version and newer: NVIDIA's 12.8 starts on a driver 12.0.
    if (g_table.DriverGetVersion(&version) != CUDA_SUCCESS || version / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return to_runtime_error(g_table.Init(0));
}

}  // namespace

cudaError_t load_driver() {
    std::call_once(g_once, [] { g_outcome = find_driver(); });
    return g_outcome;
}

const DriverTable& driver() { return g_table; }

}  // namespace fragscope::simrt
