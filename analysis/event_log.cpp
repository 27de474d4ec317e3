#include "analysis/event_log.h"

#include "analysis/kinds.h"

namespace fragscope::analysis {

EventLog::EventLog(std::shared_ptr<const EventSource> source) : source_(std::move(source)) {
    if (source_ == nullptr || source_->blocks().empty()) {
        source_.reset();
    } else {
        size_ = source_->blocks().back().first + source_->blocks().back().count;
    }
}

std::size_t EventLog::block_of(std::size_t index) const {
    const std::span<const BlockFacts> blocks = source_->blocks();
    const auto behind =
        std::upper_bound(blocks.begin(), blocks.end(), index,
                         [](std::size_t i, const BlockFacts& block) { return i < block.first; });
    return static_cast<std::size_t>(behind - blocks.begin()) - 1;
}

void EventLog::show(std::size_t index) const {
    const std::size_t block = block_of(index);
    window_ = source_->load(block);
    window_first_ = source_->blocks()[block].first;
    window_count_ = window_->size();
}

Event EventLog::at(std::size_t index) const {
    if (index >= size()) throw std::out_of_range("no such event in the log");
    return (*this)[index];
}

EventLog::Run EventLog::run(std::size_t index, std::size_t end) const {
    if (source_ == nullptr) return {nullptr, std::span(events_).subspan(index, end - index)};
    if (index - window_first_ >= window_count_) show(index);
    const std::size_t from = index - window_first_;
    const std::size_t count = std::min(end - index, window_count_ - from);
    return {window_, std::span(*window_).subspan(from, count)};
}

bool EventLog::holds(const Kinds& kinds) const {
    if (source_ == nullptr)
        return std::any_of(events_.begin(), events_.end(), [&](const Event& event) {
            return kinds.test(static_cast<std::size_t>(event.kind));
        });
    const std::span<const BlockFacts> blocks = source_->blocks();
    return std::any_of(blocks.begin(), blocks.end(),
                       [&](const BlockFacts& block) { return (block.kinds & kinds).any(); });
}

std::uint64_t EventLog::earliest_acquired_ns(std::size_t from) const {
    std::uint64_t earliest = UINT64_MAX;
    if (from >= size()) return earliest;
    if (source_ == nullptr) {
        for (const Event& event : std::span(events_).subspan(from))
            if (acquires(event.kind)) earliest = std::min(earliest, event.start.value);
    } else {
        for (const BlockFacts& block : source_->blocks().subspan(block_of(from)))
            earliest = std::min(earliest, block.earliest_acquired_ns);
    }
    return earliest;
}

std::uint64_t EventLog::latest_ns() const {
    std::uint64_t latest = 0;
    if (source_ == nullptr) {
        for (const Event& event : events_) latest = std::max(latest, event.start.value + event.duration_ns);
    } else {
        for (const BlockFacts& block : source_->blocks()) latest = std::max(latest, block.latest_ns);
    }
    return latest;
}

void EventLog::take_into_memory() {
    if (source_ == nullptr) return;
    std::vector<Event> all;
    all.reserve(size_);
    for_each(0, size_, [&](std::size_t, const Event& event) { all.push_back(event); });
    *this = EventLog(std::move(all));
}

void EventLog::push_back(const Event& event) {
    take_into_memory();
    events_.push_back(event);
}

Event& EventLog::edit(std::size_t index) {
    take_into_memory();
    return events_.at(index);
}

}  // namespace fragscope::analysis
