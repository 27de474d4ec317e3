// The events of one process in the order of their sequence numbers: a sequence that gives events by value, so
// that nobody depends on where they are kept.
#pragma once

#include <compare>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "analysis/event.h"

namespace fragscope::analysis {

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

    std::size_t size() const { return events_.size(); }
    bool empty() const { return events_.empty(); }
    // `index` below size(); at() throws std::out_of_range where it is not.
    Event operator[](std::size_t index) const { return events_[index]; }
    Event at(std::size_t index) const { return events_.at(index); }
    Event front() const { return events_.front(); }
    Event back() const { return events_.back(); }
    Iterator begin() const { return {*this, 0}; }
    Iterator end() const { return {*this, size()}; }

    // For importers and tests; whoever appends keeps the order.
    void push_back(const Event& event) { events_.push_back(event); }
    // The event itself, until the log grows.
    Event& edit(std::size_t index) { return events_.at(index); }
    Event& edit_last() { return events_.back(); }

  private:
    std::vector<Event> events_;
};

}  // namespace fragscope::analysis
