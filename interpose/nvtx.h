// What NVTX and the tools that listen to it agree on: the part of nvtx3/nvtxDetail/nvtxTypes.h and
// nvtx3/nvToolsExt.h that is needed here (https://github.com/NVIDIA/NVTX, version 3), written down because
// not every toolkit brings the headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::interpose::nvtx {

// Names the tool that NVTX_INJECTION64_PATH named before it named the shim.
inline constexpr char kChainVariable[] = "FRAGSCOPE_NVTX_CHAIN";

using Generic = void (*)();
using GetExportTable = const void* (*)(std::uint32_t id);
using Initialize = int (*)(GetExportTable get_table);
using InitializeExtension = int (*)(void* module);

inline constexpr std::uint32_t kCallbacksTable = 1;
struct Callbacks {
    std::size_t struct_size;
    // A table of pointers to the pointers that NVTX calls by; ids count from 1. 0: there is no such module.
    int (*module_functions)(int module, Generic*** table, unsigned* size);
};

// Modules: core, CUDA, OpenCL, CUDA runtime, core 2, synchronisation.
inline constexpr std::uint32_t kCore = 1, kCore2 = 5, kModules = 7;

enum CoreId : std::uint32_t {
    kMarkEx = 1,
    kMarkA,
    kMarkW,
    kRangeStartEx,
    kRangeStartA,
    kRangeStartW,
    kRangeEnd,
    kRangePushEx,
    kRangePushA,
    kRangePushW,
    kRangePop,
    kNameCategoryA,
    kNameCategoryW,
    kNameOsThreadA,
    kNameOsThreadW,
    kCoreSize,
};
enum Core2Id : std::uint32_t {
    kDomainMarkEx = 1,
    kDomainRangeStartEx,
    kDomainRangeEnd,
    kDomainRangePushEx,
    kDomainRangePop,
    kDomainResourceCreate,
    kDomainResourceDestroy,
    kDomainNameCategoryA,
    kDomainNameCategoryW,
    kDomainRegisterStringA,
    kDomainRegisterStringW,
    kDomainCreateA,
    kDomainCreateW,
    kDomainDestroy,
    kInitialize,
    kCore2Size,
};

enum MessageType : std::int32_t { kAscii = 1, kUnicode = 2, kRegistered = 3 };
enum PayloadType : std::int32_t {
    kUnsigned64 = 1,
    kSigned64 = 2,
    kDouble = 3,
    kUnsigned32 = 4,
    kSigned32 = 5,
    kFloat = 6,
};
struct Attributes {
    std::uint16_t version;
    std::uint16_t size;
    std::uint32_t category;
    std::int32_t color_type;
    std::uint32_t color;
    std::int32_t payload_type;
    std::int32_t reserved;
    std::uint64_t payload;
    std::int32_t message_type;
    const void* message;  // text, wide text, or the handle of a registered one
};
static_assert(sizeof(Attributes) == 48);

// What pushing and popping answer where nobody counts the levels.
inline constexpr int kNoTracking = -2;

}  // namespace fragscope::interpose::nvtx
