// The agreement between the preloaded shim and the collector: what lies where in the session's shared memory, and what
// one record means. Plain structs with asserted sizes; no operating-system calls, nothing but <atomic> and <cstdint>.
//
// Both ends check `kLayoutVersion` and decline on any difference: there is no compatibility across versions here (the
// trace file has that, see FORMAT.md). Either end may be killed at any instruction and either end may find rubbish in the
// memory, so nothing read from it is used as an index, an offset or a length before it was compared with the sizes that
// the reader knows by itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace fragscope::wire {

// Changes with every change of a struct, a record kind's meaning or the ring protocol in ring.h.
inline constexpr std::uint32_t kLayoutVersion = 3;
inline constexpr std::uint64_t kMagic = 0x3145504f43534746;  // "FGSCOPE1" in memory order

// Name of the environment variable with the POSIX shared-memory name of the session ("/fragscope-…"). Absent: the shim
// only forwards calls.
inline constexpr char kSessionVariable[] = "FRAGSCOPE_SESSION";

// ---------------------------------------------------------------------------------------------------------- records

// What happened, in terms of memory. The trace stores these numbers: never renumber, only append.
// The four payload fields of Record mean, by kind (a dash: zero):
enum class Kind : std::uint8_t {
    kNone = 0,  //                                address          bytes             object         extra
    // Linear device memory; `object` is the context that owns it.
    kLinearAcquired = 1,   // cuMemAlloc*         address          requested         context        -
    kPitchAcquired = 2,    // cuMemAllocPitch     address          requested (w*h)   context        granted (pitch*h)
    kManagedAcquired = 3,  // cuMemAllocManaged   address          requested         context        attach flags
    kLinearReleased = 4,   // cuMemFree*          address          -                 context        -
    // Page-locked host memory.
    kHostAcquired = 5,      // cuMemHostAlloc…    address          requested         context        flags
    kHostReleased = 6,      // cuMemFreeHost      address          -                 context        -
    kHostRegistered = 7,    // cuMemHostRegister  address          bytes             context        flags
    kHostUnregistered = 8,  //                    address          -                 context        -
    // Virtual memory management.
    kReserved = 9,         // cuMemAddressReserve address          size              alignment      address asked for
    kReservationFreed = 10,  // cuMemAddressFree  address          size              -              -
    kHandleCreated = 11,   // cuMemCreate         -                size              handle         pack_location(), see below
    kHandleReleased = 12,  // cuMemRelease        -                -                 handle         -
    kHandleRetained = 13,  // cuMemRetainAlloc…   address asked    -                 handle         -
    kHandleExported = 14,  // cuMemExportTo…      -                -                 handle         handle type
    kHandleImported = 15,  // cuMemImportFrom…    -                -                 handle         handle type
    kMapped = 16,          // cuMemMap            address          size              handle         offset
    kUnmapped = 17,        // cuMemUnmap          address          size              -              -
    kAccessSet = 18,       // cuMemSetAccess      address          size              location       protection
    // Stream-ordered memory. An allocation asked for during capture has Flag::kCaptured and acquires no bytes.
    kPoolCreated = 19,       // cuMemPoolCreate   -                maximum size or 0 pool           pack_location()
    kPoolDestroyed = 20,     // cuMemPoolDestroy  -                -                 pool           -
    kPoolTrimmed = 21,       // cuMemPoolTrimTo   -                bytes to keep     pool           -
    kPoolAttributeSet = 22,  // …SetAttribute     -                value             pool           CUmemPool_attribute
    kPoolBound = 23,         // cuDeviceSetMemPool, or a pool found to be a device's current one: object pool
    kPoolAcquired = 24,      // cuMemAllocAsync   address          requested         pool or 0      stream
    kPoolReleased = 25,      // cuMemFreeAsync    address          -                 -              stream
    // Everything before it on this stream is done: frees have taken effect. Object: the stream's handle, where a call that
    // named its stream by NULL is told by what NULL meant to it: 2 (CU_STREAM_PER_THREAD, the calling thread's own) with
    // Flag::kPerThreadStream, else 1 (CU_STREAM_LEGACY). 0: the whole context in extra. kPoolAcquired and kPoolReleased
    // give the stream as it was passed: translate NULL in the same way before comparing.
    kSynchronized = 26,  //                       -                -                 stream or 0    context
    // Contexts.
    kContextCreated = 27,     //                  -                flags             context        -
    kContextDestroyed = 28,   //                  -                -                 context        -
    kPrimaryRetained = 29,    //                  -                -                 context        -
    kPrimaryReleased = 30,    //                  -                -                 -              -
    kPrimaryReset = 31,       //                  -                -                 -              -
    // What the driver said about itself. Flag::kByShim tells whether the program or the shim asked.
    kDeviceMemory = 32,  // cuMemGetInfo          free             total, 0: not told   context     -
    kPoolState = 33,     //                       used current     reserved current  pool           release threshold
    kPoolHigh = 34,      //                       used high        reserved high     pool           maximum size
    // kPoolHigh.extra: what the program asked for when it created the pool here; 0: it asked for no limit, or the pool was
    // not created by a call that was seen (a device's own, an imported one), or it came before the attachment.
    // Environment.
    kDevice = 35,            // one per ordinal   uuid first 8     capacity          uuid last 8    number of devices
    kDeviceGranularity = 36,  //                  minimum          recommended       -              -
    kDeviceAttribute = 37,   //                   CUdevice_attribute value           -              -
    kDriver = 38,            //                   driver version   runtime version or 0   -         -
    kHookMissing = 39,       // the driver lacks the function named in the record
    kEnvironmentComplete = 40,
    // Names: see TextRecord.
    kText = 41,
    // First write by a copy or memset to this extent: evidence of payload, sent once per growth, not once per copy.
    kTouched = 42,  //                            address          bytes             -              -
    // A call that is noted and says nothing of memory: cuInit, cuDeviceGetCount, …; launches, copies, memsets and questions if
    // they failed for want of memory, and all of them where the session wants all calls (SessionHeader::record_calls).
    kCalled = 44,
    // Ends the kDeviceMemory/kPool… records after a failed call. Object: the sequence number of that call. Bytes: pools that
    // were not asked about, because more were met than the shim can keep; extra: failed calls since the last such end that
    // got no snapshot (they came too soon after another one). With Flag::kCaptured nothing was asked at all, as a stream
    // capture was running somewhere in the process; with kNoContext the device was not.
    kFailureSnapshotEnd = 43,
    // Arrays: opaque layouts without an address. Owned by a context and ended with it.
    kArrayCreated = 45,   // cuArrayCreate, cuMipmappedArrayCreate; `bytes` is what the descriptor's texels take over all
                          // levels, a lower bound of what is charged; 0: not known of this format
                          //                    context          texel bytes       array          pack_array()
    kArrayReleased = 46,  // cuArrayDestroy…    -                -                 array          -
    // A second name for an array of somebody else, without bytes of its own: a mip level, a plane, external or graphics memory.
    kArrayAliased = 47,   //                    owner            -                 array          -
    // cuMemMapArrayAsync, one record for each part (kContinued from the second on): memory behind sparse and deferred arrays.
    kArrayMapped = 48,    //                    array            bytes or 0        handle, 0: unmapped   stream
    // Memory shared with other processes: counted by who exports it. An identity is identity_of() of the exported description.
    kIpcExported = 49,    // cuIpcGetMemHandle  address          -                 -              identity
    kIpcOpened = 50,      // cuIpcOpenMemHandle address          -                 context        identity
    kIpcClosed = 51,      // cuIpcCloseMemHandle address         -                 -              -
    kRangeExported = 52,  // cuMemGetHandleForAddressRange address size            -              handle type
    kPoolExported = 53,   // …ExportToShareable -                -                 pool           handle type
    kPoolImported = 54,   // …ImportFrom…       -                -                 pool           handle type
    kPoolPointerExported = 55,  //              address          -                 -              identity
    kPoolPointerImported = 56,  //              address          -                 pool           identity
    kPoolAccessSet = 57,  // one per descriptor protection       -                 pool           pack_location()
    // Memory of other programming interfaces (Vulkan, OpenGL, Direct3D): counted by nobody here.
    kExternalImported = 58,  //                 -                size              external       handle type
    kExternalMapped = 59,    // …GetMappedBuffer address         bytes             external       offset
    kExternalReleased = 60,  //                 -                -                 external       -
    kGraphicsMapped = 61,    // one per resource -               -                 resource       stream
    kGraphicsUnmapped = 62,  // one per resource -               -                 resource       stream
    kGraphicsPointer = 63,   // …GetMappedPointer address        bytes             resource       -
    kGraphicsReleased = 64,  // …UnregisterResource -            -                 resource       -
    // Multicast objects own no memory. `object` is the multicast handle.
    kMulticastCreated = 65,      //             devices          size              handle         handle types
    kMulticastDeviceAdded = 66,  // `device`    -                -                 handle         -
    kMulticastBound = 67,        // cuMulticastBindMem, …BindAddr: offset in it    bytes   handle   memory handle or address
    kMulticastUnbound = 68,      // `device`    offset in it     bytes             handle         -
    // Graphs: an allocation node has an address and no bytes before a launch; its memory is the device's graph memory.
    kGraphAllocNode = 69,    // cuGraphAddMemAllocNode, cuGraphAddNode address requested graph  node
    kGraphFreeNode = 70,     //                 address          -                 graph          node
    kGraphInstantiated = 71,  //                -                flags             executable     graph
    kGraphLaunched = 72,     // only in processes that made allocation nodes       executable     stream
    kGraphExecReleased = 73,  //                -                -                 executable     -
    kGraphReleased = 74,     //                 -                -                 graph          -
    kGraphMemoryTrimmed = 75,  // cuDeviceGraphMemTrim
    kGraphMemory = 76,       // cuDeviceGetGraphMemAttribute: used current, reserved current, used high, reserved high
    // Code and contexts: they take device memory that no call states.
    kModuleLoaded = 77,    //                   1: library       bytes of the image, 0: not known   module or library   context
    kModuleUnloaded = 78,  //                   1: library       -                 module or library   -
    kGlobalFound = 79,     // cuModuleGetGlobal, cuLibraryGetGlobal/Managed: address bytes module or library   1: managed
    kLimitSet = 80,        // cuCtxSetLimit     CUlimit          value             context        -
    kPeerAccessSet = 81,   // cuCtxEnablePeerAccess, …Disable…   1: on, 0: off   - context        peer context
    kStreamCreated = 82,   //                   -                -                 stream         context, 0: a green one's
    kStreamDestroyed = 83,  //                  -                -                 stream         -
    kGreenContextCreated = 84,    //            -                flags             green context  -
    kGreenContextDestroyed = 85,  //            -                -                 green context  -
    kCheckpoint = 86,      // cuCheckpointProcess…: step (1 lock, 2 checkpoint, 3 restore, 4 unlock)  -   process id   -
    // Where managed memory should lie. One record for each extent (kContinued).
    kAdvised = 87,         // cuMemAdvise, prefetch, discard, attach: address bytes pack_location()   pack_advice()
    // What the program says of itself. Names are texts of kind kString; `object` is the string's id.
    kMark = 88,        // nvtxMark, fragscope_mark: domain's string or 0   payload   string   -
    kRangeBegun = 89,  // nvtxRangePush/Start   domain's string or 0   payload   string   id of a started range, 0: pushed
    kRangeEnded = 90,  // nvtxRangePop/End      domain's string or 0   -         -        id of a started range, 0: popped
    // Allocations that the shim tried and undid after a failed call (--probe-on-oom). Result: the driver's answer. Bytes 0:
    // the mechanism could not be tried.
    kProbe = 91,       //                       ProbeMechanism   bytes             sequence of the failed call   granularity
    kProbesEnded = 92,  //                      ProbesEnd        nanoseconds       sequence of the failed call   most bytes at once
    // Ends the kDeviceMemory, kPoolState and kGraphMemory records (Flag::kSample) that were asked for together.
    kSampleEnd = 93,   //                       SampleReason     pools not asked   -              -
    // What a framework's own allocator says of the blocks that it cuts out of driver memory (PyTorch: c10::reportMemoryUsage-
    // ToProfiler, c10::reportOutOfMemoryToProfiler). Totals are the allocator's own counts for that device after the call;
    // kTotalNotTold where it gives none (RMM's log).
    kBlockAcquired = 94,   //                   address          size of the block total allocated  total reserved
    kBlockReleased = 95,   //                   address          size of the block total allocated  total reserved
    kBlockRefused = 96,    // it gives up       -                what it tried     total allocated  total reserved
    // The block that this thread releases next is kept until the event has happened; and: the allocator found that it has.
    kBlockWaits = 97,      //                   -                -                 event          stream
    kBlockWaitOver = 98,   //                   -                -                 event          -
    // From here on this thread's kBlockAcquired of `device` are for that stream, as far as the framework says;
    // kStreamNotTold: for one that it does not say.
    kBlockStream = 99,     //                   -                -                 stream         -
    // Activity records of CUPTI (--cupti). They say again what calls said, or what no call says; `start` is CUPTI's own time,
    // brought to the session's clock, and the sequence number only that of their arrival. Several records of one activity
    // have the same sequence (kContinued).
    kActivityAcquired = 100,  //                address          bytes             pack_activity() pool's address or 0
    kActivityReleased = 101,  //                address          bytes             pack_activity() pool's address or 0
    kActivityPlace = 102,     // of the one before: program counter, context | stream << 32, strings: name, file that asked
    kActivityPool = 103,      //                pool's address   size              pack_activity() bytes in use
    kActivityPoolKeeps = 104,  // of the one before: -           release threshold minimum to keep  process id
    // Unified memory: one counter's reading over a period. `device` is the one that bytes came to, or left for the host; in
    // place of the correlation stands CUPTI's number of the other end, UINT32_MAX: the host.
    kActivityUnified = 105,   //                address          value             pack_activity() end in ns since `start`
    kActivityLost = 106,      //                -                records that CUPTI dropped or gave no time of   -    -
    // Whether CUPTI is used in this process, and why: CuptiState, API version of the library, CUptiResult, string: the library's
    // path, or who uses it (kOthersUse, kEnded).
    kActivityState = 107,
    // What the framework's allocator itself says of a piece of the driver's memory that it cuts blocks out of (its snapshot):
    // an extent that it took, or a range of addresses in which it maps and unmaps memory. No shim sends it.
    kBlockSegment = 108,   //                   address          bytes             stream         pack_segment()
};
inline constexpr Kind kLastKind = Kind::kBlockSegment;

// kBlockSegment.extra: a string, the name of the private pool whose segment it is (low 32 bits; 0: the allocator's default
// one; kPoolNotTold), bit 32: for its large blocks, bit 33: a range in which it maps and unmaps (PyTorch's expandable segments).
inline constexpr std::uint32_t kPoolNotTold = ~std::uint32_t{0};
constexpr std::uint64_t pack_segment(std::uint32_t pool, bool large, bool expandable) {
    return pool | (static_cast<std::uint64_t>(large) << 32) | (static_cast<std::uint64_t>(expandable) << 33);
}
constexpr std::uint32_t segment_pool(std::uint64_t packed) { return static_cast<std::uint32_t>(packed); }
constexpr bool segment_large(std::uint64_t packed) { return ((packed >> 32) & 1u) != 0; }
constexpr bool segment_expandable(std::uint64_t packed) { return ((packed >> 33) & 1u) != 0; }

// kBlock…: a total that the framework's allocator does not give.
inline constexpr std::uint64_t kTotalNotTold = ~std::uint64_t{0};
inline constexpr std::uint64_t kStreamNotTold = ~std::uint64_t{0};

// kActivity….object: CUPTI's correlation id (low 32 bits), then its memory kind, pool type or counter kind (8), its operation
// (8), bit 48: asynchronous.
constexpr std::uint64_t pack_activity(std::uint32_t correlation, std::uint32_t kind, std::uint32_t operation, bool async) {
    return correlation | (static_cast<std::uint64_t>(kind & 0xffu) << 32) |
           (static_cast<std::uint64_t>(operation & 0xffu) << 40) | (static_cast<std::uint64_t>(async) << 48);
}
constexpr std::uint32_t activity_correlation(std::uint64_t packed) { return static_cast<std::uint32_t>(packed); }
constexpr std::uint32_t activity_kind(std::uint64_t packed) { return static_cast<std::uint32_t>(packed >> 32) & 0xffu; }
constexpr std::uint32_t activity_operation(std::uint64_t packed) { return static_cast<std::uint32_t>(packed >> 40) & 0xffu; }
constexpr bool activity_async(std::uint64_t packed) { return ((packed >> 48) & 1u) != 0; }

// What the session wants of CUPTI, and what became of it in a process.
enum class CuptiMode : std::uint32_t { kOff = 0, kAuto = 1, kOn = 2 };
enum class CuptiState : std::uint8_t {
    kOn = 1,
    kNoLibrary = 2,       // none is mapped, and none of the program's CUDA version may be brought in
    kOthersUse = 3,       // another subscriber is there, or may come
    kRefused = 4,         // the library answered with an error
    kUnknownVersion = 5,  // of a layout that is not known here
    kEnded = 6,           // given up on the way: another client came
    kFinished = 7,        // the process is about to end: all that CUPTI had until now was told before this
    kForked = 8,          // a child of fork() of a process that used it
};

// kArrayCreated.extra: the descriptor's flags (low 32 bits), levels (next 16, 0: not a mipmapped array).
constexpr std::uint64_t pack_array(std::uint32_t flags, std::uint32_t levels) {
    return flags | (static_cast<std::uint64_t>(levels & 0xffffu) << 32);
}
constexpr std::uint32_t array_flags(std::uint64_t packed) { return static_cast<std::uint32_t>(packed); }
constexpr std::uint32_t array_levels(std::uint64_t packed) { return static_cast<std::uint32_t>(packed >> 32) & 0xffffu; }

// kAdvised.extra: what was said (low 8 bits), and CUmem_advise or the attach flags (next 32).
enum class Advice : std::uint8_t { kAdvise = 1, kPrefetch = 2, kDiscard = 3, kDiscardAndPrefetch = 4, kAttach = 5 };
constexpr std::uint64_t pack_advice(Advice what, std::uint32_t value) {
    return static_cast<std::uint64_t>(what) | (static_cast<std::uint64_t>(value) << 8);
}
constexpr Advice advice_of(std::uint64_t packed) { return static_cast<Advice>(packed & 0xff); }
constexpr std::uint32_t advice_value(std::uint64_t packed) { return static_cast<std::uint32_t>(packed >> 8); }

// FNV-1a, 64 bits: lets the two sides of a shared allocation be told to be the same without recording what opens it.
constexpr std::uint64_t identity_of(const unsigned char* description, std::uint64_t bytes) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::uint64_t i = 0; i < bytes; ++i) hash = (hash ^ description[i]) * 0x100000001b3u;
    return hash;
}

enum class ProbeMechanism : std::uint8_t {
    kDirect = 1,          // cuMemAlloc
    kHandleMinimum = 2,   // cuMemCreate, in multiples of the minimum granularity
    kHandleRecommended = 3,
    kStitched = 4,        // handles of the minimum granularity: whether together they reach `bytes`
    kPool = 5,            // cuMemAllocFromPoolAsync from a pool made for it, as the device's default one is
    kManaged = 6,         // cuMemAllocManaged
    kHost = 7,            // cuMemHostAlloc
    kAddresses = 8,       // cuMemAddressReserve
};
enum class ProbesEnd : std::uint8_t { kFinished = 1, kTimeLimit = 2, kCapturing = 3, kNoContext = 4, kNotUndone = 5, kTooSoon = 6 };
enum class SampleReason : std::uint8_t { kStart = 1, kEnd = 2, kTime = 3, kBytes = 4, kContextEnds = 5 };

// Bits of Record::flags.
enum Flag : std::uint16_t {
    kByShim = 1u << 0,           // the shim asked by itself, the program did not
    kCaptured = 1u << 1,         // the call was made inside a stream capture: a graph node, no memory
    kCaptureUnknown = 1u << 2,   // whether a capture was active could not be found out
    // Further record of the same call (same sequence): e.g. one per access descriptor. At most 256 of a call about a list are
    // sent, the rest is counted in lost_kinds; of one that failed, a single record that says nothing of what stood in the list.
    kContinued = 1u << 3,
    kUnknownDevice = 1u << 4,    // `device` could not be found out
    kNoContext = 1u << 5,        // no context was current
    kPerThreadStream = 1u << 6,  // called through a _ptsz/_ptds variant: stream 0 is the thread's own
    kSnapshot = 1u << 7,         // asked by the shim because the last call on this thread failed; see kFailureSnapshotEnd
    kSample = 1u << 9,           // asked by the shim between the program's calls; see kSampleEnd
    // Of kBlock… records: a stream capture was running in the process. A block released then may be kept till its end, for
    // what it was used for on other streams, and is not said to wait.
    kDuringCapture = 1u << 10,
    // No shim sends it. Of kBlockAcquired: `extra` is what was asked for before it was rounded up to a block, and not a total.
    // Of kBlockRefused: `extra` is pack_segment() of the pool and class of segments that it was for, and not a total.
    kRequestTold = 1u << 11,
    kDurationFull = 1u << 8,     // set by the collector: Record::duration was saturated, the call took at least that long
};

// CUmemLocation and the requested handle types in one word: type (low 8 bits), id (next 32, as int32), handle types (top 24).
constexpr std::uint64_t pack_location(std::uint32_t type, std::int32_t id, std::uint32_t handle_types) {
    return (static_cast<std::uint64_t>(handle_types & 0xffffffu) << 40) |
           (static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)) << 8) | (type & 0xffu);
}
constexpr std::uint32_t location_type(std::uint64_t packed) { return static_cast<std::uint32_t>(packed & 0xff); }
constexpr std::int32_t location_id(std::uint64_t packed) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(packed >> 8));
}
constexpr std::uint32_t location_handle_types(std::uint64_t packed) {
    return static_cast<std::uint32_t>(packed >> 40);
}

inline constexpr std::uint32_t kDurationShift = 4;  // Record::duration counts 2^4 clock ticks
inline constexpr std::uint8_t kDeviceUnknown = 0xff;

// One event, 64 bytes, one slot of a ring.
struct Record {
    std::uint64_t sequence;  // order inside the process, from 1: a release is numbered before the call, all else after it
    std::uint64_t start;     // clock ticks (SessionHeader::clock) when the call was entered
    std::uint32_t duration;  // 2^kDurationShift ticks, saturated
    std::uint16_t function;  // the shim's number of the intercepted function; its name comes once as a TextRecord
    std::uint16_t result;    // CUresult
    Kind kind;
    std::uint8_t device;  // ordinal in the process (not a global identity), kDeviceUnknown if not known
    std::uint16_t flags;  // Flag bits
    std::uint32_t stack;  // id of a text of kind kStack, 0: none
    std::uint64_t address;
    std::uint64_t bytes;
    std::uint64_t object;
    std::uint64_t extra;
};
static_assert(sizeof(Record) == 64);

enum class TextKind : std::uint8_t {
    kFunctionName = 1,  // subject: Record::function
    kExecutable = 2,
    kCommandLine = 3,    // arguments separated by NUL
    kDeviceName = 4,     // subject: ordinal
    kDriverPath = 5,     // file that the driver was loaded from
    kShimVersion = 6,
    kRuntimePath = 7,    // shared libcudart, if one is loaded
    kString = 8,         // id: what records and stacks name it by
    kModule = 9,         // id: from 1; a ModuleText and what follows it: a loaded file that frames of stacks lie in
    kStack = 10,         // id: from 1; a StackText and its frames
    kThreadName = 11,    // of the thread whose ring it is
};

// Payload of a kModule text: this, `build_id_bytes` bytes, the path without NUL. An unloaded file's number is not used again.
struct ModuleText {
    std::uint64_t begin;  // of its mapping
    std::uint64_t end;
    std::uint64_t bias;   // what its file's addresses were moved by
    std::uint32_t build_id_bytes;  // 0: it has none; at most kMaxBuildIdBytes
    std::uint32_t reserved;
};
static_assert(sizeof(ModuleText) == 32);
inline constexpr std::uint32_t kMaxBuildIdBytes = 64;

// Payload of a kStack text: this, then `frames` words of 8 bytes, innermost call first.
struct StackText {
    std::uint32_t origin;  // string: the function of the runtime interface that the program called, 0: not known
    std::uint16_t frames;  // at most kMaxFrames; 0: only the origin was wanted
    std::uint16_t flags;   // StackFlag bits
};
static_assert(sizeof(StackText) == 8);
inline constexpr std::uint32_t kMaxFrames = 128;
enum StackFlag : std::uint16_t {
    kStackCut = 1u << 0,     // there were more frames than kMaxFrames
    kStackLost = 1u << 1,    // the walk came to code whose caller could not be found
    kStackNoLines = 1u << 2,  // Python was running there, of a version or in a state whose lines could not be read
};
// A frame: a place in a module's file, a bare address (code without a file), or a line of Python.
enum class FrameForm : std::uint8_t { kModule = 0, kAddress = 1, kPython = 2 };
constexpr FrameForm frame_form(std::uint64_t frame) { return static_cast<FrameForm>(frame >> 62); }
// `offset`: the address of the instruction after the call, less the module's bias. `module`: below 2^16.
constexpr std::uint64_t module_frame(std::uint32_t module, std::uint64_t offset) {
    return (static_cast<std::uint64_t>(module & 0xffffu) << 46) | (offset & ((std::uint64_t{1} << 46) - 1));
}
constexpr std::uint32_t frame_module(std::uint64_t frame) { return static_cast<std::uint32_t>(frame >> 46) & 0xffffu; }
constexpr std::uint64_t frame_offset(std::uint64_t frame) { return frame & ((std::uint64_t{1} << 46) - 1); }
constexpr std::uint64_t address_frame(std::uint64_t address) {
    return (std::uint64_t{1} << 62) | (address & ((std::uint64_t{1} << 62) - 1));
}
constexpr std::uint64_t frame_address(std::uint64_t frame) { return frame & ((std::uint64_t{1} << 62) - 1); }
// `place`: a string "function\nfile". `line`: 0 if not known.
constexpr std::uint64_t python_frame(std::uint32_t place, std::uint32_t line) {
    return (std::uint64_t{2} << 62) | (static_cast<std::uint64_t>(line & 0xffffffu) << 32) | place;
}
constexpr std::uint32_t frame_place(std::uint64_t frame) { return static_cast<std::uint32_t>(frame); }
constexpr std::uint32_t frame_line(std::uint64_t frame) { return static_cast<std::uint32_t>(frame >> 32) & 0xffffffu; }

// A text is cut into consecutive records of one ring. `sequence`, `start`, `kind`, and `stack` lie where Record has them.
struct TextRecord {
    std::uint64_t sequence;
    std::uint64_t start;
    std::uint32_t total_bytes;   // of the whole text, at most kMaxTextBytes
    std::uint16_t subject;       // see TextKind
    std::uint16_t part_bytes;    // in `text` here, 1 … 32
    Kind kind;                   // kText
    TextKind text_kind;
    std::uint16_t part;          // 0, 1, …
    std::uint32_t id;            // see TextKind, else 0
    char text[32];
};
static_assert(sizeof(TextRecord) == sizeof(Record));
inline constexpr std::uint32_t kMaxTextBytes = 4096;

// ----------------------------------------------------------------------------------------------------- shared memory

enum class Clock : std::uint32_t {
    kMonotonic = 0,  // clock_gettime(CLOCK_MONOTONIC), nanoseconds
    kTsc = 1,        // x86 time-stamp counter, invariant; the collector measures its rate
};

enum class CollectorState : std::uint32_t { kNone = 0, kRunning = 1, kClosing = 2 };

struct SessionHeader {
    std::uint64_t magic;           // written last by the collector
    std::uint32_t layout_version;  // kLayoutVersion
    std::uint32_t header_bytes;    // sizeof(SessionHeader)
    std::uint64_t total_bytes;     // of the whole region, reserved with posix_fallocate before anybody attaches
    std::uint64_t processes_offset;
    std::uint64_t rings_offset;
    std::uint32_t process_slots;
    std::uint32_t ring_count;
    std::uint32_t ring_records;  // records per ring, a power of two
    Clock clock;
    std::uint64_t wait_ns;        // how long a full ring may hold the program up, once; then records are dropped
    std::uint32_t record_touches;  // 1: send kTouched
    std::uint32_t record_calls;    // 1: send kCalled also for launches, copies, memsets and questions
    std::uint64_t stack_bytes;     // call stacks for acquisitions from this size on; UINT64_MAX: for none
    std::uint32_t stack_failures;  // 1: call stacks for failed acquisitions
    std::uint32_t probe_on_oom;    // 1: try allocations after one failed, see kProbe
    std::uint64_t probe_ns;        // for how long, at most
    std::uint64_t probe_bytes;     // how many bytes may be held at once, at most
    std::uint64_t sample_ns;       // ask the driver for its numbers (kSampleEnd) at most so often; UINT64_MAX: never
    std::uint64_t sample_bytes;    // and once so many bytes were acquired since; UINT64_MAX: never
    CuptiMode cupti;
    std::uint32_t reserved;
    std::int64_t collector_pid;
    std::atomic<CollectorState> collector_state;
    std::atomic<std::uint32_t> processes_refused;  // processes that found no slot
};
static_assert(sizeof(SessionHeader) <= 4096);

enum class SlotState : std::uint32_t {
    kFree = 0,      // collector -> anybody
    kClaimed = 1,   // a process or thread is filling it in
    kLive = 2,      // filled in
    kReleased = 3,  // the owner is done: the collector drains it and makes it kFree
};

inline constexpr std::uint32_t kLostKinds = 128;
static_assert(static_cast<std::uint32_t>(kLastKind) < kLostKinds);

struct alignas(128) ProcessSlot {
    std::atomic<SlotState> state;
    std::int32_t pid;                  // as the process sees itself
    std::uint64_t start_time;          // field 22 of /proc/self/stat: tells a reused pid apart
    std::uint64_t pid_namespace;       // inode of /proc/self/ns/pid
    std::atomic<std::uint64_t> launches;       // kernel and graph launches: device code that may write anywhere
    std::atomic<std::uint64_t> opaque_writes;  // copies whose extent the shim does not work out
    std::atomic<std::uint64_t> threads_without_ring;
    std::atomic<std::uint64_t> records_without_ring;  // lost because of it
    // Look-ups that passed the shim: every one by cuGetProcAddress(_v2), and by dlsym those that found a driver function;
    // how many became hooks; how many lay in the driver and matched no symbol that it exports (a variant that the shim
    // cannot know: a blind spot).
    std::atomic<std::uint64_t> lookups;
    std::atomic<std::uint64_t> lookups_hooked;
    std::atomic<std::uint64_t> lookups_unmatched;
    // Records given up because a ring was full or there was none, by Kind.
    std::atomic<std::uint32_t> lost_kinds[kLostKinds];
};

// One thread's ring. Producer and consumer fields are on cache lines of their own.
struct RingHeader {
    alignas(64) std::atomic<SlotState> state;
    std::uint32_t process;  // index of its ProcessSlot
    std::int32_t thread;    // thread id as the process sees it
    std::uint32_t reserved;
    alignas(64) std::atomic<std::uint64_t> head;  // records ever committed; producer only
    std::atomic<std::uint64_t> lost_acquisitions;  // records given up because the ring was full, by what they would have said
    std::atomic<std::uint64_t> lost_releases;
    std::atomic<std::uint64_t> lost_others;
    std::atomic<std::uint64_t> lost_acquired_bytes;
    alignas(64) std::atomic<std::uint64_t> tail;  // records ever taken; consumer only
};
static_assert(sizeof(RingHeader) == 192);

// Where things lie, from the start of the region: the SessionHeader; `process_slots` ProcessSlots at `processes_offset`;
// `ring_count` RingHeaders side by side at `rings_offset` (one scan of the collector touches few pages); then the
// Records of ring 0, ring 1, …, starting on a page.
constexpr std::uint64_t ring_records_offset(std::uint64_t rings_offset, std::uint32_t ring_count,
                                            std::uint32_t ring_records, std::uint32_t ring) {
    const std::uint64_t headers_end = rings_offset + std::uint64_t{ring_count} * sizeof(RingHeader);
    return ((headers_end + 4095) & ~std::uint64_t{4095}) + std::uint64_t{ring} * ring_records * sizeof(Record);
}
// Bytes of the whole region.
constexpr std::uint64_t session_bytes(std::uint64_t rings_offset, std::uint32_t ring_count,
                                      std::uint32_t ring_records) {
    return ring_records_offset(rings_offset, ring_count, ring_records, ring_count);
}
// Counters of a ProcessSlot or RingHeader are zeroed by the collector before it makes them kFree; `head` and `tail` of a
// ring go on counting.

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<SlotState>::is_always_lock_free,
              "atomics shared between processes must be address-free");

}  // namespace fragscope::wire
