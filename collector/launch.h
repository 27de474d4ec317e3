// Starts the program as if it had been started without us, apart from the environment variables that are
// named below, and passes on what is for it. One program per process: signal handlers are the process's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace fragscope::collector {

// Opens /dev/null in the place of each closed one of stdin, stdout and stderr, so that no file of ours gets
// its number; the program still finds it closed.
void occupy_standard_descriptors();

// The environment for the program: that of this process, with
//   LD_PRELOAD             the shim, before what was there
//   FRAGSCOPE_SESSION      the session's name
//   NVTX_INJECTION64_PATH  the shim, with `nvtx`
//   FRAGSCOPE_NVTX_CHAIN   what NVTX_INJECTION64_PATH was before, if anything
// A session inside another one replaces it: the other one's shim and name are taken out, whichever folder it
// lies in.
std::vector<std::string> traced_environment(const std::string& shim, const std::string& session, bool nvtx);

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

    // Makes the program's process, which waits: its number is known before anything of the program runs.
    // Returns 0 or an error number. To be followed by go() or by cancel().
    int prepare(const std::string& path, const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment);
    // Lets it execute the program. Returns 0, or the error number with which it could not.
    int go();
    // The process ends without having executed anything.
    void cancel();
    pid_t pid() const { return child_; }
    // Whether and how the program has ended. Does not wait.
    std::optional<Ended> ended();
    // The last of SIGINT, SIGQUIT, SIGTERM and SIGHUP that came; 0: none since the last forget_signals().
    int last_signal() const;
    void forget_signals();

  private:
    void reap();

    pid_t child_ = -1;
    int gate_ = -1;    // one byte lets the child go, its end makes the child end
    int report_ = -1;  // the error number of the child's exec, or the end where it succeeded
};

}  // namespace fragscope::collector
