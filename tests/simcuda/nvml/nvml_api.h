// The part of NVML's interface that the stand-in has: types and numbers, written down from NVIDIA's public
// documentation ("NVML API Reference Guide", docs.nvidia.com/deploy/nvml-api: modules "Device Structs", "Device Enums",
// "Device Queries", "Multi Instance GPU Management"). There is no header of NVML where this is built; test_nvml.py holds
// the layouts against NVIDIA's own Python binding, where it is installed.
#pragma once

#include <cstdint>

namespace fragscope::nvml {

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kUninitialized = 1;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kArgumentVersionMismatch = 25;
inline constexpr Return kUnknown = 999;

inline constexpr unsigned long long kNotAvailable = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE
inline constexpr unsigned kNoInstance = ~0U;                // of a process, where there is no MIG

struct Memory {
    unsigned long long total, free, used;
};
struct MemoryV2 {
    unsigned version;  // sizeof | 2 << 24
    unsigned long long total, reserved, free, used;
};
struct PciInfo {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
struct ProcessV1 {
    unsigned pid;
    unsigned long long used;
};
struct ProcessV2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
// What some drivers of the 535 series fill in for the third version of the call, without a version of its own: two
// public reports of programs that it broke are XuehaiPan/nvitop#79 and #89.
struct ProcessWithProtected {
    ProcessV2 process;
    unsigned long long used_protected;
};
struct FabricInfo {
    unsigned char cluster[16];
    Return status;
    unsigned clique;
    unsigned char state;
};
struct FabricInfoV2 {
    unsigned version;  // sizeof | 2 << 24
    unsigned char cluster[16];
    Return status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
struct FabricInfoV3 {
    unsigned version;  // sizeof | 3 << 24
    unsigned char cluster[16];
    Return status;
    unsigned clique;
    unsigned char state;
    unsigned health;
    unsigned char summary;
};
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40 && sizeof(PciInfo) == 68 && sizeof(ProcessV1) == 16 &&
              sizeof(ProcessV2) == 24 && sizeof(ProcessWithProtected) == 32 && sizeof(FabricInfoV2) == 36 &&
              sizeof(FabricInfoV3) == 40);

}  // namespace fragscope::nvml
