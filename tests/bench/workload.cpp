// See workload.h.
#include "tests/bench/workload.h"

#include <array>
#include <cmath>
#include <random>
#include <unordered_map>

namespace fragscope::bench {
namespace {

using wire::Kind;

// The shim's numbers are its own; here they only have to differ.
enum Function : std::uint16_t { kAlloc, kFree, kCreate, kRelease, kMap, kUnmap, kReserve, kInfo };
constexpr std::array<const char*, 8> kNames = {"cuMemAlloc_v2",       "cuMemFree_v2",   "cuMemCreate",
                                               "cuMemRelease",        "cuMemMap",       "cuMemUnmap",
                                               "cuMemAddressReserve", "cuMemGetInfo_v2"};

constexpr std::uint64_t kContext = 0x55d0c0ffee00;
constexpr std::uint64_t kFirstAddress = 0x7f0000000000;
constexpr std::uint64_t kStartNs = 1'000'000'000'000;
constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

// Only the engine of <random> gives the same numbers everywhere; what is made of them is ours.
class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }
    double unit() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }
    double exponential(double mean) { return -mean * std::log1p(-unit()); }
    // Around `middle`, with a long tail.
    double skewed(double middle) {
        double sum = 0;
        for (int i = 0; i < 4; ++i) sum += unit();
        return middle * std::exp((sum - 2) * 1.2);
    }

  private:
    std::mt19937_64 engine_;
};

// Addresses for blocks: a released place is used again for the next block of the same size.
class Places {
  public:
    explicit Places(std::uint64_t first) : next_(first) {}
    std::uint64_t take(std::uint64_t bytes) {
        std::vector<std::uint64_t>& left = left_[bytes];
        if (!left.empty()) {
            const std::uint64_t at = left.back();
            left.pop_back();
            return at;
        }
        const std::uint64_t at = next_;
        next_ += bytes;
        return at;
    }
    void give(std::uint64_t at, std::uint64_t bytes) { left_[bytes].push_back(at); }

  private:
    std::uint64_t next_;
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> left_;
};

class Recorder {
  public:
    Recorder(std::size_t events, std::uint64_t seed) : random(seed) { rows.reserve(events + 8); }

    collector::EventRow& add(Kind kind, Function function, double usual_ns) {
        collector::EventRow row;
        row.sequence = rows.size() + 1;
        now_ += static_cast<std::uint64_t>(random.exponential(2500)) + 60;
        row.start_ns = now_;
        row.duration_ns = static_cast<std::uint64_t>(random.skewed(usual_ns));
        row.kind = kind;
        row.function = function;
        row.device = 0;
        row.thread = random.below(8) == 0 ? 4243 : 4242;
        row.stack = static_cast<std::uint32_t>(1 + random.below(64));
        rows.push_back(row);
        return rows.back();
    }
    void acquire(std::uint64_t address, std::uint64_t bytes) {
        collector::EventRow& row = add(Kind::kLinearAcquired, kAlloc, 1800);
        row.address = address;
        row.bytes = bytes;
        row.object = kContext;
    }
    void release(std::uint64_t address) {
        collector::EventRow& row = add(Kind::kLinearReleased, kFree, 1200);
        row.address = address;
        row.object = kContext;
    }

    Rows rows;
    Random random;

  private:
    std::uint64_t now_ = kStartNs;
};

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

// Room for a block: at most an eighth more than it needs, so that places of few sizes are used again and
// again.
std::uint64_t place_bytes(std::uint64_t bytes) {
    std::uint64_t step = kBlock;
    while (step * 16 <= bytes) step *= 2;
    return (bytes + step - 1) / step * step;
}

struct Live {
    std::uint64_t address;
    std::uint64_t bytes;  // of its place
};

}  // namespace

Rows random_pool(std::size_t events, std::uint64_t seed) {
    constexpr std::size_t kLive = 4000;
    Recorder recorder(events, seed);
    Random& random = recorder.random;
    Places places(kFirstAddress);
    std::vector<Live> live;
    while (recorder.rows.size() < events) {
        const bool acquire = live.empty() || random.below(2 * kLive) >= live.size();
        if (acquire) {
            const auto bytes =
                static_cast<std::uint64_t>(512 * std::exp(random.unit() * random.unit() * 11.78));
            live.push_back({places.take(place_bytes(bytes)), place_bytes(bytes)});
            recorder.acquire(live.back().address, bytes);
        } else {
            Live& chosen = live[random.below(live.size())];
            recorder.release(chosen.address);
            places.give(chosen.address, chosen.bytes);
            chosen = live.back();
            live.pop_back();
        }
    }
    return std::move(recorder.rows);
}

Rows repeating_iterations(std::size_t events, std::uint64_t seed) {
    constexpr std::size_t kBlocks = 600;
    Recorder recorder(events, seed);
    Random& random = recorder.random;
    std::vector<Live> blocks;
    std::vector<std::size_t> order;
    std::uint64_t at = kFirstAddress;
    for (std::size_t i = 0; i < kBlocks; ++i) {
        const auto bytes = rounded(static_cast<std::uint64_t>(512 * std::exp(random.unit() * 10)));
        blocks.push_back({at, bytes});
        at += bytes;
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(random.below(i + 1)), i);
    }
    while (recorder.rows.size() < events) {
        for (std::size_t i = 0; i < kBlocks && recorder.rows.size() < events; ++i) {
            recorder.acquire(blocks[i].address, blocks[i].bytes);
        }
        for (std::size_t i = 0; i < kBlocks && recorder.rows.size() < events; ++i) {
            recorder.release(blocks[order[i]].address);
        }
    }
    return std::move(recorder.rows);
}

Rows virtual_pages(std::size_t events, std::uint64_t seed) {
    constexpr std::size_t kPages = 16384;  // of address space
    constexpr std::size_t kMapped = 8192;  // at most
    Recorder recorder(events, seed);
    Random& random = recorder.random;
    collector::EventRow& reserve = recorder.add(Kind::kReserved, kReserve, 3000);
    reserve.address = kFirstAddress;
    reserve.bytes = kPages * kPage;
    std::vector<std::uint64_t> unused;
    for (std::size_t i = 0; i < kPages; ++i) unused.push_back(kFirstAddress + i * kPage);
    struct Mapped {
        std::uint64_t address;
        std::uint64_t handle;
    };
    std::vector<Mapped> mapped;
    std::uint64_t next_handle = 0x5600000000;
    while (recorder.rows.size() + 2 <= events) {
        if (mapped.empty() || random.below(2 * kMapped) >= mapped.size()) {
            std::swap(unused[random.below(unused.size())], unused.back());
            mapped.push_back({unused.back(), next_handle += 0x40});
            unused.pop_back();
            collector::EventRow& create = recorder.add(Kind::kHandleCreated, kCreate, 9000);
            create.bytes = kPage;
            create.object = mapped.back().handle;
            create.extra = wire::pack_location(1, 0, 0);
            collector::EventRow& map = recorder.add(Kind::kMapped, kMap, 1500);
            map.address = mapped.back().address;
            map.bytes = kPage;
            map.object = mapped.back().handle;
        } else {
            Mapped& chosen = mapped[random.below(mapped.size())];
            collector::EventRow& unmap = recorder.add(Kind::kUnmapped, kUnmap, 1500);
            unmap.address = chosen.address;
            unmap.bytes = kPage;
            recorder.add(Kind::kHandleReleased, kRelease, 4000).object = chosen.handle;
            unused.push_back(chosen.address);
            chosen = mapped.back();
            mapped.pop_back();
        }
    }
    return std::move(recorder.rows);
}

void add_failure(Rows& rows) {
    std::uint64_t live = 0;
    std::unordered_map<std::uint64_t, std::uint64_t> blocks;
    for (const collector::EventRow& row : rows) {
        if (row.kind == Kind::kLinearAcquired) live += blocks[row.address] = row.bytes;
        if (row.kind == Kind::kLinearReleased) live -= blocks[row.address];
    }
    collector::EventRow failed = rows.back();
    failed.sequence += 1;
    failed.start_ns += 5000;
    failed.kind = Kind::kLinearAcquired;
    failed.function = kAlloc;
    failed.result = 2;  // CUDA_ERROR_OUT_OF_MEMORY
    failed.address = 0;
    failed.bytes = kDeviceBytes;
    failed.object = kContext;
    rows.push_back(failed);
    collector::EventRow info = failed;
    info.sequence += 1;
    info.kind = Kind::kDeviceMemory;
    info.function = kInfo;
    info.result = 0;
    info.flags = wire::kByShim | wire::kSnapshot;
    info.address = kDeviceBytes - live - (std::uint64_t{500} << 20);
    info.bytes = kDeviceBytes;
    rows.push_back(info);
    collector::EventRow end = info;
    end.sequence += 1;
    end.kind = Kind::kFailureSnapshotEnd;
    end.address = end.bytes = 0;
    end.object = failed.sequence;
    rows.push_back(end);
}

void write_trace(const Rows& rows, collector::Sink& sink) {
    collector::TraceWriter writer(sink);
    trace::Session session;
    session.set_collector_version("benchmark");
    session.set_start_ns(kStartNs);
    session.set_clock("monotonic");
    writer.begin(session);
    trace::Process process;
    process.set_index(0);
    process.set_pid(4242);
    process.set_executable("benchmark");
    process.set_environment_complete(true);
    process.set_driver_version(13000);
    trace::Device& device = *process.add_devices();
    device.set_ordinal(0);
    device.set_uuid("0123456789abcdef");
    device.set_name("Benchmark device");
    device.set_capacity_bytes(kDeviceBytes);
    device.set_minimum_granularity_bytes(kPage);
    device.set_recommended_granularity_bytes(kPage);
    writer.process(process);
    for (std::size_t i = 0; i < kNames.size(); ++i)
        writer.name_function(0, static_cast<std::uint16_t>(i), kNames[i]);
    for (const collector::EventRow& row : rows) writer.event(0, row);
    if (!rows.empty()) writer.set_complete_below(0, rows.back().sequence + 1);
    writer.flush_all();
    process.set_ended_how("exit 1");
    writer.process(process);
    trace::Loss loss;
    loss.set_acquisitions(0);
    loss.set_releases(0);
    loss.set_others(0);
    loss.set_acquired_bytes(0);
    writer.loss(loss);
    trace::SessionEnd end;
    end.set_end_ns(rows.empty() ? kStartNs : rows.back().start_ns + 1'000'000);
    end.set_reason("finished");
    end.set_processes(1);
    writer.end(end);
}

}  // namespace fragscope::bench
