// Whether an attached process still runs. A process is known by number, start time and PID namespace; the
// number alone may have been given to another one since.
#pragma once

#include <cstdint>

namespace fragscope::collector {

// Start time in clock ticks since boot (field 22 of /proc/<pid>/stat); 0: no such process, or not to be seen.
std::uint64_t process_start_time(std::int64_t pid);
std::int64_t parent_of(std::int64_t pid);  // 0: not known
std::uint64_t own_pid_namespace();         // inode; 0: not known

class Liveness {
  public:
    // What the process wrote about itself.
    Liveness(std::int32_t pid, std::uint64_t start_time, std::uint64_t pid_namespace);
    ~Liveness();
    Liveness(Liveness&& other) noexcept;
    Liveness& operator=(Liveness&& other) noexcept;

    enum class State {
        kAlive,
        kDead,
        kUnknown,  // in a PID namespace that cannot be seen from here
    };
    State state();
    std::int64_t pid() const { return pid_; }  // as seen from here; 0: not known
    // False only if the thread, numbered as the process sees it, is certainly gone.
    bool may_have_thread(std::int32_t thread) const;

  private:
    std::int64_t pid_ = 0;
    bool same_namespace_ = false;
    int pidfd_ = -1;
    std::uint64_t start_time_ = 0;  // 0: not known
    State last_ = State::kUnknown;
};

}  // namespace fragscope::collector
