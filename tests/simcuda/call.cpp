// begin_call, end_call, cuInit: settings are read at the first call of any function.
#include "call.h"

#include <pthread.h>
#include <time.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "capture.h"
#include "driver.h"

namespace fragscope::sim {

std::atomic<std::uint32_t> driver_state{0};

namespace {

constexpr auto kFunctions = static_cast<std::size_t>(Function::Count);

struct Watched {
    std::atomic<std::uint64_t> calls{0};
    std::uint64_t latency = 0;
    int signal = 0;
    std::vector<Fault> faults;
};

struct Setup {
    Settings settings;
    std::string wrong;  // not empty: cuInit fails
    Watched watched[kFunctions];
};

std::uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

void after_fork_in_child() { driver_state.fetch_or(kForked); }
void at_exit() { driver_state.fetch_or(kDeinitialised); }

Setup* make_setup() {
    auto* setup = new Setup;
    setup->wrong = load_settings(setup->settings);
    if (setup->wrong.empty()) setup->wrong = open_logs(setup->settings.log, setup->settings.ledger);
    if (!setup->wrong.empty()) {
        std::fprintf(stderr, "simulated GPU: %s\n", setup->wrong.c_str());
        return setup;
    }
    const Settings& s = setup->settings;
    for (const Latency& each : s.latencies) {
        setup->watched[static_cast<std::size_t>(each.function)].latency = each.nanoseconds;
    }
    for (const Interruption& each : s.interruptions) {
        setup->watched[static_cast<std::size_t>(each.function)].signal = each.signal;
    }
    for (const Fault& each : s.faults) {
        setup->watched[static_cast<std::size_t>(each.function)].faults.push_back(each);
    }
    if (log_open() || !s.latencies.empty() || !s.faults.empty() || !s.interruptions.empty())
        driver_state.fetch_or(kObserved);
    return setup;
}

// Never destroyed; see driver.h.
Setup& setup() {
    static Setup* const made = make_setup();
    return *made;
}

CUresult initialise() {
    static std::mutex once;
    std::lock_guard<std::mutex> guard(once);
    if (g_driver != nullptr) return CUDA_SUCCESS;
    Setup& s = setup();
    if (!s.wrong.empty()) return CUDA_ERROR_SYSTEM_NOT_READY;
    auto* made = new Driver;
    made->settings = s.settings;
    s.wrong = made->physical.attach(made->settings);
    if (!s.wrong.empty()) {
        std::fprintf(stderr, "simulated GPU: %s\n", s.wrong.c_str());
        delete made;
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    made->addresses.add(made->settings.va_base, made->settings.va_bytes);
    ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
    if (made->settings.deinitialize_at_exit) std::atexit(at_exit);
    g_driver = made;
    driver_state.fetch_or(kInitialised, std::memory_order_release);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult begin_call(Function function) {
    const auto index = static_cast<std::size_t>(function);
    Setup& s = setup();
    const std::uint32_t state = driver_state.load(std::memory_order_acquire);
    if ((state & kDeinitialised) != 0) return CUDA_ERROR_DEINITIALIZED;
    // In a child of fork() CUDA cannot be used, nor initialised again.
    if (!kBeforeInit[index] && ((state & kInitialised) == 0 || (state & kForked) != 0)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if ((state & kCapturing) != 0) note_doubtful(function);
    Watched& watched = s.watched[index];
    if (watched.latency != 0) {
        for (const std::uint64_t end = now() + watched.latency; now() < end;) {
        }
    }
    if (watched.signal != 0) ::raise(watched.signal);
    if (watched.faults.empty()) return CUDA_SUCCESS;
    const std::uint64_t call = watched.calls.fetch_add(1) + 1;
    for (const Fault& fault : watched.faults) {
        if (fault.every ? call % fault.number == 0 : call == fault.number) {
            poison_current_context(fault.error);
            return fault.error;
        }
    }
    return CUDA_SUCCESS;
}

void end_call(Function function, CUresult result) { log_call(kFunctionNames[static_cast<std::size_t>(function)], result); }

CUresult not_supported(Function) { return CUDA_ERROR_NOT_SUPPORTED; }

int reported_driver_version() {
    const Setup& s = setup();
    return s.settings.driver_version == 0 ? kDefaultDriverVersion : s.settings.driver_version;
}

namespace impl {

CUresult cuInit(unsigned int Flags) {
    if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((driver_state.load() & kForked) != 0) return CUDA_ERROR_NOT_INITIALIZED;
    return initialise();
}

CUresult cuDriverGetVersion(int* driverVersion) {
    if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = reported_driver_version();
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
