#include "analysis/mechanism_facts.h"

#include <fmt/format.h>

#include "analysis/request.h"
#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

// CUdevice_attribute of cuda.h.
constexpr std::uint32_t kVirtualMemoryManagementSupported = 102;
constexpr std::uint32_t kMemoryPoolsSupported = 115;

Capability capability_of(const trace::Device* device, std::uint32_t attribute, const char* name,
                         bool witnessed, const char* call) {
    if (device != nullptr) {
        const auto found = device->attributes().find(attribute);
        if (found != device->attributes().end())
            return {found->second != 0, fmt::format("{} is {}", name, found->second)};
    }
    if (witnessed) return {true, fmt::format("{} succeeded in this process", call)};
    return {std::nullopt, fmt::format("the trace does not say what {} is", name)};
}

}  // namespace

MechanismFacts mechanism_facts_of(const Trace& trace, ProcessIndex process, int device,
                                  const RequestMade& request) {
    MechanismFacts out;
    out.times = SizedTimes::of(trace, process, device);
    out.reuse = recurrence_of(trace, process, device, request);
    out.clients = clients_of(trace, process);
    if (process.value < trace.events.size()) {
        for (const Event& event : trace.events[process.value]) {
            if (event.failed() || event.has(wire::kByShim)) continue;
            if (event.kind == wire::Kind::kIpcExported) ++out.ipc_exports;
            if (event.kind == wire::Kind::kHandleCreated && device_of_call(event) == device)
                out.creates_handles = true;
            if (event.kind == wire::Kind::kPoolAcquired && event.device == device) out.uses_pools = true;
        }
    }
    const trace::Device* about = device_of(trace, process, device);
    out.virtual_memory = capability_of(about, kVirtualMemoryManagementSupported,
                                       "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
                                       out.creates_handles, "cuMemCreate");
    out.pools = capability_of(about, kMemoryPoolsSupported, "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED",
                              out.uses_pools, "cuMemAllocAsync");
    return out;
}

}  // namespace fragscope::analysis
