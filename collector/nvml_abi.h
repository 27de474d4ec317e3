// What the collector uses of NVML's interface, NVIDIA's management library: types and numbers written down
// from its public documentation ("NVML API Reference Guide", docs.nvidia.com/deploy/nvml-api). Its header is
// not needed to build, and the library is looked for only at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::collector::nvml {

using Return = int;
using Device = void*;

inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kFunctionNotFound = 13;  // also: the library is newer than the kernel's module
inline constexpr unsigned long long kNotAvailable = ~0ULL;
inline constexpr unsigned kNoInstance = ~0U;

inline constexpr unsigned kTextBytes = 96;  // holds every text that is asked for; NVML's longest is 96

struct Memory {
    unsigned long long total, free, used;  // used with what is reserved
};
struct MemoryV2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2U << 24;

struct PciInfo {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

// Entries of the lists of processes lie one behind the other: first the number (4 bytes) at 0, then the bytes
// at 8, then, but for the oldest form, the instances at 16 and 20. How long an entry is depends on the
// version of the function and, for the third one, on the driver: 24 bytes as documented, 32 in some of the
// 535 series, 16 in some others (public reports: XuehaiPan/nvitop pull requests 79, 89 and 226).
struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
inline constexpr std::size_t kProcessBytesV1 = 16;
inline constexpr std::size_t kProcessBytesV2 = sizeof(Process);
inline constexpr std::size_t kProcessBytesMost = 32;

static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40 && sizeof(PciInfo) == 68 &&
              sizeof(Process) == 24 && offsetof(Process, used) == 8 && offsetof(Process, gpu_instance) == 16);

}  // namespace fragscope::collector::nvml
