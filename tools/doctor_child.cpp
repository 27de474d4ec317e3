#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tools/doctor.h"

namespace fragscope::tools {

namespace {

constexpr int kPatienceMs = 10'000;
constexpr std::size_t kMaxOutputBytes = 64 * 1024;

std::int64_t now_ms() {
    struct timespec time {};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

// The child's end of the pipe becomes its stdout and stderr; `run` never returns.
std::optional<ChildOutput> gather(const std::function<void()>& run) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    const pid_t child = ::fork();
    if (child == 0) {
        const int nothing = ::open("/dev/null", O_RDONLY);
        ::dup2(nothing, 0);
        ::dup2(ends[1], 1);
        ::dup2(ends[1], 2);
        run();
        ::_exit(127);
    }
    ::close(ends[1]);
    if (child < 0) {
        ::close(ends[0]);
        return std::nullopt;
    }
    ChildOutput out;
    bool in_time = false;
    const std::int64_t deadline = now_ms() + kPatienceMs;
    for (;;) {
        struct pollfd readable {
            ends[0], POLLIN, 0
        };
        const std::int64_t left = deadline - now_ms();
        const int ready = left > 0 ? ::poll(&readable, 1, static_cast<int>(left)) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) break;
        char some[4096];
        const ssize_t length = ::read(ends[0], some, sizeof some);
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) {
            in_time = true;
            break;
        }
        if (out.text.size() < kMaxOutputBytes) out.text.append(some, static_cast<std::size_t>(length));
    }
    ::close(ends[0]);
    if (!in_time) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!in_time) return std::nullopt;
    out.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return out;
}

}  // namespace

std::optional<ChildOutput> output_of(const std::vector<std::string>& command,
                                     const std::vector<std::string>& more_environment) {
    return gather([&] {
        for (const std::string& variable : more_environment) {
            const std::size_t equals = variable.find('=');
            ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
        }
        std::vector<char*> argv;
        for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        ::execvp(argv[0], argv.data());
    });
}

std::optional<ChildOutput> output_of_child(const std::function<std::string()>& work) {
    return gather([&] {
        const std::string text = work();
        (void)!::write(1, text.data(), text.size());
        ::_exit(0);
    });
}

}  // namespace fragscope::tools
