#include "interpose/activity_buffers.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "interpose/ask.h"
#include "interpose/emit.h"
#include "interpose/intern.h"
#include "interpose/modules.h"

namespace fragscope::interpose {

constinit CuptiFunctions cupti{};
constinit std::atomic<std::uint32_t> activity_wanted_in{0};

// cupti_activity.h of CUDA 13.0.
static_assert(sizeof(CUpti_ActivityMemory4) == 128 && offsetof(CUpti_ActivityMemory4, timestamp) == 32 &&
              offsetof(CUpti_ActivityMemory4, name) == 64 && offsetof(CUpti_ActivityMemory4, source) == 120);
static_assert(sizeof(CUpti_ActivityMemoryPool3) == 80 &&
              offsetof(CUpti_ActivityMemoryPool3, timestamp) == 56);
static_assert(sizeof(CUpti_ActivityUnifiedMemoryCounter3) == 104);

namespace {

// A buffer for each thread that makes records (CUPTI's default), and some on their way. Beyond these CUPTI
// drops records, and counts them.
constexpr std::size_t kMaxBuffers = 512;
constexpr std::size_t kBufferBytes = std::size_t{32} << 10;

struct Buffer {
    std::atomic<std::uint8_t*> memory;
    std::atomic<bool> given;
};
constinit Buffer buffers[kMaxBuffers]{};

// The same moment by CUPTI's clock and the session's.
struct Moment {
    std::uint64_t ticks = 0, theirs = 0;
};

// The tightest of a few: the thread may stop between the two clocks. False: CUPTI does not tell.
bool moment_now(Moment& out) {
    std::uint64_t width = UINT64_MAX;
    for (int i = 0; i < 5; ++i) {
        std::uint64_t theirs = 0;
        const std::uint64_t before = now();
        if (cupti.cuptiGetTimestamp(&theirs) != CUPTI_SUCCESS) return false;
        const std::uint64_t took = now() - before;
        if (took >= width) continue;
        width = took;
        out = {before + took / 2, theirs};
    }
    return true;
}

constinit Moment begun{};

// CUPTI's times in the session's ticks, since the moment when it was switched on.
class Times {
  public:
    Times() { known_ = moment_now(now_) && now_.theirs > begun.theirs && now_.ticks > begun.ticks; }
    // Of one that CUPTI did not tell (0), that no record can have, or that its clock now says nothing of:
    // none.
    std::optional<std::uint64_t> ticks(std::uint64_t theirs) const {
        if (!known_ || theirs < begun.theirs) return std::nullopt;
        const double part =
            static_cast<double>(theirs - begun.theirs) / static_cast<double>(now_.theirs - begun.theirs);
        return begun.ticks + static_cast<std::uint64_t>(part * static_cast<double>(now_.ticks - begun.ticks));
    }

  private:
    Moment now_;
    bool known_ = false;
};

std::uint8_t device_number(std::uint32_t device) {
    return device < wire::kDeviceUnknown ? static_cast<std::uint8_t>(device) : wire::kDeviceUnknown;
}

wire::Record begin(Kind kind, std::uint32_t device, std::uint64_t start) {
    wire::Record record = shim_record(kind, HookId::kActivity, device_number(device));
    record.start = start;
    return record;
}

// The next record of the same activity.
wire::Record next(const wire::Record& first, Kind kind) {
    wire::Record record = first;
    record.kind = kind;
    record.flags |= wire::kContinued;
    record.address = record.bytes = record.object = record.extra = 0;
    return record;
}

std::uint32_t text(const char* from) {
    return from == nullptr ? 0 : told_string(from, strnlen(from, wire::kMaxTextBytes));
}

// What comes without a time is not told: to say any would place it where it may not have been. False: it is
// such a record.
bool tell_memory(const CUpti_ActivityMemory4& from, const Times& times) {
    const std::optional<std::uint64_t> time = times.ticks(from.timestamp);
    if (!time) return false;
    const bool release = from.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
    wire::Record record =
        begin(release ? Kind::kActivityReleased : Kind::kActivityAcquired, from.deviceId, *time);
    record.address = from.address;
    record.bytes = from.bytes;
    record.object =
        wire::pack_activity(from.correlationId, from.memoryKind, from.memoryOperationType, from.isAsync != 0);
    record.extra = from.memoryPoolConfig.address;
    wire::Record place = next(record, Kind::kActivityPlace);
    place.address = from.PC;
    place.bytes = from.contextId | (static_cast<std::uint64_t>(from.streamId) << 32);
    place.object = text(from.name);
    // The file that asked, where CUPTI was not told to find it out: the one that the place in the program
    // lies in now.
    const std::uint32_t file = from.PC != 0 ? module_at(from.PC) : 0;
    place.extra = from.source != nullptr ? text(from.source) : file != 0 ? text(module(file).name) : 0;
    emit(record);
    emit(place);
    return true;
}

bool tell_pool(const CUpti_ActivityMemoryPool3& from, const Times& times) {
    const std::optional<std::uint64_t> time = times.ticks(from.timestamp);
    if (!time) return false;
    wire::Record record = begin(Kind::kActivityPool, from.deviceId, *time);
    record.address = from.address;
    record.bytes = from.size;
    record.object =
        wire::pack_activity(from.correlationId, from.memoryPoolType, from.memoryPoolOperationType, false);
    record.extra = from.utilizedSize;
    wire::Record keeps = next(record, Kind::kActivityPoolKeeps);
    keeps.bytes = from.releaseThreshold;
    keeps.object = from.minBytesToKeep;
    keeps.extra = from.processId;
    emit(record);
    emit(keeps);
    return true;
}

bool tell_unified(const CUpti_ActivityUnifiedMemoryCounter3& from, const Times& times) {
    const std::optional<std::uint64_t> time = times.ticks(from.start);
    if (!time) return false;
    const bool leaves = from.counterKind == CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH;
    wire::Record record = begin(Kind::kActivityUnified, leaves ? from.srcId : from.dstId, *time);
    record.address = from.address;
    record.bytes = from.value;
    record.object = wire::pack_activity(leaves ? from.dstId : from.srcId, from.counterKind, 0, false);
    record.extra = from.end > from.start ? from.end - from.start : 0;
    emit(record);
    return true;
}

bool tell(const CUpti_Activity& record, const Times& times) {
    switch (record.kind) {
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return tell_memory(reinterpret_cast<const CUpti_ActivityMemory4&>(record), times);
        case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
            return tell_pool(reinterpret_cast<const CUpti_ActivityMemoryPool3&>(record), times);
        case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER:
            return tell_unified(reinterpret_cast<const CUpti_ActivityUnifiedMemoryCounter3&>(record), times);
        default:
            return true;
    }
}

std::size_t bytes_of(CUpti_ActivityKind kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return sizeof(CUpti_ActivityMemory4);
        case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
            return sizeof(CUpti_ActivityMemoryPool3);
        case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER:
            return sizeof(CUpti_ActivityUnifiedMemoryCounter3);
        default:
            return sizeof(CUpti_Activity);
    }
}

void tell_all(std::uint8_t* buffer, std::size_t valid) {
    const Times times;
    std::size_t lost = 0;
    CUpti_Activity* record = nullptr;
    // No record is smaller than its kind: a bound for a library that does not find the end.
    for (std::size_t left = valid / sizeof(CUpti_Activity) + 1; left != 0; --left) {
        if (cupti.cuptiActivityGetNextRecord(buffer, valid, &record) != CUPTI_SUCCESS) break;
        const auto at = reinterpret_cast<std::uintptr_t>(record) - reinterpret_cast<std::uintptr_t>(buffer);
        if (at > valid || valid - at < sizeof(CUpti_Activity) || valid - at < bytes_of(record->kind)) break;
        if (!tell(*record, times)) ++lost;
    }
    std::size_t dropped = 0;
    if (cupti.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS) lost += dropped;
    if (lost == 0) return;
    wire::Record told = shim_record(Kind::kActivityLost, HookId::kActivity, wire::kDeviceUnknown);
    told.bytes = lost;
    emit(told);
}

bool wanted() {
    const std::uint32_t attachment = activity_wanted_in.load(std::memory_order_acquire);
    return attachment != 0 && attachment == generation();
}

}  // namespace

bool begin_activity_times() { return moment_now(begun); }

Telling::Telling() : entered_(!thread_state.inside()) {
    if (!entered_) return;
    thread_state.gate = kBusy;
    thread_state.entered_at = kInNoWrapper;
}

Telling::~Telling() {
    if (entered_) thread_state.gate = thread_state.gate_when_idle;
}

void CUPTIAPI give_activity_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
    const int saved = errno;
    *buffer = nullptr;
    *bytes = 0;
    *most = 0;
    for (Buffer& each : buffers) {
        if (!wanted()) break;
        if (each.given.exchange(true, std::memory_order_acq_rel)) continue;
        std::uint8_t* memory = each.memory.load(std::memory_order_relaxed);
        if (memory == nullptr) {
            void* made =
                mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (made == MAP_FAILED) {
                each.given.store(false, std::memory_order_release);
                break;
            }
            memory = static_cast<std::uint8_t*>(made);
            each.memory.store(memory, std::memory_order_release);
        }
        *buffer = memory;
        *bytes = kBufferBytes;
        break;
    }
    errno = saved;
}

void CUPTIAPI take_activity_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    const int saved = errno;
    for (Buffer& each : buffers) {
        if (buffer == nullptr || each.memory.load(std::memory_order_acquire) != buffer) continue;
        if (wanted()) {
            const Telling telling;
            tell_all(buffer, valid < kBufferBytes ? valid : kBufferBytes);
        }
        each.given.store(false, std::memory_order_release);
        break;
    }
    errno = saved;
}

}  // namespace fragscope::interpose
