// The machine: whether the shim can be loaded, which driver is found, whether there is room, what stands in
// the way.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "collector/clock.h"
#include "collector/nvml_library.h"
#include "collector/nvml_pids.h"
#include "collector/ring_host.h"
#include "tools/doctor.h"
#include "tools/elf_facts.h"
#include "tools/words.h"

namespace fragscope::tools {

namespace {

std::string file_text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// What somebody else said, to end a sentence with.
std::string last_words(const std::string& text) {
    std::string line = first_line(text);
    if (line.empty() || line.back() != '.') line += '.';
    return line;
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

Finding examine_shim(const std::string& shim) {
    const auto problem = [](std::string says, std::string to_do) {
        return Finding{FindingState::kProblem, "recorder", std::move(says), std::move(to_do)};
    };
    if (shim.empty() || ::access(shim.c_str(), R_OK) != 0)
        return problem(
            fmt::format("The recorder {} cannot be read.", shim.empty() ? "libfragscope.so" : shim),
            "Build or install Fragscope whole, or say where it is with --shim.");
    if (shim.find_first_of(": ") != std::string::npos)
        return problem(
            fmt::format("The recorder's path {} holds a space or colon, at which the loader would cut it.",
                        shim),
            "Copy it elsewhere and use --shim.");
    // Without a session it does nothing but be there.
    const std::optional<ChildOutput> loaded =
        output_of({"/bin/true"}, {"LD_PRELOAD=" + shim, "FRAGSCOPE_SESSION="});
    if (!loaded) return problem("A program with the recorder preloaded did not end in time.", "");
    if (loaded->status != 0 || loaded->text.find(shim) != std::string::npos)
        return problem(
            fmt::format("The loader does not take the recorder {}: {}", shim, last_words(loaded->text)),
            "Build Fragscope on this system, or on one with the same or an older C library.");
    return {FindingState::kOk, "recorder", fmt::format("The recorder {} can be preloaded.", shim), ""};
}

// What a child that loads the library says of it: path, and what `more` finds. Empty: it is not there.
std::string load_elsewhere(
    const std::vector<const char*>& names,
    const std::function<std::string(void*)>& more = [](void*) { return ""; }) {
    const std::optional<ChildOutput> said = output_of_child([&]() -> std::string {
        for (const char* name : names) {
            void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (library == nullptr) continue;
            char folder[4096] = {};
            ::dlinfo(library, RTLD_DI_ORIGIN, folder);
            const std::string path = fmt::format("{}/{}", folder, name);
            char whole[4096];
            return (::realpath(path.c_str(), whole) != nullptr ? whole : path) + more(library);
        }
        return "";
    });
    return said && said->status == 0 ? said->text : "";
}

Finding examine_driver() {
    // Asks for the version only, which neither initialises the driver nor makes a context.
    const std::string driver = load_elsewhere({"libcuda.so.1"}, [](void* library) -> std::string {
        auto* get_version = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
        int version = 0;
        if (get_version == nullptr || get_version(&version) != 0) return ", which does not tell its version";
        return fmt::format(", for CUDA {}.{}", version / 1000, version % 1000 / 10);
    });
    if (driver.empty())
        return {FindingState::kProblem, "driver",
                "The CUDA driver library libcuda.so.1 is not found, or cannot be loaded.",
                "Install the driver; in a container, start it with the NVIDIA container toolkit (--gpus). A "
                "program that "
                "finds the driver in a folder of its own can still be recorded."};
    return {FindingState::kOk, "driver", fmt::format("The CUDA driver is {}.", driver), ""};
}

Finding examine_shared_memory() {
    struct statvfs space {};
    if (::statvfs("/dev/shm", &space) != 0 || ::access("/dev/shm", W_OK) != 0)
        return {FindingState::kProblem, "shared memory",
                fmt::format("/dev/shm cannot be used: {}.", std::strerror(errno)),
                "Mount a tmpfs there that this user may write."};
    const std::uint64_t available = std::uint64_t{space.f_bavail} * space.f_frsize;
    if (available < collector::min_session_bytes())
        return {FindingState::kProblem, "shared memory",
                fmt::format("{} are available in /dev/shm, and a recording needs at least {}.", human_bytes(available),
                            human_bytes(collector::min_session_bytes())),
                "Remove something there, or make it larger (in Docker: --shm-size)."};
    if (available < collector::kDefaultSessionBytes)
        return {FindingState::kNote, "shared memory",
                fmt::format("{} are available in /dev/shm, less than the usual buffer of {}: a smaller one is taken, "
                            "and bursts may "
                            "be lost.",
                            human_bytes(available), human_bytes(collector::kDefaultSessionBytes)),
                "Make it larger (in Docker: --shm-size)."};
    return {FindingState::kOk, "shared memory", fmt::format("{} are available in /dev/shm.", human_bytes(available)), ""};
}

void examine_limits(std::vector<Finding>& out) {
    struct rlimit limit {};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        out.push_back(
            {FindingState::kNote, "address space limit",
             fmt::format(
                 "Address space is limited to {} (ulimit -v): CUDA reserves far more than it uses, and the "
                 "recorder maps its buffer too.",
                 human_bytes(limit.rlim_cur)),
             "Lift it with ulimit -v unlimited."});
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        const bool too_small = limit.rlim_cur < collector::min_session_bytes();
        out.push_back(
            {too_small ? FindingState::kProblem : FindingState::kNote, "file size limit",
             fmt::format("Files may not grow beyond {} (ulimit -f): {}.", human_bytes(limit.rlim_cur),
                         too_small ? "that is less than the shared memory that a recording needs"
                                   : "the buffer and the trace file end there"),
             "Lift it with ulimit -f unlimited."});
    }
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 256)
        out.push_back(
            {FindingState::kNote, "open files limit",
             fmt::format(
                 "Only {} files may be open (ulimit -n): one is held for each process that is recorded; "
                 "beyond them the ends of processes are noticed later.",
                 limit.rlim_cur),
             "Raise it with ulimit -n 1024."});
    const long pidfd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
    if (pidfd >= 0)
        ::close(static_cast<int>(pidfd));
    else
        out.push_back(
            {FindingState::kNote, "processes",
             fmt::format(
                 "pidfd_open is refused here ({}): the ends of processes are noticed by their numbers "
                 "and start times instead.",
                 std::strerror(errno)),
             ""});
}

// The memory limit of the container or service that this runs in; 0: none seen.
std::uint64_t memory_limit() {
    std::uint64_t least = 0;
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        std::string root;
        std::string group;
        std::string file;
        if (line.rfind("0::", 0) == 0) {
            root = "/sys/fs/cgroup";
            group = line.substr(3);
            file = "/memory.max";
        } else if (const std::size_t at = line.find(":memory:"); at != std::string::npos) {
            root = "/sys/fs/cgroup/memory";
            group = line.substr(at + 8);
            file = "/memory.limit_in_bytes";
        } else {
            continue;
        }
        // Each group above counts; in a container the topmost folder is its own.
        for (;; group.erase(group.rfind('/'))) {
            const std::uint64_t bytes = std::strtoull(file_text(root + group + file).c_str(), nullptr, 10);
            // Version 1 says "none" by a number near 2^63.
            if (bytes != 0 && bytes < std::uint64_t{1} << 60 && (least == 0 || bytes < least)) least = bytes;
            if (group.find('/') == std::string::npos) break;
        }
    }
    return least;
}

void examine_container(std::vector<Finding>& out) {
    if (const std::uint64_t limit = memory_limit(); limit != 0) {
        const bool tight = limit < 8 * collector::kDefaultSessionBytes;
        out.push_back(
            {tight ? FindingState::kNote : FindingState::kOk, "memory limit",
             fmt::format("This runs under a memory limit of {} (cgroup), to which the buffer of {} counts.",
                         human_bytes(limit), human_bytes(collector::kDefaultSessionBytes)),
             tight ? "Use a smaller --buffer if the program needs nearly all of it." : ""});
    }
    const std::string yama = first_line(file_text("/proc/sys/kernel/yama/ptrace_scope"));
    out.push_back(
        {FindingState::kOk, "tracing rights",
         fmt::format("Recording uses no ptrace and no perf events: {} them.",
                     yama.empty() || yama == "0" ? "it would not matter if this machine restricted"
                                                 : "it does not matter that this machine restricts"),
         ""});
}

Finding examine_clock() {
    if (collector::best_clock() == wire::Clock::kTsc)
        return {FindingState::kOk, "clock",
                "Call times are read from the processor's invariant time-stamp counter.", ""};
    return {FindingState::kNote, "clock",
            "The processor's time-stamp counter does not run evenly here, as the kernel says: times are "
            "asked of the kernel, "
            "which makes each recorded call some tens of nanoseconds slower.",
            ""};
}

void examine_interposers(std::vector<Finding>& out) {
    const std::string preload = variable("LD_PRELOAD");
    for (std::size_t begin = 0; begin < preload.size();) {
        const std::size_t end = std::min(preload.find_first_of(": ", begin), preload.size());
        const std::string library = preload.substr(begin, end - begin);
        begin = end + 1;
        if (library.empty()) continue;
        const ElfFacts facts = read_elf_facts(library, {"dlsym", "cuGetProcAddress*", "cuMem*"});
        const bool is_path = library.find('/') != std::string::npos;
        std::string says = fmt::format("LD_PRELOAD holds {} already", library);
        if (!facts.is_elf && is_path)
            says += ", which is no library that can be read.";
        else if (facts.defines.empty())
            says += is_path ? "; it exports neither dlsym nor functions of the driver."
                            : "; what it exports was not looked at.";
        else
            says += fmt::format(
                "; it exports {}{}: it stands between the program and the driver too. The recorder stands "
                "before it, and "
                "what it does to a call is recorded as the driver's doing.",
                facts.defines.front(),
                facts.defines.size() > 1 ? fmt::format(" and {} more such", facts.defines.size() - 1) : "");
        out.push_back({FindingState::kNote, "other interposers", std::move(says),
                       facts.defines.empty() ? "" : "Record once without it where it can be left out."});
    }
    if (!variable("LD_AUDIT").empty())
        out.push_back(
            {FindingState::kNote, "other interposers",
             fmt::format("LD_AUDIT is set ({}): the loader asks those libraries about every binding.",
                         variable("LD_AUDIT")),
             ""});
    if (!variable("NVTX_INJECTION64_PATH").empty())
        out.push_back(
            {FindingState::kNote, "NVTX",
             fmt::format(
                 "NVTX_INJECTION64_PATH is set ({}): the recorder takes its place and passes the program's "
                 "calls on to it.",
                 variable("NVTX_INJECTION64_PATH")),
             "Use --no-nvtx to leave it alone."});
    if (!variable("FRAGSCOPE_SESSION").empty())
        out.push_back({FindingState::kNote, "other interposers",
                       "This runs inside another recording: the inner one records the program, the outer one "
                       "will not see it.",
                       ""});
}

// Asks the management library once, as a recording does. A child asks: see load_elsewhere.
Finding examine_management() {
    const auto without = [](FindingState state, const std::string& why) {
        return Finding{state, "NVML",
                       fmt::format("{} A recording goes on without what NVML says that each device and process holds.", why),
                       ""};
    };
    const std::string path = load_elsewhere({"libnvidia-ml.so.1"});
    if (path.empty()) return without(FindingState::kOk, "NVML is not found.");
    // The first line is what is there, the second what is not told.
    const std::optional<ChildOutput> said = output_of_child([]() -> std::string {
        collector::NvmlLibrary::Opened opened = collector::NvmlLibrary::open("libnvidia-ml.so.1");
        if (opened.library == nullptr) return "\n" + upper_first(opened.problem) + ".";
        if (const std::string problem = opened.library->start(); !problem.empty()) return "\n" + problem;
        trace::Readings readings;
        opened.library->read(readings, true);
        std::vector<std::int64_t> pids;
        for (const trace::DeviceReading& device : readings.devices()) {
            for (const trace::ProcessReading& process : device.processes()) pids.push_back(process.pid());
        }
        const std::string unresolved = collector::NvmlPids().resolve(pids).problem;
        return fmt::format("of driver {}, {} and {}\n{}{}{}",
                           readings.driver_version().empty() ? "not known" : readings.driver_version(),
                           counted(static_cast<std::uint64_t>(readings.devices_size()), "device"),
                           counted(pids.size(), "process that computes", "processes that compute"), readings.problem(),
                           readings.problem().empty() || unresolved.empty() ? "" : " ", unresolved);
    });
    if (!said) return without(FindingState::kNote, fmt::format("NVML is {}, and does not answer in time.", path));
    const std::string there = first_line(said->text);
    const std::string untold = said->text.substr(std::min(there.size() + 1, said->text.size()));
    if (there.empty()) return without(FindingState::kNote, fmt::format("NVML is {}. {}", path, untold));
    return {untold.empty() ? FindingState::kOk : FindingState::kNote, "NVML",
            fmt::format("NVML is {}, {}; a recording asks it now and then how much each holds.{}{}", path, there,
                        untold.empty() ? "" : " ", untold),
            ""};
}

}  // namespace

namespace {

// Layouts are known of CUDA 13.0's, which the shim checks by its version when it has it.
Finding examine_cupti() {
    const std::string cupti = load_elsewhere({"libcupti.so.13", "libcupti.so.12", "libcupti.so"});
    std::string text = cupti.empty() ? "CUPTI is not found in the library path; `run --cupti=on` then looks beside the "
                                       "program's CUDA runtime."
                                     : fmt::format("CUPTI is {}; recording uses it with `run --cupti=on` (or auto) only, and "
                                                   "only its version 13.0.",
                                                   cupti);
    for (const char* variable : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
        const char* value = std::getenv(variable);
        if (value != nullptr && *value != '\0')
            text += fmt::format(" {} is set: another tool may want it, so it would not be used here.", variable);
    }
    return {FindingState::kOk, "CUPTI", text, ""};
}

}  // namespace

std::vector<Finding> examine_machine(const std::string& shim) {
    std::vector<Finding> out;
    out.push_back(examine_shim(shim));
    out.push_back(examine_driver());
    out.push_back(examine_shared_memory());
    examine_limits(out);
    examine_container(out);
    out.push_back(examine_clock());
    examine_interposers(out);
    out.push_back(examine_management());
    out.push_back(examine_cupti());
    return out;
}

}  // namespace fragscope::tools
