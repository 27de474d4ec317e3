// Starts the program as if it had been started without us, apart from two environment variables, and passes
// on what is for it. One program per process: signal handlers are the process's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace fragscope::collector {

// Opens /dev/null in the place of each closed one of stdin, stdout and stderr, so that no file of ours gets
// its number; the program still finds it closed.
void occupy_standard_descriptors();

// The environment for the program: that of this process, with the shim first in LD_PRELOAD and the session's
// name.
std::vector<std::string> traced_environment(const std::string& shim, const std::string& session);

struct Ended {
    std::optional<int> exit_status;
    std::optional<int> signal;
    std::string how() const;  // "exit 0", "signal 9"
    int status() const;       // as a shell says it: 128 + the signal's number
};

class Launcher {
  public:
    // Sets the signals up: those that a terminal sends to all of its foreground processes reach the program
    // by themselves and are noted here; those that somebody sends to this process alone are passed on.
    Launcher();
    ~Launcher();  // as it was before
    Launcher(const Launcher&) = delete;
    Launcher& operator=(const Launcher&) = delete;

    // Returns 0, or the error number with which the program could not be started.
    int start(const std::string& path, const std::vector<std::string>& arguments,
              const std::vector<std::string>& environment);
    pid_t pid() const { return child_; }
    // Whether and how the program has ended. Does not wait.
    std::optional<Ended> ended();
    // The last of SIGINT, SIGQUIT, SIGTERM and SIGHUP that came; 0: none since the last forget_signals().
    int last_signal() const;
    void forget_signals();

  private:
    pid_t child_ = -1;
};

}  // namespace fragscope::collector
