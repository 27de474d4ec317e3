#include "collector/nvml_pids.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "collector/utf8.h"

namespace fragscope::collector {

namespace {

// PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h, the same on every Linux.
constexpr char kInitialNamespace[] = "pid:[4026531836]";
constexpr std::size_t kMostNameBytes = 64;
constexpr unsigned kMostMappings = 200'000;  // lines that are looked at

std::string link_of(const std::string& path) {
    char text[64];
    const ssize_t length = ::readlink(path.c_str(), text, sizeof text);
    return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : "";
}

// What stands behind `key` in a status file; empty: nothing.
std::string status_field(const std::string& status, const std::string& key) {
    std::istringstream lines(status);
    for (std::string line; std::getline(lines, line);) {
        if (line.compare(0, key.size(), key) != 0) continue;
        const std::size_t begin = line.find_first_not_of(" \t", key.size());
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return file ? text.str() : "";
}

// Field 22 of the stat file; the name in front may hold anything but ends at the last ')'.
std::uint64_t start_time_in(const std::string& stat) {
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return 0;
    std::istringstream rest(stat.substr(name_end + 1));
    std::string field;
    for (int i = 3; i <= 22; ++i) rest >> field;
    return rest ? std::strtoull(field.c_str(), nullptr, 10) : 0;
}

}  // namespace

NvmlPids::NvmlPids(std::string proc) : proc_(std::move(proc)) {
    initial_namespace_ = link_of(proc_ + "/self/ns/pid") == kInitialNamespace;
    // The first of these numbers is that of the namespace for which the file system was mounted, the last
    // this one's.
    const std::string numbers = status_field(contents(proc_ + "/self/status"), "NSpid:");
    own_proc_ = !numbers.empty() && numbers.find_first_of(" \t") == std::string::npos;
}

std::optional<NvmlPids::Seen> NvmlPids::look(std::int64_t pid, bool for_driver) const {
    const std::string folder = fmt::format("{}/{}", proc_, pid);
    const std::string status = contents(folder + "/status");
    if (status.empty()) return std::nullopt;
    Seen seen;
    // A thread's number has an entry too, which names its process.
    seen.process.pid = std::atoll(status_field(status, "Tgid:").c_str());
    if (seen.process.pid <= 0) return std::nullopt;
    seen.process.name = to_utf8(status_field(status, "Name:").substr(0, kMostNameBytes));
    seen.process.start_time = start_time_in(contents(fmt::format("{}/{}/stat", proc_, seen.process.pid)));
    if (!for_driver) return seen;
    std::ifstream maps(folder + "/maps");
    unsigned lines = 0;
    for (std::string line; lines < kMostMappings && std::getline(maps, line); ++lines) {
        seen.driver = Seen::Driver::kNotLoaded;
        if (line.find("/libcuda.so") == std::string::npos) continue;
        seen.driver = Seen::Driver::kLoaded;
        break;
    }
    return seen;
}

NvmlPids::Resolved NvmlPids::resolve(const std::vector<std::int64_t>& pids) const {
    Resolved out;
    out.here.resize(pids.size());
    if (pids.empty()) return out;
    if (!own_proc_ && !initial_namespace_) {
        out.problem =
            "Which processes the library's numbers mean is not known: /proc does not show this PID "
            "namespace.";
        return out;
    }
    std::size_t with_driver = 0;
    for (std::size_t i = 0; i < pids.size(); ++i) {
        const std::optional<Seen> seen = look(pids[i], !initial_namespace_);
        if (seen) out.here[i] = seen->process;
        if (initial_namespace_) continue;
        if (seen && seen->driver == Seen::Driver::kLoaded) ++with_driver;
        if (seen && seen->driver != Seen::Driver::kNotLoaded) continue;
        with_driver = 0;
        break;
    }
    if (!initial_namespace_ && with_driver == 0) {
        std::fill(out.here.begin(), out.here.end(), std::nullopt);
        out.problem =
            "Which processes the library's numbers mean is not known: they are those of another PID "
            "namespace, as far as "
            "can be told from inside of this one.";
    }
    return out;
}

}  // namespace fragscope::collector
