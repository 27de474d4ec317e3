// The shim inside of a program, not preloaded, so that all of it but its dlsym can live under the sanitizers:
// its wrappers are the program's own, in front of the simulated driver, and the collector is a thread of the
// same program. Threads use memory at random (soak/steps.h), children are forked, calls fail.
//   shim_test exact      all arrives: the trace is the simulated driver's ledger, event for event
//   shim_test losses     rings far too small: what arrived and what is counted as lost are all calls, kind by
//   kind shim_test closing    the collector goes away in the middle of it
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "analysis/read/trace_reader.h"
#include "collector/drain.h"
#include "collector/ring_host.h"
#include "collector/sink.h"
#include "tests/soak/ledger.h"
#include "tests/soak/match.h"
#include "tests/soak/steps.h"

using namespace fragscope;

namespace {

constexpr unsigned kThreads = 6;

int failures = 0;
void check(bool good, const std::string& what) {
    if (good) return;
    ++failures;
    fmt::print(stderr, "shim_test: {}\n", what);
}

struct Folder {
    Folder() {
        char name[] = "/tmp/fragscope-shim-XXXXXX";
        if (mkdtemp(name) == nullptr) std::exit(99);
        path = name;
    }
    ~Folder() {
        for (const char* file : {"ledger", "log", "trace"}) unlink((path + "/" + file).c_str());
        rmdir(path.c_str());
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string path;
};

// The collector as the launcher runs it, in a thread.
class Collector {
  public:
    explicit Collector(const collector::SessionOptions& options, const std::string& path)
        : created_(collector::RingHost::create(options)),
          file_(collector::FileSink::open(path, collector::Existing::kReplace)) {
        if (!created_.host || !file_.sink) std::exit(99);
        writer_ = std::make_unique<collector::TraceWriter>(*file_.sink);
        writer_->begin({});
        drain_ = std::make_unique<collector::Drain>(*created_.host, *writer_,
                                                    collector::read_clock_pair(created_.host->clock()));
        setenv(wire::kSessionVariable, created_.host->name().c_str(), 1);
    }
    collector::RingHost& host() { return *created_.host; }

    void start(useconds_t pause) {
        thread_ = std::thread([this, pause] {
            while (!stop_.load()) {
                drain_->poll();
                usleep(pause);
            }
        });
    }
    analysis::Trace finish(const std::string& path) {
        stop_.store(true);
        thread_.join();
        drain_->finish();
        writer_->end({});
        file_.sink->finish();
        analysis::ReadResult read = analysis::read_trace(path);
        check(read.trace.has_value(), read.error);
        return read.trace ? std::move(*read.trace) : analysis::Trace{};
    }

  private:
    collector::RingHost::Created created_;
    collector::FileSink::Opened file_;
    std::unique_ptr<collector::TraceWriter> writer_;
    std::unique_ptr<collector::Drain> drain_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

template <typename Midway>
void work(int steps, Midway&& midway) {
    soak::Shared shared;
    check(shared.start(), "the simulated driver does not start");
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            soak::Steps mine(shared, i, false);
            for (int step = 0; step < steps; ++step) mine.step();
            mine.finish();
        });
    soak::Steps first(shared, 0, true);
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) midway();
        first.step();
    }
    first.finish();
    for (std::thread& thread : threads) thread.join();
    shared.stop();
}

void exact(const Folder& folder, const analysis::Trace& trace) {
    std::vector<soak::Line> lines;
    const std::string wrong = soak::read_ledger(folder.path + "/ledger", lines);
    check(wrong.empty(), wrong);
    soak::Result result = soak::match(trace, lines);
    soak::replay(lines, result);
    for (const std::string& problem : result.problems) check(false, problem);
    check(result.whole_images == 1 && result.under_way.empty(),
          "the process did not come to its end in the trace");
    check(result.records > 1000, "hardly anything was recorded");
    fmt::print("{} records are {} lines of the ledger\n", result.records, lines.size());
}

// Calls by function as the simulated driver logged them, against records that arrived and records that were
// counted.
void losses(const Folder& folder, const analysis::Trace& trace, const wire::ProcessSlot& slot) {
    using wire::Kind;
    std::map<std::string, std::uint64_t> calls;
    std::ifstream log(folder.path + "/log");
    for (std::string line; std::getline(log, line);) {
        std::istringstream words(line);
        int pid = 0, thread = 0;
        std::string what, name;
        words >> pid >> thread >> what >> name;
        if (pid == getpid() && what == "call") ++calls[name];
    }
    std::map<Kind, std::uint64_t> arrived;
    for (const analysis::Event& event : trace.events.at(0))
        if (!event.has(wire::kContinued)) ++arrived[event.kind];
    std::uint64_t all_lost = 0;
    const auto compare = [&](Kind kind, std::initializer_list<const char*> names) {
        std::uint64_t made = 0;
        for (const char* name : names) made += calls[name];
        const std::uint64_t lost = slot.lost_kinds[static_cast<std::uint32_t>(kind)].load();
        all_lost += lost;
        check(made != 0 && made == arrived[kind] + lost,
              fmt::format("{}: {} calls, {} arrived, {} counted as lost", *names.begin(), made, arrived[kind],
                          lost));
    };
    compare(Kind::kLinearAcquired, {"cuMemAlloc_v2"});
    compare(Kind::kLinearReleased, {"cuMemFree_v2"});
    compare(Kind::kPitchAcquired, {"cuMemAllocPitch_v2"});
    compare(Kind::kManagedAcquired, {"cuMemAllocManaged"});
    compare(Kind::kHostReleased, {"cuMemFreeHost"});
    compare(Kind::kReserved, {"cuMemAddressReserve"});
    compare(Kind::kHandleCreated, {"cuMemCreate"});
    compare(Kind::kHandleReleased, {"cuMemRelease"});
    compare(Kind::kMapped, {"cuMemMap"});
    compare(Kind::kUnmapped, {"cuMemUnmap"});
    compare(Kind::kPoolAcquired, {"cuMemAllocAsync", "cuMemAllocFromPoolAsync"});
    compare(Kind::kPoolReleased, {"cuMemFreeAsync"});
    check(all_lost > 100, "nothing to speak of was lost");
    fmt::print("{} records were lost, and each is counted\n", all_lost);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view mode = argc > 1 ? argv[1] : "";
    const int steps = argc > 2 ? std::atoi(argv[2]) : 400;
    const Folder folder;
    setenv("FRAGSCOPE_SIM_LEDGER", (folder.path + "/ledger").c_str(), 1);
    if (mode == "losses") setenv("FRAGSCOPE_SIM_LOG", (folder.path + "/log").c_str(), 1);
    setenv("FRAGSCOPE_SIM_FAULT_cuMemAlloc_v2", "2@every:97", 1);
    setenv("FRAGSCOPE_SIM_FAULT_cuMemMap", "1@every:51", 1);

    collector::SessionOptions options;
    options.clock = wire::Clock::kTsc;
    options.stack_failures = true;
    options.stack_bytes = 1 << 16;
    options.record_calls = true;
    options.sample_ns = 1'000'000;
    options.sample_bytes = 1 << 20;
    options.wait_ns = mode == "exact" ? 10'000'000'000 : 0;
    if (mode != "exact") options.bytes = collector::min_session_bytes();
    Collector collector(options, folder.path + "/trace");
    // Nobody empties the rings for the first half where much is to be lost.
    if (mode != "losses") collector.start(1'000);
    work(steps, [&] {
        if (mode == "losses") collector.start(1'000);
        if (mode == "closing") collector.host().close();
    });
    const analysis::Trace trace = collector.finish(folder.path + "/trace");
    if (mode == "exact")
        exact(folder, trace);
    else if (mode == "losses")
        losses(folder, trace, collector.host().process_slot(0));
    else
        check(!trace.events.empty() && !trace.events[0].empty(),
              "nothing was recorded before the collector went away");
    return failures == 0 ? 0 : 1;
}
