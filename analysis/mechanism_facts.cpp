#include "analysis/mechanism_facts.h"

#include <fmt/format.h>

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

void add_capabilities(MechanismFacts& facts, const Trace& trace, ProcessIndex process, int device) {
    const trace::Device* about = device_of(trace, process, device);
    facts.virtual_memory = capability_of(about, kVirtualMemoryManagementSupported,
                                         "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
                                         facts.creates_handles, "cuMemCreate");
    facts.pools = capability_of(about, kMemoryPoolsSupported, "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED",
                                facts.uses_pools, "cuMemAllocAsync");
}

}  // namespace fragscope::analysis
