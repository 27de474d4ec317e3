// Disjoint extents in address order, in sorted chunks: the container under ExtentMap and ExtentSet
// (extent_map.h).
//
// A chunk holds up to kMost extents side by side, so a search touches a few cache lines, an insertion moves a
// part of one chunk, and nothing is allocated for a single extent. Each chunk knows its largest extent, so
// the largest of all is known after every change without another index. Chunks that become empty are kept for
// later use.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace fragscope::analysis {

struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  // not included; >= begin
    std::uint64_t size() const { return end - begin; }
    bool operator==(const Range&) const = default;
};

template <typename Value>
class ExtentChunks {
  public:
    // Where an extent lies; valid until the next insertion or removal.
    struct Place {
        std::size_t chunk = 0;
        std::size_t slot = 0;
        bool operator==(const Place&) const = default;
    };

    ExtentChunks() = default;
    ExtentChunks(const ExtentChunks& other)
        : firsts_(other.firsts_),
          maxima_(other.maxima_),
          largest_(other.largest_),
          stale_(other.stale_),
          size_(other.size_) {
        chunks_.reserve(other.chunks_.size());
        for (const auto& chunk : other.chunks_) chunks_.push_back(std::make_unique<Chunk>(*chunk));
    }
    ExtentChunks& operator=(const ExtentChunks& other) {
        if (this != &other) *this = ExtentChunks(other);
        return *this;
    }
    ExtentChunks(ExtentChunks&&) noexcept = default;
    ExtentChunks& operator=(ExtentChunks&&) noexcept = default;
    ~ExtentChunks() = default;

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    Place begin() const { return {}; }
    Place end() const { return {chunks_.size(), 0}; }
    Place next(const Place& at) const {
        return at.slot + 1 < chunks_[at.chunk]->count ? Place{at.chunk, at.slot + 1} : Place{at.chunk + 1, 0};
    }
    // Not of begin().
    Place previous(const Place& at) const {
        return at.slot != 0 ? Place{at.chunk, at.slot - 1}
                            : Place{at.chunk - 1, chunks_[at.chunk - 1]->count - 1};
    }

    // The first extent that begins behind the address.
    Place after(std::uint64_t address) const {
        if (firsts_.empty() || firsts_[0] > address) return begin();
        const std::size_t index = last_not_behind(firsts_.data(), firsts_.size(), address);
        const Chunk& chunk = *chunks_[index];
        return next({index, last_not_behind(chunk.begins.data(), chunk.count, address)});
    }

    Range range(const Place& at) const {
        const Chunk& chunk = *chunks_[at.chunk];
        return {chunk.begins[at.slot], chunk.ends[at.slot]};
    }
    Value& value(const Place& at) { return chunks_[at.chunk]->values[at.slot]; }
    const Value& value(const Place& at) const { return chunks_[at.chunk]->values[at.slot]; }

    // Other bounds for the same extent; its order among the others must not change.
    void reshape(const Place& at, const Range& range) {
        Chunk& chunk = *chunks_[at.chunk];
        const std::uint64_t before = chunk.ends[at.slot] - chunk.begins[at.slot];
        chunk.begins[at.slot] = range.begin;
        chunk.ends[at.slot] = range.end;
        if (at.slot == 0) firsts_[at.chunk] = range.begin;
        if (range.size() < before) {
            shrunk(at.chunk, before);
        } else {
            grown(at.chunk, range.size());
        }
    }

    // Before the extent at `at`, or at the end; where it is now.
    Place insert(Place at, const Range& range, Value value) {
        // At a border the chunk in front takes it, if there is one with room.
        if (at.slot == 0 && at.chunk != 0 &&
            (at.chunk == chunks_.size() || chunks_[at.chunk - 1]->count < kMost)) {
            --at.chunk;
            at.slot = chunks_[at.chunk]->count;
        }
        if (chunks_.empty()) {
            add_chunk(0);
        } else if (chunks_[at.chunk]->count == kMost) {
            at = make_room(at);
        }
        Chunk& chunk = *chunks_[at.chunk];
        move_up(chunk, at.slot);
        chunk.begins[at.slot] = range.begin;
        chunk.ends[at.slot] = range.end;
        chunk.values[at.slot] = std::move(value);
        ++chunk.count;
        if (at.slot == 0) firsts_[at.chunk] = range.begin;
        grown(at.chunk, range.size());
        ++size_;
        return at;
    }

    // The extent behind it.
    Place erase(const Place& at) {
        Chunk& chunk = *chunks_[at.chunk];
        const std::uint64_t bytes = chunk.ends[at.slot] - chunk.begins[at.slot];
        const auto slot = static_cast<std::ptrdiff_t>(at.slot);
        const auto count = static_cast<std::ptrdiff_t>(chunk.count);
        std::copy(chunk.begins.begin() + slot + 1, chunk.begins.begin() + count, chunk.begins.begin() + slot);
        std::copy(chunk.ends.begin() + slot + 1, chunk.ends.begin() + count, chunk.ends.begin() + slot);
        std::move(chunk.values.begin() + slot + 1, chunk.values.begin() + count, chunk.values.begin() + slot);
        --chunk.count;
        --size_;
        if (chunk.count == 0) {
            drop_chunk(at.chunk);
            if (bytes == largest_) stale_ = true;
            return {at.chunk, 0};
        }
        if (at.slot == 0) firsts_[at.chunk] = chunk.begins[0];
        shrunk(at.chunk, bytes);
        if (chunk.count < kFew && at.chunk + 1 < chunks_.size() &&
            chunk.count + chunks_[at.chunk + 1]->count <= kMost / 2) {
            join_with_next(at.chunk);
        }
        return at.slot < chunks_[at.chunk]->count ? at : Place{at.chunk + 1, 0};
    }

    // Bytes of the largest extent; 0 if there is none.
    std::uint64_t largest() const {
        if (stale_) {
            largest_ = maxima_.empty() ? 0 : *std::max_element(maxima_.begin(), maxima_.end());
            stale_ = false;
        }
        return largest_;
    }

  private:
    // Larger values cost more to move, so fewer of them share a chunk.
    static constexpr std::size_t kMost = sizeof(Value) > 16 ? 32 : 64;
    static constexpr std::size_t kFew = 8;

    struct Chunk {
        std::size_t count = 0;
        std::array<std::uint64_t, kMost> begins;
        std::array<std::uint64_t, kMost> ends;
        std::array<Value, kMost> values;
    };

    // The last of the sorted values that is not greater than x; the first one is not. A pointer that is chosen
    // becomes a conditional move: which half it is cannot be foretold, and a branch would miss every other time.
    static std::size_t last_not_behind(const std::uint64_t* values, std::size_t count, std::uint64_t x) {
        const std::uint64_t* at = values;
        while (count > 1) {
            const std::size_t half = count / 2;
            at = at[half] <= x ? at + half : at;
            count -= half;
        }
        return static_cast<std::size_t>(at - values);
    }

    void move_up(Chunk& chunk, std::size_t from) {
        const auto slot = static_cast<std::ptrdiff_t>(from);
        const auto count = static_cast<std::ptrdiff_t>(chunk.count);
        std::copy_backward(chunk.begins.begin() + slot, chunk.begins.begin() + count,
                           chunk.begins.begin() + count + 1);
        std::copy_backward(chunk.ends.begin() + slot, chunk.ends.begin() + count,
                           chunk.ends.begin() + count + 1);
        std::move_backward(chunk.values.begin() + slot, chunk.values.begin() + count,
                           chunk.values.begin() + count + 1);
    }

    void add_chunk(std::size_t index) {
        const auto at = static_cast<std::ptrdiff_t>(index);
        if (spare_.empty()) spare_.push_back(std::make_unique<Chunk>());
        chunks_.insert(chunks_.begin() + at, std::move(spare_.back()));
        spare_.pop_back();
        firsts_.insert(firsts_.begin() + at, 0);
        maxima_.insert(maxima_.begin() + at, 0);
    }
    void drop_chunk(std::size_t index) {
        const auto at = static_cast<std::ptrdiff_t>(index);
        chunks_[index]->count = 0;
        if (spare_.size() < kSpares) spare_.push_back(std::move(chunks_[index]));
        chunks_.erase(chunks_.begin() + at);
        firsts_.erase(firsts_.begin() + at);
        maxima_.erase(maxima_.begin() + at);
    }
    // Moves the extents of `from` from `slot` on to the end of `to`.
    void move_tail(Chunk& from, std::size_t slot, Chunk& to) {
        const auto begin = static_cast<std::ptrdiff_t>(slot);
        const auto end = static_cast<std::ptrdiff_t>(from.count);
        const auto target = static_cast<std::ptrdiff_t>(to.count);
        std::copy(from.begins.begin() + begin, from.begins.begin() + end, to.begins.begin() + target);
        std::copy(from.ends.begin() + begin, from.ends.begin() + end, to.ends.begin() + target);
        std::move(from.values.begin() + begin, from.values.begin() + end, to.values.begin() + target);
        to.count += from.count - slot;
        from.count = slot;
    }
    // The chunk is full: where the extent goes instead.
    Place make_room(const Place& at) {
        add_chunk(at.chunk + 1);
        // Growth at the end leaves full chunks behind.
        if (at.slot == kMost) return {at.chunk + 1, 0};
        Chunk& left = *chunks_[at.chunk];
        Chunk& right = *chunks_[at.chunk + 1];
        move_tail(left, kMost / 2, right);
        firsts_[at.chunk + 1] = right.begins[0];
        maxima_[at.chunk] = largest_in(left);
        maxima_[at.chunk + 1] = largest_in(right);
        return at.slot <= kMost / 2 ? at : Place{at.chunk + 1, at.slot - kMost / 2};
    }
    void join_with_next(std::size_t index) {
        move_tail(*chunks_[index + 1], 0, *chunks_[index]);
        maxima_[index] = std::max(maxima_[index], maxima_[index + 1]);
        drop_chunk(index + 1);
    }

    static std::uint64_t largest_in(const Chunk& chunk) {
        std::uint64_t most = 0;
        for (std::size_t i = 0; i < chunk.count; ++i) most = std::max(most, chunk.ends[i] - chunk.begins[i]);
        return most;
    }
    void grown(std::size_t index, std::uint64_t bytes) {
        maxima_[index] = std::max(maxima_[index], bytes);
        largest_ = std::max(largest_, bytes);  // if it was stale, it stays so
    }
    // An extent of so many bytes is gone or smaller.
    void shrunk(std::size_t index, std::uint64_t bytes) {
        if (bytes < maxima_[index]) return;
        maxima_[index] = largest_in(*chunks_[index]);
        if (bytes >= largest_ && maxima_[index] < bytes) stale_ = true;
    }

    static constexpr std::size_t kSpares = 16;

    std::vector<std::unique_ptr<Chunk>> chunks_;
    std::vector<std::uint64_t> firsts_;  // by chunk: where its first extent begins
    std::vector<std::uint64_t> maxima_;  // by chunk: bytes of its largest extent
    std::vector<std::unique_ptr<Chunk>> spare_;
    mutable std::uint64_t largest_ = 0;
    mutable bool stale_ = false;  // largest_ may be too large
    std::size_t size_ = 0;
};

}  // namespace fragscope::analysis
