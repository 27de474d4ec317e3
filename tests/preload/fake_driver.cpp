// A libcuda.so.1 for testing the shim, not a model of a GPU (tests/simcuda is that): every hooked function
// exists and counts its calls (fake_rows.cpp), a few do just enough. What it can do that a good driver does
// not: hand an address out again at once, fail on demand, look its own functions up, take offence at
// questions during a stream capture.
//
// A program that exports host_at_allocation() has it called by cuMemAlloc_v2, from inside the driver.
//
// Settings, from the environment: FAKE_FAIL=<function> makes it return FAKE_RESULT (a number, default 2).
#define __CUDA_API_VERSION_INTERNAL
#include "fake_driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<int> unsafe_calls{0};
std::atomic<int> captures{0};
std::atomic<std::uint64_t> next_address{0x700000000000};
std::atomic<std::uint64_t> next_handle{0x1000};
// The address freed last, handed out again first.
std::atomic<CUdeviceptr> last_freed{0};
std::atomic<std::uint64_t> calls{0};
std::atomic<int> all_fail{0};
thread_local CUcontext current = nullptr;

CUcontext const kContexts[2] = {reinterpret_cast<CUcontext>(0xc0000), reinterpret_cast<CUcontext>(0xc0001)};

CUresult outcome(const char* function) { return fake_outcome(function); }

// Asked by the program or the shim while a capture runs: a real driver would end the capture for some of
// these.
void unsafe_in_capture() {
    if (captures.load() != 0) unsafe_calls.fetch_add(1);
}

template <typename Handle>
Handle handle() {
    return reinterpret_cast<Handle>(next_handle.fetch_add(0x10));
}

CUdeviceptr take_address(std::size_t bytes) {
    if (const CUdeviceptr again = last_freed.exchange(0); again != 0) return again;
    return next_address.fetch_add((bytes + 0x1fffff) & ~std::size_t{0x1fffff});
}

CUdevice device_of(CUcontext context) { return context == kContexts[1] ? 1 : 0; }

}  // namespace

extern "C" {

// Questions of the tests. Named outside of cu[A-Z], so that no shim takes them for the driver's.
CUresult fake_outcome(const char* function) {
    calls.fetch_add(1, std::memory_order_relaxed);
    static const char* const failing = std::getenv("FAKE_FAIL");
    static const char* const result = std::getenv("FAKE_RESULT");
    if (const int all = all_fail.load(std::memory_order_relaxed); all != 0) return static_cast<CUresult>(all);
    if (failing != nullptr && std::strcmp(failing, function) == 0)
        return static_cast<CUresult>(result != nullptr ? std::atoi(result) : 2);
    return CUDA_SUCCESS;
}
void fake_fail_all(CUresult result) { all_fail.store(result); }
int fake_unsafe_calls() { return unsafe_calls.load(); }
std::uint64_t fake_calls() { return calls.load(); }
void fake_set_current(CUcontext context) { current = context; }

// ------------------------------------------------------------------------------------- start-up, devices,
// contexts

CUresult cuInit(unsigned) { return outcome("cuInit"); }
CUresult cuDriverGetVersion(int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
    *count = 2;
    return outcome("cuDeviceGetCount");
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
    std::strncpy(name, "Fake device with a name longer than thirty-two bytes",
                 static_cast<std::size_t>(length));
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = std::size_t{8} << 30;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    std::memset(uuid->bytes, 0x40 + device, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    *value = static_cast<int>(attribute) + 1000;
    return outcome("cuDeviceGetAttribute");
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    *bytes = 2u << 20;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = device_of(current);
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return outcome("cuCtxSetCurrent");
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    const CUresult result = outcome("cuDevicePrimaryCtxRetain");
    if (result == CUDA_SUCCESS) *context = kContexts[device & 1];
    return result;
}
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
    const CUresult result = outcome("cuCtxCreate_v4");
    if (result == CUDA_SUCCESS) *context = current = kContexts[device & 1];
    return result;
}

// -------------------------------------------------------------------------------------------------------
// memory

// A failure leaves rubbish in the output, as nothing forbids it to.
[[gnu::weak]] void host_at_allocation(std::size_t bytes);

CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
    if (host_at_allocation != nullptr) host_at_allocation(bytes);
    const CUresult result = outcome("cuMemAlloc_v2");
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = result == CUDA_SUCCESS ? take_address(bytes) : 0xdead;
    errno = 77;
    return result;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
    const CUresult result = outcome("cuMemFree_v2");
    if (result == CUDA_SUCCESS) last_freed.store(address);
    return result;
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width, std::size_t height,
                            unsigned) {
    const CUresult result = outcome("cuMemAllocPitch_v2");
    if (result != CUDA_SUCCESS || out == nullptr || pitch == nullptr) return result;
    *pitch = (width + 511) & ~std::size_t{511};
    *out = take_address(*pitch * height);
    return result;
}
CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
    const CUresult result = outcome("cuMemHostAlloc");
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<void*>(take_address(bytes));
    return result;
}
CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
    unsafe_in_capture();
    const CUresult result = outcome("cuMemGetInfo_v2");
    if (result != CUDA_SUCCESS) return result;
    if (free_bytes != nullptr) *free_bytes = std::size_t{3} << 30;
    if (total_bytes != nullptr) *total_bytes = std::size_t{8} << 30;
    return result;
}
CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
    const CUresult result = outcome("cuMemAddressReserve");
    if (result == CUDA_SUCCESS && out != nullptr) *out = take_address(bytes);
    return result;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t, const CUmemAllocationProp*,
                     unsigned long long) {
    const CUresult result = outcome("cuMemCreate");
    if (result == CUDA_SUCCESS && out != nullptr) *out = next_handle.fetch_add(0x10);
    return result;
}
CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream) {
    const CUresult result = outcome("cuMemAllocAsync");
    if (result == CUDA_SUCCESS && out != nullptr) *out = take_address(bytes);
    return result;
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
    return cuMemAllocAsync(out, bytes, stream);
}
CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps*) {
    const CUresult result = outcome("cuMemPoolCreate");
    if (result == CUDA_SUCCESS) *out = handle<CUmemoryPool>();
    return result;
}
CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
    unsafe_in_capture();
    *out = reinterpret_cast<CUmemoryPool>(static_cast<std::uintptr_t>(0xb0000 + device));
    return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute attribute, void* value) {
    unsafe_in_capture();
    *static_cast<cuuint64_t*>(value) = static_cast<cuuint64_t>(attribute) << 20;
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------------
// captures

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    *status = captures.load() != 0 && stream == reinterpret_cast<CUstream>(0x50)
                  ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                  : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
    return cuStreamIsCapturing(stream, status);
}
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
    captures.fetch_add(1);
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream, CUgraph*) {
    captures.fetch_sub(1);
    return CUDA_SUCCESS;
}

// ---------------------------------------------------------------------------------------------------------
// doors

// The driver looks itself up, as the one of WSL does.
CUresult cuCtxSynchronize() {
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(&fake_calls), &self) == 0) return CUDA_ERROR_UNKNOWN;
    void* own = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void* found = dlsym(own, "cuStreamQuery");
    return found == reinterpret_cast<void*>(&cuStreamQuery) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    struct Export {
        const char* name;
        void* address;
    };
    static const Export exports[] = {
#define HOOK(symbol, parameters, arguments, numbered, event) {#symbol, reinterpret_cast<void*>(&symbol)},
#define ASK(symbol)
#include "interpose/hooks.def"
    };
    if (function == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *function = nullptr;
    // An address in the driver that it exports under no name.
    if (std::strcmp(symbol, "cuCtxGetFlags") == 0) *function = reinterpret_cast<char*>(&cuInit) + 1;
    // The newest variant; the caller's exact names are found as they are.
    for (const char* suffix : {"_v2", ""})
        for (const Export& each : exports) {
            const std::size_t length = std::strlen(symbol);
            const bool match =
                std::strncmp(each.name, symbol, length) == 0 && std::strcmp(each.name + length, suffix) == 0;
            if (match && *function == nullptr) *function = each.address;
        }
    if (status != nullptr)
        *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    (void)flags;
    return CUDA_SUCCESS;
}
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"
