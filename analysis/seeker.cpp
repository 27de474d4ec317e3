#include "analysis/seeker.h"

#include <algorithm>
#include <utility>

#include "analysis/session.h"

namespace fragscope::analysis {

StateSeeker::StateSeeker(const Trace& trace, ProcessIndex process, Watcher watcher, std::size_t copies,
                         std::size_t shortest)
    : events_(&trace.events[process.value]),
      watcher_(std::move(watcher)),
      copies_(std::max<std::size_t>(copies, 1)),
      interval_(std::max(events_->size() / copies_ + 1, std::max<std::size_t>(shortest, 1))),
      now_{state_of(trace, process), {}, 0} {
    kept_.push_back(now_);
}

void StateSeeker::move_to(std::size_t index) {
    index = std::min(index, events_->size());
    if (index < now_.next) go_back(index);
    while (now_.next < index) {
        const std::size_t next_copy = kept_.size() * interval_;
        apply_up_to(now_.next < next_copy ? std::min(index, next_copy) : index);
        if (now_.next == next_copy && kept_.size() < copies_) kept_.push_back(now_);
    }
}

void StateSeeker::go_back(std::size_t index) { now_ = kept_[std::min(index / interval_, kept_.size() - 1)]; }

void StateSeeker::apply_up_to(std::size_t end) {
    events_->for_each(now_.next, end, [&](std::size_t index, const Event& event) {
        now_.state.apply(event);
        now_.framework.apply(event, now_.state);
        now_.next = index + 1;
        ++replayed_;
        if (index < watched_) return;
        ++watched_;
        if (watcher_) watcher_(now_.state, event);
    });
}

}  // namespace fragscope::analysis
