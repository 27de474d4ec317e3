// What a report must say of where it was made: the process, the driver and its devices. Asked once, after the
// program itself has initialised the driver; none of the questions needs or makes a context.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "interpose/ask.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/state.h"

namespace fragscope::interpose {

namespace {

#ifndef FRAGSCOPE_VERSION
#error "the build passes FRAGSCOPE_VERSION"
#endif

// Properties that decide what memory can be had and how.
constexpr CUdevice_attribute kAttributes[] = {
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_INTEGRATED,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
};

void send(Kind kind, HookId function, std::uint8_t device, std::uint64_t address, std::uint64_t bytes,
          std::uint64_t object, std::uint64_t extra) {
    wire::Record record = shim_record(kind, function, device);
    record.address = address;
    record.bytes = bytes;
    record.object = object;
    record.extra = extra;
    emit(record);
}

template <typename Function, typename... Arguments>
bool ask(const std::atomic<Function>& function, Arguments... arguments) {
    const Function real = function.load(std::memory_order_relaxed);
    return real != nullptr && real(arguments...) == CUDA_SUCCESS;
}

void announce_device(int ordinal, int count) {
    constexpr HookId function = HookId::k_cuInit;
    CUdevice device = 0;
    if (!ask(driver.cuDeviceGet, &device, ordinal)) return;
    const auto id = static_cast<std::uint8_t>(ordinal);
    CUuuid uuid{};
    std::uint64_t halves[2] = {0, 0};
    if (ask(driver.cuDeviceGetUuid_v2, &uuid, device) || ask(driver.cuDeviceGetUuid, &uuid, device))
        memcpy(halves, uuid.bytes, sizeof halves);
    std::size_t capacity = 0;
    if (!ask(driver.cuDeviceTotalMem_v2, &capacity, device)) capacity = 0;
    send(Kind::kDevice, function, id, halves[0], capacity, halves[1], static_cast<std::uint64_t>(count));
    char device_name[256] = {};
    if (ask(driver.cuDeviceGetName, &device_name[0], static_cast<int>(sizeof device_name), device))
        emit_text(wire::TextKind::kDeviceName, id, device_name, strnlen(device_name, sizeof device_name));
    const std::uint64_t minimum = granularity_of(device, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const std::uint64_t recommended = granularity_of(device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (minimum != 0) send(Kind::kDeviceGranularity, function, id, minimum, recommended, 0, 0);
    for (const CUdevice_attribute attribute : kAttributes) {
        int value = 0;
        if (ask(driver.cuDeviceGetAttribute, &value, attribute, device))
            send(Kind::kDeviceAttribute, function, id, static_cast<std::uint64_t>(attribute),
                 static_cast<std::uint64_t>(static_cast<std::int64_t>(value)), 0, 0);
    }
}

}  // namespace

void announce_process() {
    char text[wire::kMaxTextBytes];
    const ssize_t length = readlink("/proc/self/exe", text, sizeof text);
    if (length > 0) emit_text(wire::TextKind::kExecutable, 0, text, static_cast<std::size_t>(length));
    const std::size_t line = read_file("/proc/self/cmdline", text, sizeof text);
    if (line > 0) emit_text(wire::TextKind::kCommandLine, 0, text, line);
    emit_text(wire::TextKind::kShimVersion, 0, FRAGSCOPE_VERSION, strlen(FRAGSCOPE_VERSION));
    driver_path(text, sizeof text);
    emit_text(wire::TextKind::kDriverPath, 0, text, strlen(text));
}

void announce_environment() {
    const int saved = errno;
    int version = 0;
    if (!ask(driver.cuDriverGetVersion, &version)) version = 0;
    char path[1024];
    const int runtime = runtime_path(path, sizeof path);
    emit_text(wire::TextKind::kRuntimePath, 0, path, strlen(path));
    send(Kind::kDriver, HookId::k_cuInit, wire::kDeviceUnknown, static_cast<std::uint64_t>(version),
         static_cast<std::uint64_t>(runtime), 0, 0);
    int count = 0;
    if (!ask(driver.cuDeviceGetCount, &count)) count = 0;
    for (int i = 0; i < count && i < wire::kDeviceUnknown; ++i) announce_device(i, count);
#define HOOK(symbol, parameters, arguments, numbered, event) \
    if (driver.symbol.load() == nullptr)                     \
        send(Kind::kHookMissing, HookId::k_##symbol, wire::kDeviceUnknown, 0, 0, 0, 0);
#include "interpose/hooks.def"
    send(Kind::kEnvironmentComplete, HookId::k_cuInit, wire::kDeviceUnknown, 0, 0, 0, 0);
    errno = saved;
}

}  // namespace fragscope::interpose
