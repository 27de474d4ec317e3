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
inline constexpr std::uint32_t kLayoutVersion = 1;
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
    kDeviceMemory = 32,  // cuMemGetInfo          free             total             context        -
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
    kCalled = 44,  // a call that is noted and says nothing of memory (cuInit, cuDeviceGetCount)
    // Ends the kDeviceMemory/kPool… records after a failed call. Object: the sequence number of that call. Bytes: pools that
    // were not asked about, because more were met than the shim can keep; extra: failed calls since the last such end that
    // got no snapshot (they came too soon after another one). With Flag::kCaptured nothing was asked at all, as a stream
    // capture was running somewhere in the process; with kNoContext the device was not.
    kFailureSnapshotEnd = 43,
};

// Bits of Record::flags.
enum Flag : std::uint16_t {
    kByShim = 1u << 0,           // the shim asked by itself, the program did not
    kCaptured = 1u << 1,         // the call was made inside a stream capture: a graph node, no memory
    kCaptureUnknown = 1u << 2,   // whether a capture was active could not be found out
    kContinued = 1u << 3,        // further record of the same call (same sequence): e.g. one per access descriptor
    kUnknownDevice = 1u << 4,    // `device` could not be found out
    kNoContext = 1u << 5,        // no context was current
    kPerThreadStream = 1u << 6,  // called through a _ptsz/_ptds variant: stream 0 is the thread's own
    kSnapshot = 1u << 7,         // asked by the shim because the last call on this thread failed; see kFailureSnapshotEnd
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
    std::uint32_t stack;  // call stack id, 0: none
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
};

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
    std::uint32_t reserved;
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
