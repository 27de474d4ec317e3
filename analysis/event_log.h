// The events of one process in the order of their sequence numbers: a sequence that gives events by value, so
// that nobody depends on where they are kept.
//
// They are in memory (importers, tests), or in a trace file of which only an index is held; then a few blocks
// that were asked for last are in memory, and whoever goes through the log from one end to the other meets
// each block once. What the index knows of each block lets a search pass over those without a hit. A log of a
// file throws EventsLost where the file has changed since it was opened. One thread at a time.
#pragma once

#include <algorithm>
#include <bitset>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "analysis/event.h"

namespace fragscope::analysis {

// The trace file is no longer what it was when it was opened; what() is a sentence without its full stop.
class EventsLost : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

using Kinds = std::bitset<static_cast<std::size_t>(wire::kLastKind) + 1>;
inline Kinds kinds_of(std::initializer_list<wire::Kind> kinds) {
    Kinds out;
    for (const wire::Kind kind : kinds) out.set(static_cast<std::size_t>(kind));
    return out;
}

// What is known of consecutive events without looking at them.
struct BlockFacts {
    std::size_t first = 0;  // index
    std::size_t count = 0;
    Kinds kinds;
    std::uint16_t flags = 0;        // wire::Flag, of all of them together
    bool failures = false;          // something that failed is among them, as for_each_failed has it
    std::uint64_t earliest_acquired_ns = UINT64_MAX;  // start of a call that takes memory (acquires of kinds.h)
    std::uint64_t latest_ns = 0;    // end of a call
};

// Where the events of a log come from that are not in memory.
class EventSource {
  public:
    virtual ~EventSource() = default;
    // In order and without gaps.
    virtual std::span<const BlockFacts> blocks() const = 0;
    virtual std::shared_ptr<const std::vector<Event>> load(std::size_t block) const = 0;
};

class EventLog {
  public:
    // Walks over the log; the log must outlive it and must not grow meanwhile.
    class Iterator {
      public:
        using iterator_category = std::random_access_iterator_tag;
        using value_type = Event;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = Event;

        Iterator() = default;
        Iterator(const EventLog& log, std::size_t index) : log_(&log), index_(index) {}

        Event operator*() const { return (*log_)[index_]; }
        Event operator[](difference_type n) const { return *(*this + n); }
        Iterator& operator+=(difference_type n) {
            index_ += static_cast<std::size_t>(n);
            return *this;
        }
        Iterator& operator-=(difference_type n) { return *this += -n; }
        Iterator& operator++() { return *this += 1; }
        Iterator& operator--() { return *this += -1; }
        Iterator operator++(int) { return std::exchange(*this, *this + 1); }
        Iterator operator--(int) { return std::exchange(*this, *this - 1); }
        friend Iterator operator+(Iterator at, difference_type n) { return at += n; }
        friend Iterator operator+(difference_type n, Iterator at) { return at += n; }
        friend Iterator operator-(Iterator at, difference_type n) { return at -= n; }
        friend difference_type operator-(const Iterator& a, const Iterator& b) {
            return static_cast<difference_type>(a.index_) - static_cast<difference_type>(b.index_);
        }
        bool operator==(const Iterator& other) const { return index_ == other.index_; }
        auto operator<=>(const Iterator& other) const { return index_ <=> other.index_; }

      private:
        const EventLog* log_ = nullptr;
        std::size_t index_ = 0;
    };

    EventLog() = default;
    explicit EventLog(std::vector<Event> events) : events_(std::move(events)) {}
    explicit EventLog(std::shared_ptr<const EventSource> source);

    std::size_t size() const { return source_ == nullptr ? events_.size() : size_; }
    bool empty() const { return size() == 0; }
    // `index` below size(); at() throws std::out_of_range where it is not.
    Event operator[](std::size_t index) const {
        if (source_ == nullptr) return events_[index];
        if (index - window_first_ >= window_count_) show(index);
        return (*window_)[index - window_first_];
    }
    Event at(std::size_t index) const;
    Event front() const { return (*this)[0]; }
    Event back() const { return (*this)[size() - 1]; }
    Iterator begin() const { return {*this, 0}; }
    Iterator end() const { return {*this, size()}; }

    // Events that lie side by side in memory for as long as this is held.
    struct Run {
        std::shared_ptr<const std::vector<Event>> held;
        std::span<const Event> events;
    };
    // From the event of this index on, at least one, at most up to `end` (not included); index < end <=
    // size().
    Run run(std::size_t index, std::size_t end) const;
    // `visit(index, event)` for all events from `begin` to `end` (not included).
    template <typename Visit>
    void for_each(std::size_t begin, std::size_t end, Visit&& visit) const {
        while (begin < end) {
            const Run together = run(begin, end);
            for (const Event& event : together.events) visit(begin++, event);
        }
    }
    // The same for the events of these kinds.
    template <typename Visit>
    void for_each_of(const Kinds& kinds, std::size_t begin, std::size_t end, Visit&& visit) const {
        for_each_where(
            begin, end, [&](const BlockFacts& block) { return (block.kinds & kinds).any(); },
            [&](const Event& event) { return kinds.test(static_cast<std::size_t>(event.kind)); }, visit);
    }
    template <typename Visit>
    void for_each_of(const Kinds& kinds, Visit&& visit) const {
        for_each_of(kinds, 0, size(), visit);
    }
    // The same for calls that failed and blocks that a framework's allocator refused.
    template <typename Visit>
    void for_each_failed(Visit&& visit) const {
        for_each_where(
            0, size(), [](const BlockFacts& block) { return block.failures; },
            [](const Event& event) { return event.failed() || event.kind == wire::Kind::kBlockRefused; },
            visit);
    }
    // The same for events with one of these flags (wire::Flag).
    template <typename Visit>
    void for_each_flagged(unsigned flags, Visit&& visit) const {
        for_each_where(
            0, size(), [&](const BlockFacts& block) { return (block.flags & flags) != 0; },
            [&](const Event& event) { return (event.flags & flags) != 0; }, visit);
    }
    // The index of the last event of these kinds in front of `end` of which the condition holds; `none` if
    // there is none.
    template <typename Condition>
    std::size_t last_of(const Kinds& kinds, std::size_t end, std::size_t none, Condition&& condition) const {
        while (end > 0) {
            const std::size_t from = source_ == nullptr ? 0 : source_->blocks()[block_of(end - 1)].first;
            std::size_t found = none;
            for_each_of(kinds, from, end, [&](std::size_t index, const Event& event) {
                if (condition(event)) found = index;
            });
            if (found != none) return found;
            end = from;
        }
        return none;
    }
    // No call from `from` on that takes memory has a start before it; UINT64_MAX if there is none. Exact where
    // `from` begins a block of whole batches.
    std::uint64_t earliest_acquired_ns(std::size_t from) const;
    // Whether any event of these kinds is there.
    bool holds(const Kinds& kinds) const;
    // The latest end of a call, 0 if there is none.
    std::uint64_t latest_ns() const;

    // For importers and tests; whoever appends keeps the order. What lies in a file is taken into memory.
    void push_back(const Event& event);
    // The event itself, until the log grows.
    Event& edit(std::size_t index);
    Event& edit_last() { return edit(size() - 1); }

  private:
    template <typename Within, typename Of, typename Visit>
    void for_each_where(std::size_t begin, std::size_t end, Within&& within, Of&& of, Visit& visit) const {
        const auto look = [&](std::size_t from, std::size_t to) {
            for_each(from, to, [&](std::size_t index, const Event& event) {
                if (of(event)) visit(index, event);
            });
        };
        if (source_ == nullptr) return look(begin, end);
        for (std::size_t block = block_of(begin); begin < end; ++block) {
            const BlockFacts& facts = source_->blocks()[block];
            const std::size_t to = std::min(end, facts.first + facts.count);
            if (within(facts)) look(begin, to);
            begin = to;
        }
    }
    std::size_t block_of(std::size_t index) const;
    void show(std::size_t index) const;
    void take_into_memory();

    std::vector<Event> events_;  // unless there is a source
    std::shared_ptr<const EventSource> source_;
    std::size_t size_ = 0;
    // The block of the source that was looked at last.
    mutable std::shared_ptr<const std::vector<Event>> window_;
    mutable std::size_t window_first_ = 0;
    mutable std::size_t window_count_ = 0;
};

}  // namespace fragscope::analysis
