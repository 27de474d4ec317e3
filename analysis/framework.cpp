// What each record changes in a framework's books.
#include "analysis/framework.h"

#include <algorithm>

#include "analysis/failures.h"

namespace fragscope::analysis {

using wire::Kind;

void FrameworkState::apply(const Event& event, const ProcessState& after) {
    if (event.failed()) {
        const bool memory = event.kind == Kind::kLinearAcquired || event.kind == Kind::kHandleCreated ||
                            event.kind == Kind::kPoolAcquired || event.kind == Kind::kManagedAcquired;
        if (memory && event.result == kOutOfMemory && !event.has(wire::kByShim))
            ++threads_[event.thread].refusals;
        if (event.kind != Kind::kBlockRefused) return;
    }
    if ((event.kind == Kind::kLinearReleased || event.kind == Kind::kUnmapped) &&
        gave_back_last_ != event.thread) {
        threads_[event.thread].gave_back = true;
        gave_back_last_ = event.thread;
    }
    switch (event.kind) {
        case Kind::kBlockAcquired:
            return acquired(event, after);
        case Kind::kBlockReleased:
            return released(event);
        case Kind::kBlockRefused:
            return refused(event);
        case Kind::kBlockWaits:
            threads_[event.thread].waits.push_back(event.object);
            return;
        case Kind::kBlockWaitOver:
            return wait_over(event.object, threads_[event.thread]);
        case Kind::kBlockStream:
            if (event.object == ObjectId{wire::kStreamNotTold})
                threads_[event.thread].streams.erase(event.device);
            else
                threads_[event.thread].streams[event.device] = event.object;
            return;

        case Kind::kBlockSegment:
            return segment_told(event, after);

        case Kind::kLinearReleased:
        case Kind::kPoolReleased:
            return driver_freed(event.address.value, after);
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kManagedAcquired:
        case Kind::kPoolAcquired:
            // Whatever lay there has been freed without a record.
            if (!event.has(wire::kCaptured))
                end_overlapping(range_of(event.address.value, event.bytes.value));
            return;
        case Kind::kMapped: {
            const Range range = range_of(event.address.value, event.bytes.value);
            auto arena = arenas_.upper_bound(range.begin);
            if (arena == arenas_.begin()) return;
            --arena;
            if (arena->second.range.end > range.begin) map_in_arena(arena->second, range);
            return;
        }
        case Kind::kUnmapped:
            return unmap(range_of(event.address.value, event.bytes.value));
        case Kind::kReserved:
            return end_overlapping(range_of(event.address.value, event.bytes.value));
        case Kind::kReservationFreed: {
            const auto arena = arenas_.find(event.address.value);
            if (arena != arenas_.end()) end_arena(arena);
            return;
        }
        case Kind::kContextDestroyed:
        case Kind::kPrimaryReleased:
        case Kind::kPrimaryReset:
            return end_missing(after);
        default:
            return;
    }
}

const FrameworkDevice& FrameworkState::device(int ordinal) const {
    static const FrameworkDevice kNothing;
    const auto found = devices_.find(ordinal);
    return found == devices_.end() ? kNothing : found->second;
}

std::optional<ObjectId> FrameworkState::stream_of(std::int32_t thread, int device) const {
    const auto found = threads_.find(thread);
    if (found == threads_.end()) return std::nullopt;
    const auto stream = found->second.streams.find(device);
    return stream == found->second.streams.end() ? std::nullopt : std::optional(stream->second);
}

void FrameworkState::acquired(const Event& event, const ProcessState& state) {
    Thread& thread = threads_[event.thread];
    // Events that no release followed are of blocks that were freed earlier, during a capture.
    thread.waits.clear();
    FrameworkBlock block;
    block.bytes = event.bytes.value;
    block.device = event.device;
    block.acquired = event.sequence;
    block.stack = event.stack;
    block.stream = stream_of(event.thread, event.device);
    if (event.has(wire::kRequestTold)) block.requested = event.extra;
    const Range range = range_of(event.address.value, block.bytes);
    if (range.size() == 0 || range.size() != block.bytes) {
        ++contradictions_.unknown_handles;
        return;
    }
    drop_blocks(range, true);
    block.home = home_of(range, block, state);
    add_block(range.begin, block);
    count_retries(event);
    note_totals(event);
}

void FrameworkState::released(const Event& event) {
    Thread& thread = threads_[event.thread];
    std::vector<ObjectId> waits;
    waits.swap(thread.waits);
    const auto found = blocks_.find(event.address.value);
    if (found == blocks_.end() || found->second.waits_for != 0) {
        ++contradictions_.unknown_releases;
        note_totals(event);
        return;
    }
    if (waits.empty()) {
        erase_block(found);
    } else {
        no_more_live(found->second);
        found->second.waits_for = static_cast<std::uint32_t>(waits.size());
        const Waited waited{found->first, found->second.acquired};
        for (const ObjectId wait : waits) {
            // The allocator uses its events again: what waited for this one before waits no more.
            const auto old = waiting_.find(wait);
            if (old != waiting_.end()) one_wait_less(old->second);
            waiting_[wait] = waited;
        }
    }
    note_totals(event);
}

void FrameworkState::refused(const Event& event) {
    ++devices_[event.device].refused;
    count_retries(event);
    note_totals(event);
}

void FrameworkState::wait_over(ObjectId event, Thread& thread) {
    std::erase(thread.waits, event);
    const auto found = waiting_.find(event);
    if (found == waiting_.end()) return;
    const Waited waited = found->second;
    waiting_.erase(found);
    one_wait_less(waited);
}

void FrameworkState::one_wait_less(const Waited& waited) {
    const auto block = blocks_.find(waited.address);
    if (block == blocks_.end() || block->second.acquired != waited.acquired || block->second.waits_for == 0)
        return;
    if (block->second.waits_for == 1)
        erase_block(block);
    else
        --block->second.waits_for;
}

void FrameworkState::note_totals(const Event& event) {
    FrameworkDevice& books = devices_[event.device];
    FrameworkWord word;
    word.sequence = event.sequence;
    if (event.object.value != wire::kTotalNotTold) word.allocated = event.object.value;
    if (event.extra != wire::kTotalNotTold && !event.has(wire::kRequestTold)) word.reserved = event.extra;
    if (!word.allocated && !word.reserved) return;
    word.our_allocated = books.live();
    word.our_reserved = books.all().reserved_bytes.current;
    ++books.words;
    if (!word.agrees()) {
        ++books.disagreements;
        if (!books.first_disagreement) books.first_disagreement = word;
    }
    books.word = word;
}

// PyTorch asks the driver, returns what is wholly free, and asks again: two refusals in a row, or one and a
// grant, are such a retry. With max_split_size_mb it asks once more in between, during a capture not at all.
// With a limit of its own it refuses without asking the driver, and a retry shows only in what was returned.
void FrameworkState::count_retries(const Event& event) {
    Thread& thread = threads_[event.thread];
    FrameworkDevice& books = devices_[event.device];
    if (thread.refusals >= 2) ++books.retries_at_least;
    if (thread.refusals >= 1 || thread.gave_back || event.kind == Kind::kBlockRefused)
        ++books.retries_at_most;
    thread.refusals = 0;
    thread.gave_back = false;
    gave_back_last_.reset();
}

}  // namespace fragscope::analysis
