// What a framework's own allocator gave up, and what it needed of the driver for it.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/framework_layout.h"
#include "analysis/framework_shown.h"
#include "analysis/situation_parts.h"

namespace fragscope::analysis::situation_parts {

using wire::Kind;

namespace {

// Handles of the refused one's size that its thread took just before it: PyTorch takes all that a block needs
// in a row, and maps them when it has them.
std::uint64_t taken_just_before(const EventLog& events, std::size_t refused) {
    std::uint64_t bytes = 0;
    const Event request = events[refused];
    for (std::size_t i = refused; i-- > 0;) {
        const Event& event = events[i];
        if (event.thread != request.thread || event.has(wire::kByShim)) continue;
        if (event.kind != Kind::kHandleCreated || event.failed() || event.bytes != request.bytes)
            break;
        bytes += std::min(event.bytes.value, UINT64_MAX - bytes);
    }
    return bytes;
}

// Where it told of its segments: what of them the request may use is known. It has returned by itself what it
// returns before it gives up, so that what is wholly free still is what it does not return.
void lay_out(Situation& s, const FrameworkState& books) {
    FrameworkAtFailure& own = *s.framework;
    BlockRequest request;
    request.block = own.tried;
    request.large = wire::segment_large(s.named->extra);
    request.stream = own.stream;
    request.pool = wire::segment_pool(s.named->extra);
    if (request.pool == wire::kPoolNotTold) {
        own.pool_assumed = true;
        request.pool = 0;
    }
    own.layout = layout_at(books, s.named->device, request);
    own.driver_asked = true;
    for (const FrameworkDomain& domain : own.domains) {
        const bool same_pool = domain.pool == request.pool || domain.pool == wire::kPoolNotTold;
        if (same_pool && domain.large == request.large && domain.stream == request.stream)
            own.gaps += domain.gaps.count();
    }
    s.request.needed = own.layout->segment;
    s.request.needed_reason = fmt::format(
        "what a new segment for it takes by PyTorch's public rules; in a gap of a segment its block is enough{}",
        own.pool_assumed ? ". Which pool it was for is not told: the default one is taken" : "");
}

}  // namespace

// What the allocator itself gave up, in the terms of its own books.
void book_the_refusal(Situation& s, const FrameworkState& books) {
    FrameworkAtFailure& own = *s.framework;
    own.gave_up = true;
    own.driver_asked = s.event != s.named;
    own.tried = s.named->bytes.value;
    own.stream = books.stream_of(s.named->thread, s.named->device);
    for (const FrameworkDomain& domain : own.domains) {
        if (domain.large != (own.tried > kSmallBlock)) continue;
        const bool other = own.stream && domain.stream && own.stream != domain.stream;
        std::uint64_t& largest = other ? own.largest_of_other_streams : own.largest_eligible;
        largest = std::max(largest, domain.gaps.largest());
    }
    if (own.segments_told && s.named->has(wire::kRequestTold) && !own.domains.empty()) lay_out(s, books);
}

void name_the_domains(FrameworkAtFailure& own, const Trace& trace, ProcessIndex process) {
    for (FrameworkDomain& domain : own.domains) {
        if (domain.pool == wire::kPoolNotTold) continue;
        domain.name =
            fmt::format("{} pool, {} segments{}",
                        domain.pool == 0 ? "default" : "private " + pool_in_words(trace, process, domain.pool),
                        domain.large ? "large" : "small",
                        domain.stream ? fmt::format(", stream {:#x}", domain.stream->value) : std::string());
    }
}

// Expandable segments grow by handles of one size, up to the block's end: the driver's refusal names one of
// them, the block needs all that are missing.
void need_handles(Situation& s) {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
    const FrameworkAtFailure& own = *s.framework;
    const bool refused = own.driver_asked && s.event->kind == Kind::kHandleCreated;
    if (own.layout || s.request.draws != Draws::kPhysical || (!refused && (own.driver_asked || !own.expandable))) return;
    // By PyTorch's public rules, where no handle was asked for.
    const std::uint64_t handle = refused                   ? std::max<std::uint64_t>(s.event->bytes.value, 1)
                                 : own.tried > kSmallBlock ? 20 * kMiB
                                                           : 2 * kMiB;
    // The block begins in a gap, or at what is not mapped yet: gaps spare handles.
    std::uint64_t gaps = own.in_gaps.exact() && own.reclaimable.exact() ? 0 : own.tried;
    for (const FrameworkDomain& domain : own.domains) {
        if (domain.large == (own.tried > kSmallBlock)) gaps += std::min(domain.gaps.sum(), UINT64_MAX - gaps);
    }
    // Where the program itself asked for the device's numbers it had given those back before.
    const std::uint64_t taken =
        refused && !s.snapshot.by_program
            ? taken_just_before(s.trace->events[s.failure.process.value], s.failure.index)
            : 0;
    std::uint64_t least = std::max(handle, less(round_up(less(own.tried, gaps), handle), taken));
    std::uint64_t most = std::max(handle, less(round_up(own.tried, handle), taken));
    Interval& needed = s.request.needed;
    if (!refused) {
        // It may have been to take a segment of its own instead.
        least = std::min(least, needed.low.value_or(0));
        most = std::max(most, needed.high.value_or(UINT64_MAX));
    }
    needed = {least, most};
    s.request.rounding_assumed = true;
    s.request.needed_reason =
        "handles that were still missing for the whole block: an expandable segment grows by handles of one "
        "size, and how much of the block gaps at its place would have held is not told";
}

bool one_handle_of_many(const Situation& s) {
    return s.event != s.named && s.event->kind == Kind::kHandleCreated;
}

}  // namespace fragscope::analysis::situation_parts
