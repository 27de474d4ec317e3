#include "collector/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "proto/wire.h"

extern char** environ;

namespace fragscope::collector {

namespace {

constexpr std::array kPassedOn{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
// Would end us where the write that causes it should merely fail.
constexpr std::array kIgnored{SIGPIPE, SIGXFSZ};

// NVTX loads the library that the first one names. The second one is the shim's: a library that gets the
// program's calls after it.
constexpr char kNvtxVariable[] = "NVTX_INJECTION64_PATH";
constexpr char kNvtxChainVariable[] = "FRAGSCOPE_NVTX_CHAIN";

std::atomic<pid_t> g_child{-1};
std::atomic<int> g_last_signal{0};
static_assert(std::atomic<pid_t>::is_always_lock_free);

struct sigaction g_before[kPassedOn.size() + kIgnored.size() + 1];

extern "C" void on_signal(int number, siginfo_t* info, void*) {
    const int error = errno;
    if (number != SIGUSR1 && number != SIGUSR2) g_last_signal.store(number, std::memory_order_relaxed);
    // The kernel sends a terminal's signals to the whole foreground group, the program included.
    const pid_t child = g_child.load(std::memory_order_relaxed);
    if (info->si_code != SI_KERNEL && child > 0) ::kill(child, number);
    errno = error;
}

// Its only use is to end a sleep.
extern "C" void on_child(int) {}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> out;
    for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
    out.push_back(nullptr);
    return out;
}

void set_back() {
    std::size_t i = 0;
    for (const int number : kPassedOn) ::sigaction(number, &g_before[i++], nullptr);
    for (const int number : kIgnored) ::sigaction(number, &g_before[i++], nullptr);
    ::sigaction(SIGCHLD, &g_before[i], nullptr);
}

std::string_view file_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

// What stands behind `name` and '=' in an entry of the environment; null: it is another variable.
const char* value_of(const char* entry, const char* name) {
    const std::size_t length = std::strlen(name);
    return std::strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : nullptr;
}

std::string variable(const char* name, const std::string& value) { return std::string(name) + "=" + value; }

}  // namespace

void occupy_standard_descriptors() {
    for (int fd = 0; fd <= 2; ++fd)
        // The lowest free number is taken, so going up fills each hole in turn.
        if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR | O_CLOEXEC);
}

std::vector<std::string> traced_environment(const std::string& shim, const std::string& session, bool nvtx) {
    const std::string_view own_name = file_name(shim);
    std::vector<std::string> environment;
    std::string preload = "LD_PRELOAD=" + shim;
    std::string injected;  // into NVTX by somebody else
    std::string chained;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (const char* before = value_of(*entry, "LD_PRELOAD")) {
            // The loader cuts at both.
            const std::string_view list = before;
            for (std::size_t begin = 0; begin < list.size();) {
                const std::size_t end = std::min(list.find_first_of(": ", begin), list.size());
                const std::string_view library = list.substr(begin, end - begin);
                if (!library.empty() && file_name(library) != own_name) preload.append(":").append(library);
                begin = end + 1;
            }
        } else if (const char* nvtx_library = value_of(*entry, kNvtxVariable)) {
            injected = nvtx_library;
        } else if (const char* nvtx_chain = value_of(*entry, kNvtxChainVariable)) {
            chained = nvtx_chain;
        } else if (value_of(*entry, wire::kSessionVariable) == nullptr) {
            environment.emplace_back(*entry);
        }
    }
    if (file_name(injected) == own_name) injected = chained;
    environment.push_back(std::move(preload));
    environment.push_back(variable(wire::kSessionVariable, session));
    if (nvtx) environment.push_back(variable(kNvtxVariable, shim));
    if (!injected.empty())
        environment.push_back(variable(nvtx ? kNvtxChainVariable : kNvtxVariable, injected));
    return environment;
}

std::string Ended::how() const {
    return signal ? fmt::format("signal {}", *signal) : fmt::format("exit {}", exit_status.value_or(0));
}
int Ended::status() const { return signal ? 128 + *signal : exit_status.value_or(0); }

Launcher::Launcher() {
    g_last_signal = 0;
    std::size_t i = 0;
    for (const int number : kPassedOn) {
        ::sigaction(number, nullptr, &g_before[i]);
        // What was ignored from the start (nohup, a background job) stays ignored.
        if (g_before[i++].sa_handler == SIG_IGN) continue;
        struct sigaction action {};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO;
        ::sigaction(number, &action, nullptr);
    }
    for (const int number : kIgnored) {
        struct sigaction action {};
        action.sa_handler = SIG_IGN;
        ::sigaction(number, &action, &g_before[i++]);
    }
    struct sigaction action {};
    action.sa_handler = on_child;
    ::sigaction(SIGCHLD, &action, &g_before[i]);
}

Launcher::~Launcher() {
    if (gate_ >= 0) cancel();
    g_child = -1;
    set_back();
}

int Launcher::prepare(const std::string& path, const std::vector<std::string>& arguments,
                      const std::vector<std::string>& environment) {
    int gate[2];
    int report[2];
    if (::pipe2(gate, O_CLOEXEC) != 0) return errno;
    if (::pipe2(report, O_CLOEXEC) != 0) {
        const int error = errno;
        ::close(gate[0]);
        ::close(gate[1]);
        return error;
    }
    std::vector<char*> argv = pointers(arguments);
    std::vector<char*> envp = pointers(environment);
    // Nothing may come between the fork and knowing the child, or a signal would be lost.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t child = ::fork();
    if (child == 0) {
        set_back();
        ::close(gate[1]);
        // Signals that come while it waits are kept for the program.
        char go = 0;
        if (::read(gate[0], &go, 1) != 1) ::_exit(125);
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        ::execvpe(path.c_str(), argv.data(),
                  envp.data());  // has a slash; runs a script without "#!" as shells do
        const int error = errno;
        (void)!::write(report[1], &error, sizeof error);
        ::_exit(127);
    }
    const int error = child < 0 ? errno : 0;
    if (child > 0) {
        child_ = child;
        g_child = child;
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::close(gate[0]);
    ::close(report[1]);
    gate_ = gate[1];
    report_ = report[0];
    if (error != 0) cancel();
    return error;
}

int Launcher::go() {
    const char go = 1;
    (void)!::write(gate_, &go, 1);  // fails only where the child was killed: then it has ended, as seen later
    ::close(gate_);
    gate_ = -1;
    int error = 0;
    ssize_t n;
    do {
        n = ::read(report_, &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    ::close(report_);
    report_ = -1;
    if (n != static_cast<ssize_t>(sizeof error)) return 0;
    reap();
    return error;
}

void Launcher::cancel() {
    ::close(gate_);
    ::close(report_);
    gate_ = report_ = -1;
    if (child_ > 0) reap();
}

void Launcher::reap() {
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    g_child = -1;  // its number may be another process's from now on
}

std::optional<Ended> Launcher::ended() {
    int status = 0;
    if (child_ <= 0 || ::waitpid(child_, &status, WNOHANG) != child_) return std::nullopt;
    child_ = -1;
    g_child = -1;  // its number may be another process's from now on
    Ended ended;
    if (WIFSIGNALED(status))
        ended.signal = WTERMSIG(status);
    else
        ended.exit_status = WEXITSTATUS(status);
    return ended;
}

int Launcher::last_signal() const { return g_last_signal.load(std::memory_order_relaxed); }
void Launcher::forget_signals() { g_last_signal.store(0, std::memory_order_relaxed); }

}  // namespace fragscope::collector
