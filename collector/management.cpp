#include "collector/management.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collector/clock.h"
#include "collector/nvml_library.h"
#include "collector/nvml_pids.h"

namespace fragscope::collector {

namespace {

constexpr std::uint64_t kFirstGapNs = 20'000'000;           // doubles up to the period
constexpr std::uint64_t kLeastGapNs = 20'000'000;           // between two questions, whoever wants them
constexpr std::size_t kMostWaiting = 256;                   // readings that nobody takes
constexpr std::size_t kMostBytes = std::size_t{512} << 10;  // a chunk of the trace holds twice as much

void add_sentence(trace::Readings& readings, const std::string& sentence) {
    if (sentence.empty()) return;
    readings.set_problem(readings.problem().empty() ? sentence : readings.problem() + " " + sentence);
}

// Fills in which processes here the library's numbers mean.
void name_processes(const NvmlPids& pids, Management::Taken& taken) {
    trace::Readings& readings = taken.readings;
    std::vector<std::int64_t> numbers;
    for (const trace::DeviceReading& device : readings.devices()) {
        for (const trace::ProcessReading& process : device.processes()) numbers.push_back(process.pid());
    }
    const NvmlPids::Resolved resolved = pids.resolve(numbers);
    std::size_t next = 0;
    for (trace::DeviceReading& device : *readings.mutable_devices()) {
        for (trace::ProcessReading& process : *device.mutable_processes()) {
            const std::optional<ProcessHere>& here = resolved.here[next++];
            taken.start_times.push_back(here ? here->start_time : 0);
            if (!here) continue;
            process.set_pid_here(here->pid);
            process.set_name(here->name);
        }
    }
    add_sentence(readings, resolved.problem);
}

// Where there are more processes than a chunk can hold, the last devices' lists are not told.
void cut_to_a_chunk(Management::Taken& taken) {
    trace::Readings& readings = taken.readings;
    bool cut = false;
    for (int i = readings.devices_size(); i-- > 0 && readings.ByteSizeLong() > kMostBytes;) {
        trace::DeviceReading& device = *readings.mutable_devices(i);
        if (device.processes().empty()) continue;
        cut = true;
        taken.start_times.resize(taken.start_times.size() -
                                 static_cast<std::size_t>(device.processes_size()));
        device.clear_processes();
        device.set_processes_known(false);
    }
    if (cut) add_sentence(readings, "There were too many processes to write them all down.");
}

// The thread's own: asks, and knows what was asked before.
class Asker {
  public:
    explicit Asker(NvmlLibrary& library) : library_(library) {}

    // Nothing where there is no news: a library that cannot be initialised is tried again each time, and says
    // so once.
    std::optional<Management::Taken> ask() {
        Management::Taken taken;
        trace::Readings& readings = taken.readings;
        readings.set_time_ns(monotonic_ns());
        if (!running_) {
            const std::string problem = library_.start();
            if (running_ = problem.empty(); !running_) {
                if (problem == last_problem_) return std::nullopt;
                readings.set_problem(last_problem_ = problem);
                readings.set_duration_ns(monotonic_ns() - readings.time_ns());
                return taken;
            }
            readings.set_time_ns(monotonic_ns());
        }
        library_.read(readings, std::exchange(first_, false));
        readings.set_duration_ns(monotonic_ns() - readings.time_ns());
        complete(pids_, taken);
        return taken;
    }

  private:
    NvmlLibrary& library_;
    NvmlPids pids_;
    bool running_ = false;
    bool first_ = true;
    std::string last_problem_;
};

}  // namespace

void complete(const NvmlPids& pids, Management::Taken& taken) {
    name_processes(pids, taken);
    cut_to_a_chunk(taken);
}

struct Management::Shared {
    std::uint64_t period_ns = 0;
    std::unique_ptr<NvmlLibrary> library;  // the thread's

    std::mutex mutex;  // of all below
    std::condition_variable wake;
    std::condition_variable answered;
    bool wanted = false;
    bool leave = false;
    bool left = false;
    std::vector<Taken> taken;
};

Management::Management(std::uint64_t period_ns, const std::string& library) {
    if (period_ns == 0) {
        state_ = "off";
        return;
    }
    NvmlLibrary::Opened opened = NvmlLibrary::open(library);
    if (opened.library == nullptr) {
        state_ = opened.problem;
        return;
    }
    state_ = "on";
    shared_ = std::make_shared<Shared>();
    shared_->period_ns = period_ns;
    shared_->library = std::move(opened.library);
}

Management::~Management() {
    if (shared_ == nullptr) return;
    const std::lock_guard lock(shared_->mutex);
    shared_->leave = true;
    shared_->wake.notify_all();
}

void Management::start() {
    if (shared_ == nullptr || started_) return;
    started_ = true;
    // Signals are for the thread that started the program.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(&Management::work, shared_).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Management::ask() {
    if (shared_ == nullptr) return;
    const std::lock_guard lock(shared_->mutex);
    shared_->wanted = true;
    shared_->wake.notify_all();
}

std::vector<Management::Taken> Management::take() {
    if (shared_ == nullptr) return {};
    const std::lock_guard lock(shared_->mutex);
    return std::exchange(shared_->taken, {});
}

void Management::finish(std::uint64_t wait_ns) {
    if (shared_ == nullptr || !started_) return;
    const std::uint64_t asked = monotonic_ns();
    std::unique_lock lock(shared_->mutex);
    shared_->leave = true;
    shared_->wake.notify_all();
    if (shared_->answered.wait_for(lock, std::chrono::nanoseconds(wait_ns), [this] { return shared_->left; }))
        return;
    Taken& silent = shared_->taken.emplace_back();
    silent.readings.set_time_ns(asked);
    silent.readings.set_duration_ns(monotonic_ns() - asked);
    silent.readings.set_problem(
        fmt::format("The management library had not answered within {} ms when the recording ended.",
                    wait_ns / 1'000'000));
}

void Management::work(const std::shared_ptr<Shared>& shared) {
    Asker asker(*shared->library);
    std::uint64_t gap_ns = std::min(kFirstGapNs, shared->period_ns);
    std::uint64_t missed = 0;
    for (bool last = false;;) {
        std::optional<Taken> taken = asker.ask();
        std::unique_lock lock(shared->mutex);
        if (taken && shared->taken.size() >= kMostWaiting) {
            ++missed;
        } else if (taken) {
            if (std::exchange(missed, 0) != 0)
                add_sentence(taken->readings, "Readings before this one are missing: nobody took them.");
            shared->taken.push_back(std::move(*taken));
        }
        // The last question is asked after the last wish, so that it shows the devices as they were left.
        if (last) {
            shared->left = true;
            shared->answered.notify_all();
            return;
        }
        const auto wait = [&](std::uint64_t ns, auto done) {
            shared->wake.wait_for(lock, std::chrono::nanoseconds(ns), done);
        };
        const std::uint64_t least = std::min(kLeastGapNs, gap_ns);
        wait(least, [&] { return shared->leave; });
        wait(gap_ns - least, [&] { return shared->leave || shared->wanted; });
        shared->wanted = false;
        gap_ns = std::min(gap_ns * 2, shared->period_ns);
        last = shared->leave;
    }
}

}  // namespace fragscope::collector
