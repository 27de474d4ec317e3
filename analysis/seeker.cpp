#include "analysis/seeker.h"

#include <algorithm>
#include <future>
#include <utility>

#include "analysis/beside.h"
#include "analysis/session.h"

namespace fragscope::analysis {

StateSeeker::StateSeeker(const Trace& trace, ProcessIndex process, Watcher watcher, std::size_t copies,
                         std::size_t shortest, Reader reader)
    : events_(&trace.events[process.value]),
      watcher_(std::move(watcher)),
      reader_(std::move(reader)),
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

namespace {
constexpr std::size_t kWorthAThread = 4096;  // events
}

void StateSeeker::apply_up_to(std::size_t end) {
    while (now_.next < end) {
        const EventLog::Run run = events_->run(now_.next, end);
        const std::size_t told = std::min(run.events.size(), watched_ - std::min(watched_, now_.next));
        const std::span<const Event> fresh = run.events.subspan(told);
        std::future<void> reading;
        if (reader_ && fresh.size() >= kWorthAThread) {
            reading = beside([&] { reader_(fresh); });
        } else if (reader_ && !fresh.empty()) {
            reader_(fresh);
        }
        for (const Event& event : run.events.first(told)) apply(event);
        for (const Event& event : fresh) {
            apply(event);
            if (watcher_) watcher_(now_.state, event);
        }
        if (reading.valid()) reading.get();
        now_.next += run.events.size();
        replayed_ += run.events.size();
        watched_ = std::max(watched_, now_.next);
    }
}

}  // namespace fragscope::analysis
