#include "analysis/request.h"

#include <fmt/format.h>

#include "analysis/failures.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr char kOnePointer[] =
    "the program gets one pointer, so its addresses must be consecutive; which physical pages lie behind "
    "them is not "
    "visible to it";

// Up to whole units; where that is more than 64 bits hold, their largest value: never less than was asked
// for.
std::uint64_t whole(std::uint64_t bytes, std::uint64_t unit) {
    const std::uint64_t up = round_up(bytes, unit);
    return up < bytes ? UINT64_MAX : up;
}

void linear(RequestFacts& out, const Event& event, const ProcessState& state) {
    const std::uint64_t page = state.page(event.device);
    out.draws = Draws::kPhysical;
    out.domain = "physical";
    out.granularity = page;
    out.alignment = 256;
    out.needed = {out.requested, whole(out.requested, page)};
    out.rounding_assumed = true;
    out.needed_reason = fmt::format(
        "between what was asked for and whole pages of {}: the driver does not say", in_words(page));
    if (event.kind == Kind::kPitchAcquired) {
        // The pitch is known only after a success.
        out.needed.high.reset();
        out.needed_reason = "at least width times height; the pitch is known only after a success";
    }
    out.contiguity = report::Request::virtual_only;
    out.contiguity_reason = kOnePointer;
    out.in_words = fmt::format("{} of device memory", in_words(out.requested));
}

// The segment that PyTorch's allocator takes for a block: small ones share 2 MiB, middle ones 20 MiB.
std::uint64_t segment_for(std::uint64_t block) {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
    if (block <= kMiB) return 2 * kMiB;
    return block < 10 * kMiB ? 20 * kMiB : whole(block, 2 * kMiB);
}

// Device memory of an amount that the call does not say.
void unstated(RequestFacts& out, const Event& event, const ProcessState& state, const char* what) {
    out.draws = Draws::kContext;
    out.domain = "physical";
    out.requested = 0;
    out.needed = {state.page(event.device), std::nullopt};
    out.rounding_assumed = true;
    out.needed_reason =
        "it takes at least a page; how much more depends on the device and the driver, and the call does not "
        "say";
    out.contiguity_reason = "the driver lays its own memory out";
    out.in_words = what;
}

// What a call of this kind that names a size takes, in words, where its size is not known; nullptr: its calls
// name no size, or what they say is known.
const char* of_unknown_size(const Event& event) {
    // The driver has nothing against a request for nothing: an imported file tells of the failure, not of the
    // size.
    if (event.result != kOutOfMemory || event.bytes.value != 0) return nullptr;
    switch (event.kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
            return "device memory, of a size that this trace does not tell";
        case Kind::kPoolAcquired:
            return "stream-ordered memory, of a size that this trace does not tell";
        case Kind::kHandleCreated:
            return "a physical allocation, of a size that this trace does not tell";
        case Kind::kArrayCreated:
            return "an array, of a size that this trace does not tell";
        case Kind::kManagedAcquired:
            return "managed memory, of a size that this trace does not tell";
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
            return "page-locked host memory, of a size that this trace does not tell";
        case Kind::kReserved:
            return "address space, of a size that this trace does not tell";
        default:
            return nullptr;
    }
}

// Of a failed call of which nothing but its kind is known.
void size_not_told(RequestFacts& out, const Event& event, const ProcessState& state, const char* what) {
    unstated(out, event, state, what);
    out.needed = {1, std::nullopt};  // a small one may share a page that is there
    out.needed_reason = "how much it asked for is not in the trace";
    out.contiguity_reason = "what it asked for is not in the trace";
    switch (event.kind) {
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
            out.draws = Draws::kHost;
            out.domain = "host";
            break;
        case Kind::kManagedAcquired:
        case Kind::kReserved:
            out.draws = Draws::kUnaccounted;
            out.domain.clear();
            break;
        default:
            return;
    }
}

}  // namespace

std::string pool_in_words(ObjectId pool) {
    return pool.value == 0 ? "a pool that is not known" : fmt::format("pool {:#x}", pool.value);
}

int device_of_call(const Event& event) {
    if (event.kind != Kind::kHandleCreated) return event.device;
    return wire::location_type(event.extra) == kLocationDevice ? wire::location_id(event.extra) : kNoDevice;
}

RequestFacts request_of(const Event& event, const ProcessState& state) {
    RequestFacts out;
    out.kind = event.kind;
    out.device = event.device;
    out.requested = event.bytes.value;
    out.needed = Interval::exactly(out.requested);
    out.needed_reason = "what the call asked for";
    if (const char* what = of_unknown_size(event)) {
        size_not_told(out, event, state, what);
        return out;
    }
    switch (event.kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
            linear(out, event, state);
            break;
        case Kind::kBlockRefused:
            if (state.linear().empty() && state.mappings().empty() && state.pool_blocks().empty()) {
                // An allocator's log: what it takes of the driver is nowhere in the trace.
                out.needed = {out.requested, std::nullopt};
                out.needed_reason =
                    "what was asked of the framework's allocator; what it would have taken of the driver for "
                    "it "
                    "is not in this call";
                out.in_words = fmt::format("{} of a framework's allocator", in_words(out.requested));
                break;
            }
            out.draws = Draws::kPhysical;
            out.domain = "physical";
            out.granularity = state.page(event.device);
            out.needed = {out.requested, segment_for(out.requested)};
            out.rounding_assumed = true;
            out.needed_reason =
                "between the block itself and the segment that PyTorch's public rules take from the driver "
                "for "
                "it";
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason = kOnePointer;
            out.in_words =
                fmt::format("a block of {} out of its framework's allocator", in_words(out.requested));
            break;
        case Kind::kHandleCreated:
            if (wire::location_type(event.extra) != kLocationDevice) {
                out.draws = Draws::kHost;
                out.domain = "host";
                out.in_words =
                    fmt::format("a physical allocation of {} in host memory", in_words(out.requested));
                out.contiguity_reason = "it takes host memory";
                break;
            }
            out.draws = Draws::kPhysical;
            out.domain = "physical";
            out.device = wire::location_id(event.extra);
            out.handle_types = wire::location_handle_types(event.extra);
            out.granularity = state.page(out.device);
            out.needed_reason = "a physical allocation takes exactly the size that the call names";
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason =
                "the bytes are reached through a mapping, so consecutive addresses are what the program "
                "sees; whether "
                "the driver wants one physical run for a handle is neither promised nor visible";
            out.in_words = fmt::format("a physical allocation of {}", in_words(out.requested));
            break;
        case Kind::kReserved:
            out.draws = Draws::kAddressSpace;
            out.domain = "virtual";
            out.granularity = state.page(event.device);
            out.alignment = event.object.value != 0 ? event.object.value : out.granularity;
            out.needed = Interval::exactly(whole(out.requested, out.granularity));
            out.needed_reason = "a reservation takes address space only, in whole pages, and no memory";
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason =
                "a reservation is one range of addresses by definition; it has no physical side";
            out.in_words = fmt::format("{} of address space (no memory)", in_words(out.requested));
            break;
        case Kind::kPoolAcquired:
            if (event.has(wire::kCaptured)) {
                out.contiguity_reason = "a node of a graph takes no memory when it is captured";
                out.needed_reason = "what the node asks for at a later launch";
                out.in_words = fmt::format("{} for a graph that is being captured", in_words(out.requested));
                break;
            }
            out.draws = Draws::kPool;
            out.pool = event.object.value != 0 ? event.object : state.bound_pool(event.device);
            out.domain = pool_in_words(out.pool);
            out.granularity = kPoolUnit;
            out.alignment = kPoolUnit;
            out.needed = {out.requested, whole(out.requested, kPoolChunk)};
            out.rounding_assumed = true;
            out.needed_reason = fmt::format(
                "at least what was asked for; at most whole chunks of {}, by which pools were seen to grow",
                in_words(kPoolChunk));
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason = kOnePointer;
            out.in_words = fmt::format("{} in stream order from {}", in_words(out.requested), out.domain);
            break;
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
            out.draws = Draws::kHost;
            out.domain = "host";
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason = "host pages may lie anywhere behind consecutive addresses";
            out.in_words = fmt::format("{} of page-locked host memory", in_words(out.requested));
            break;
        case Kind::kContextCreated:
        case Kind::kPrimaryRetained:
        case Kind::kGreenContextCreated:
            unstated(out, event, state, "a context on the device");
            break;
        case Kind::kModuleLoaded:
            unstated(out, event, state, "room for code on the device");
            break;
        case Kind::kGraphInstantiated:
        case Kind::kGraphLaunched:
            unstated(out, event, state, "what a graph takes on the device");
            break;
        case Kind::kLimitSet:
            unstated(out, event, state, "what a context's changed limit takes on the device");
            break;
        case Kind::kPeerAccessSet:
            unstated(out, event, state, "access to another device's memory");
            break;
        case Kind::kStreamCreated:
            unstated(out, event, state, "a stream on the device");
            break;
        case Kind::kCalled:
            unstated(out, event, state,
                     "what a launch, a copy or another call needs on the device for itself");
            break;
        case Kind::kCheckpoint:
            unstated(out, event, state, "the memory of a process that is restored");
            break;
        case Kind::kArrayCreated:
            out.draws = Draws::kPhysical;
            out.domain = "physical";
            out.needed = {out.requested, std::nullopt};
            out.needed_reason =
                "at least the texels of the array; what its layout takes beyond them, the call does not say";
            out.contiguity_reason =
                "an array has no address that the program sees; how it lies is not visible";
            out.in_words = fmt::format("an array of {} of texels", in_words(out.requested));
            break;
        case Kind::kGraphAllocNode:
            out.in_words = fmt::format("a node of a graph that allocates {}", in_words(out.requested));
            out.needed_reason = "what the node asks for at a later launch";
            break;
        case Kind::kArrayMapped:
            out.in_words = "physical memory mapped behind an array";
            break;
        case Kind::kIpcOpened:
        case Kind::kPoolImported:
        case Kind::kPoolPointerImported:
            out.in_words = "memory that another process exported";
            break;
        case Kind::kExternalImported:
        case Kind::kExternalMapped:
        case Kind::kGraphicsMapped:
            out.in_words = "memory of another programming interface";
            break;
        case Kind::kMulticastCreated:
        case Kind::kMulticastBound:
            out.in_words = "a multicast object, which owns no memory";
            break;
        case Kind::kManagedAcquired:
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason = kOnePointer;
            out.needed_reason =
                "managed memory takes address space now, and pages of host or device as they are used";
            out.in_words = fmt::format("{} of managed memory", in_words(out.requested));
            break;
        case Kind::kMapped:
            out.in_words = fmt::format("a mapping of {}", in_words(out.requested));
            break;
        case Kind::kAccessSet:
            out.in_words = fmt::format("access to {} of mapped memory", in_words(out.requested));
            break;
        case Kind::kHandleImported:
            out.in_words = "the import of a physical allocation";
            break;
        case Kind::kPoolCreated:
            out.in_words = "a new stream-ordered pool";
            break;
        default:
            out.in_words = "a call that takes no memory";
            break;
    }
    return out;
}

}  // namespace fragscope::analysis
