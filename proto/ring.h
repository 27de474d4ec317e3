// The ring protocol: one producer thread, one consumer, records of 64 bytes in memory that both map. No locks, no waiting,
// no operating-system calls: who calls decides what to do when a ring is full or empty.
//
// Trust: the producer is a stranger's program and the consumer may be dead. Each side keeps its own position in private
// memory and only publishes it; what it reads of the other side is compared with what is possible before use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire.h"

namespace fragscope::wire {

// The producer's end. Trivially destructible; lives in the thread's own memory.
class RingWriter {
  public:
    constexpr RingWriter() = default;
    // `records` (a power of two) slots at `slots`. The ring is continued where its last owner stopped.
    RingWriter(RingHeader* header, Record* slots, std::uint32_t records)
        : header_(header),
          slots_(slots),
          mask_(records - 1),
          head_(header->head.load(std::memory_order_relaxed)),
          tail_seen_(header->tail.load(std::memory_order_acquire)) {}

    // The slot to fill in, or nullptr when the ring is full. Nothing is visible to the reader before commit().
    Record* reserve() {
        if (head_ - tail_seen_ > mask_) {
            tail_seen_ = header_->tail.load(std::memory_order_acquire);
            if (head_ - tail_seen_ > mask_) return nullptr;  // full, or the reader wrote rubbish: the same to us
        }
        return &slots_[head_ & mask_];
    }
    void commit() { header_->head.store(++head_, std::memory_order_release); }

    explicit operator bool() const { return header_ != nullptr; }
    RingHeader* header() const { return header_; }

  private:
    RingHeader* header_ = nullptr;
    Record* slots_ = nullptr;
    std::uint64_t mask_ = 0;
    std::uint64_t head_ = 0;
    std::uint64_t tail_seen_ = 0;
};

// The consumer's end.
class RingReader {
  public:
    enum class Fault { kNone, kHeadImpossible };

    RingReader(RingHeader* header, const Record* slots, std::uint32_t records)
        : header_(header), slots_(slots), records_(records), tail_(header->tail.load(std::memory_order_relaxed)) {}

    // Hands each waiting record, at most `limit`, to `take(const Record&)` as a private copy, then frees their slots.
    // Returns how many. A head that cannot be (further from the tail than the ring is long) is a Fault: nothing is
    // taken and the ring must be given up.
    template <typename Take>
    std::size_t drain(std::size_t limit, Take&& take) {
        const std::uint64_t head = header_->head.load(std::memory_order_acquire);
        std::uint64_t waiting = head - tail_;
        if (waiting > records_) {
            fault_ = Fault::kHeadImpossible;
            return 0;
        }
        if (waiting > limit) waiting = limit;
        for (std::uint64_t i = 0; i < waiting; ++i) {
            const Record copy = slots_[(tail_ + i) & (records_ - 1)];
            // The slot may change under us: what take() checks must be what it uses, so the copy has to be a real one.
            std::atomic_signal_fence(std::memory_order_seq_cst);
            take(copy);
        }
        tail_ += waiting;
        if (waiting != 0) header_->tail.store(tail_, std::memory_order_release);
        return static_cast<std::size_t>(waiting);
    }
    Fault fault() const { return fault_; }

  private:
    RingHeader* header_;
    const Record* slots_;
    std::uint64_t records_;
    std::uint64_t tail_;
    Fault fault_ = Fault::kNone;
};

}  // namespace fragscope::wire
