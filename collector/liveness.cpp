#include "collector/liveness.h"

#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace fragscope::collector {

namespace {

// Fields of /proc/<pid>/stat from the third on: the second one, the name, may hold anything but ends at the
// last ')'.
std::vector<std::string> stat_fields(std::int64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    if (!std::getline(file, line, '\0')) return {};
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return {};
    std::istringstream rest(line.substr(name_end + 1));
    std::vector<std::string> fields;
    for (std::string field; rest >> field;) fields.push_back(field);
    return fields;
}

std::uint64_t pid_namespace_of(const std::string& process) {
    struct stat status {};
    return ::stat(("/proc/" + process + "/ns/pid").c_str(), &status) == 0 ? status.st_ino : 0;
}

// The number in this namespace of the process that another namespace calls `pid`; 0: not found.
std::int64_t find_in_namespace(std::int32_t pid, std::uint64_t pid_namespace) {
    DIR* listing = ::opendir("/proc");
    if (listing == nullptr) return 0;
    std::int64_t found = 0;
    while (const dirent* entry = ::readdir(listing)) {
        const std::string name = entry->d_name;
        if (name.empty() || name[0] < '1' || name[0] > '9' || pid_namespace_of(name) != pid_namespace)
            continue;
        std::ifstream status("/proc/" + name + "/status");
        for (std::string line; std::getline(status, line);) {
            if (line.rfind("NSpid:", 0) != 0) continue;
            const std::size_t last = line.find_last_of(" \t");
            if (last != std::string::npos && std::atoll(line.c_str() + last + 1) == pid)
                found = std::atoll(name.c_str());
            break;
        }
        if (found != 0) break;
    }
    ::closedir(listing);
    return found;
}

}  // namespace

std::uint64_t process_start_time(std::int64_t pid) {
    const std::vector<std::string> fields = stat_fields(pid);
    return fields.size() > 19 ? std::strtoull(fields[19].c_str(), nullptr, 10) : 0;
}

std::int64_t parent_of(std::int64_t pid) {
    const std::vector<std::string> fields = stat_fields(pid);
    return fields.size() > 1 ? std::atoll(fields[1].c_str()) : 0;
}

std::uint64_t own_pid_namespace() { return pid_namespace_of("self"); }

Liveness::Liveness(std::int32_t pid, std::uint64_t start_time, std::uint64_t pid_namespace)
    : start_time_(start_time) {
    same_namespace_ = pid_namespace == 0 || pid_namespace == own_pid_namespace();
    pid_ = same_namespace_ ? pid : find_in_namespace(pid, pid_namespace);
    if (pid_ <= 0) {
        pid_ = 0;
        last_ = same_namespace_ ? State::kDead : State::kUnknown;
        return;
    }
    pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid_), 0));
    last_ = pidfd_ < 0 && errno == ESRCH ? State::kDead : State::kAlive;
    // Looked at after the number was pinned: a mismatch now means that it was another process's from the
    // start.
    const std::uint64_t seen = process_start_time(pid_);
    if (start_time_ != 0 && seen != 0 && seen != start_time_) last_ = State::kDead;
}

Liveness::~Liveness() {
    if (pidfd_ >= 0) ::close(pidfd_);
}

Liveness::Liveness(Liveness&& other) noexcept
    : pid_(other.pid_),
      same_namespace_(other.same_namespace_),
      pidfd_(std::exchange(other.pidfd_, -1)),
      start_time_(other.start_time_),
      last_(other.last_) {}

Liveness& Liveness::operator=(Liveness&& other) noexcept {
    pid_ = other.pid_;
    same_namespace_ = other.same_namespace_;
    std::swap(pidfd_, other.pidfd_);
    start_time_ = other.start_time_;
    last_ = other.last_;
    return *this;
}

Liveness::State Liveness::state() {
    if (last_ != State::kAlive) return last_;
    if (pidfd_ >= 0) {
        struct pollfd ended {
            pidfd_, POLLIN, 0
        };
        if (::poll(&ended, 1, 0) == 1) last_ = State::kDead;
        return last_;
    }
    // No pidfd (too many open files, an old kernel): the number and the start time have to do.
    if (::kill(static_cast<pid_t>(pid_), 0) != 0 && errno == ESRCH) last_ = State::kDead;
    const std::uint64_t seen = process_start_time(pid_);
    if (start_time_ != 0 && seen != 0 && seen != start_time_) last_ = State::kDead;
    return last_;
}

bool Liveness::may_have_thread(std::int32_t thread) const {
    if (!same_namespace_ || pid_ == 0 || last_ != State::kAlive) return true;
    const std::string path = fmt::format("/proc/{}/task/{}", pid_, thread);
    return ::access(path.c_str(), F_OK) == 0 || errno != ENOENT;
}

}  // namespace fragscope::collector
