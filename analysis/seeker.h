// The state of one process at any event of its log, in any order of asking: on its way it keeps copies of the
// state at intervals, so that going back replays one interval and not everything.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "analysis/framework.h"
#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

class StateSeeker {
  public:
    // Told of each event once, in order, with the state after it.
    using Watcher = std::function<void(const ProcessState&, const Event&)>;
    // The same without a state, for many events at a time; in whatever thread, while they are applied, but
    // never twice at a time.
    using Reader = std::function<void(std::span<const Event>)>;
    // As many copies as serve a few dozen moments well.
    static constexpr std::size_t kCopies = 16;
    static constexpr std::size_t kShortest = 4096;

    // The trace must outlive it. `copies`: at most so many are kept, the beginning among them; each is as
    // large as what is live then. Equal numbers of events lie between them, but no fewer than `shortest`.
    StateSeeker(const Trace& trace, ProcessIndex process, Watcher watcher = nullptr,
                std::size_t copies = kCopies, std::size_t shortest = kShortest, Reader reader = nullptr);

    // Before the event of this index; behind the last event where the log ends earlier.
    void move_to(std::size_t index);
    std::size_t index() const { return now_.next; }
    // Both stay where they are, and change with every move.
    const ProcessState& state() const { return now_.state; }
    const FrameworkState& framework() const { return now_.framework; }
    // Events that were applied so far, in all moves together.
    std::size_t replayed() const { return replayed_; }

  private:
    struct Moment {
        ProcessState state;
        FrameworkState framework;
        std::size_t next = 0;
    };
    void go_back(std::size_t index);
    void apply_up_to(std::size_t end);
    void apply(const Event& event) {
        now_.state.apply(event);
        now_.framework.apply(event, now_.state);
    }

    const EventLog* events_;
    Watcher watcher_;
    Reader reader_;
    std::size_t copies_;
    std::size_t interval_;
    Moment now_;
    std::vector<Moment> kept_;  // at 0, interval_, 2 * interval_, …
    std::size_t watched_ = 0;   // events that watcher and reader were told of
    std::size_t replayed_ = 0;
};

}  // namespace fragscope::analysis
