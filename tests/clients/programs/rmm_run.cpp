// A random program of allocations through RAPIDS RMM's own resources, which logs itself by RMM's logging adaptor.
//
//   rmm_run RESOURCE LOG SEED STEPS THREADS serial|free
//   rmm_run RESOURCE LOG SEED 0 1 mixture
//
// RESOURCE: cuda, managed, cuda_async, pool, pool_managed, arena, binning, fixed_size or limiting. Above it stand, from the
// inside: logging (writes LOG), thread-safe tracking and statistics, and a callback on failures, which sometimes wants a
// second try. Threads share what they allocate and free each other's blocks, on streams of several kinds.
//
// In serial mode each operation is alone, and a mark "row" is set where RMM writes the line: behind an allocation or a
// failure, before a deallocation. So the n-th mark of a recording belongs to the n-th line of the log. Around all of them
// stand the marks "begin" and "end". Prints one JSON object with RMM's own accounts.
//
// In mixture mode it is one process of several (mixture.py): it says "ready", works from one line on its standard input to
// the next, a few thousand steps a second, sets the mark "mixture:end", says "done" and lives until its input ends.
#include <fragscope.h>

#include <cuda_runtime_api.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace mr = rmm::mr;
using Resource = mr::device_memory_resource;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kFixedBytes = 1 * kMiB;

// The resource of the name on top of what it needs, which is kept alive in `kept`.
std::shared_ptr<Resource> made(const std::string& name, std::vector<std::shared_ptr<Resource>>& kept) {
    const auto keep = [&](auto resource) {
        kept.push_back(resource);
        return resource.get();
    };
    if (name == "cuda") return std::make_shared<mr::cuda_memory_resource>();
    if (name == "managed") return std::make_shared<mr::managed_memory_resource>();
    if (name == "cuda_async") return std::make_shared<mr::cuda_async_memory_resource>(64 * kMiB);
    Resource* upstream = keep(std::make_shared<mr::cuda_memory_resource>());
    if (name == "limiting")
        return std::make_shared<mr::limiting_resource_adaptor<Resource>>(upstream, 96 * kMiB);
    if (name == "pool") return std::make_shared<mr::pool_memory_resource<Resource>>(upstream, 16 * kMiB, 512 * kMiB);
    if (name == "pool_managed")
        return std::make_shared<mr::pool_memory_resource<Resource>>(
            keep(std::make_shared<mr::managed_memory_resource>()), 16 * kMiB, 512 * kMiB);
    if (name == "arena") return std::make_shared<mr::arena_memory_resource<Resource>>(upstream, 256 * kMiB);
    if (name == "binning")
        return std::make_shared<mr::binning_memory_resource<Resource>>(
            keep(std::make_shared<mr::pool_memory_resource<Resource>>(upstream, 16 * kMiB, 512 * kMiB)), 18, 20);
    if (name == "fixed_size")
        return std::make_shared<mr::fixed_size_memory_resource<Resource>>(upstream, kFixedBytes, 16);
    std::fprintf(stderr, "no resource %s\n", name.c_str());
    std::exit(2);
}

struct Block {
    void* address;
    std::size_t bytes;
    rmm::cuda_stream_view stream;
};

class Program {
  public:
    Program(const std::string& name, const std::string& log, bool serial)
        : fixed_(name == "fixed_size"),
          serial_(serial),
          resource_(made(name, kept_)),
          logging_(resource_.get(), log, /*auto_flush=*/true),
          tracking_(&logging_),
          statistics_(&tracking_),
          callback_(&statistics_, &Program::failed, this) {}

    // Steps for as long as `more`, which is told how many there were, wants one.
    void run(unsigned thread, std::uint64_t seed, const std::function<bool(unsigned)>& more) {
        std::mt19937_64 random(seed * 1000 + thread);
        const rmm::cuda_stream own;
        const std::vector<rmm::cuda_stream_view> streams{rmm::cuda_stream_legacy, rmm::cuda_stream_per_thread,
                                                         rmm::cuda_stream_default, own.view()};
        for (unsigned step = 0; more(step); ++step) {
            const rmm::cuda_stream_view stream = streams[random() % streams.size()];
            if (random() % 100 < (live() < 48 ? 65u : 30u))
                allocate(size(random), stream);
            else
                deallocate(random, stream);
        }
        // What was allocated on the thread's own stream goes before the stream does; blocks of others may use it no more.
        const std::unique_lock<std::mutex> alone = serially();
        own.synchronize();
    }

    void deallocate_all() {
        std::mt19937_64 random(1);
        while (live() > 7) deallocate(random, rmm::cuda_stream_default);  // the rest is left, as a leak of a known size
    }

    void print() const {
        const auto bytes = statistics_.get_bytes_counter();
        const auto count = statistics_.get_allocations_counter();
        std::printf(
            "{\"bytes\": [%lld, %lld, %lld], \"allocations\": [%lld, %lld, %lld], \"tracked_bytes\": %zu, "
            "\"tracked_blocks\": %zu, \"failed_tries\": %u, \"failures\": %u}\n",
            static_cast<long long>(bytes.value), static_cast<long long>(bytes.peak), static_cast<long long>(bytes.total),
            static_cast<long long>(count.value), static_cast<long long>(count.peak), static_cast<long long>(count.total),
            tracking_.get_allocated_bytes(), tracking_.get_outstanding_allocations().size(), tries_.load(),
            failures_.load());
    }

  private:
    static bool failed(std::size_t, void* self) {
        Program& program = *static_cast<Program*>(self);
        if (program.serial_) fragscope_mark("row");
        return program.tries_++ % 3 == 0;
    }

    std::unique_lock<std::mutex> serially() {
        return serial_ ? std::unique_lock<std::mutex>(serial_mutex_) : std::unique_lock<std::mutex>();
    }

    std::size_t live() {
        const std::lock_guard<std::mutex> lock(blocks_mutex_);
        return blocks_.size();
    }

    // Mostly small, some of a tensor's size, seldom more than there can be.
    std::size_t size(std::mt19937_64& random) const {
        const unsigned kind = static_cast<unsigned>(random() % 100);
        if (fixed_) return kind < 95 ? 1 + random() % kFixedBytes : kFixedBytes + 1 + random() % kFixedBytes;
        if (kind < 2) return 0;
        if (kind < 50) return 1 + random() % (4 * kKiB);
        if (kind < 80) return 1 + random() % (512 * kKiB);
        if (kind < 95) return 1 + random() % (8 * kMiB);
        if (kind < 98) return 1 + random() % (64 * kMiB);
        return std::size_t{1} << (46 + random() % 4);
    }

    void allocate(std::size_t bytes, rmm::cuda_stream_view stream) {
        const std::unique_lock<std::mutex> alone = serially();
        void* address = nullptr;
        try {
            address = callback_.allocate(bytes, stream);
        } catch (const rmm::bad_alloc&) {
            ++failures_;
            return;
        }
        if (serial_) fragscope_mark("row");
        const std::lock_guard<std::mutex> lock(blocks_mutex_);
        blocks_.push_back({address, bytes, stream});
    }

    void deallocate(std::mt19937_64& random, rmm::cuda_stream_view stream) {
        const std::unique_lock<std::mutex> alone = serially();
        Block block{};
        {
            const std::lock_guard<std::mutex> lock(blocks_mutex_);
            if (blocks_.empty()) return;
            std::swap(blocks_[random() % blocks_.size()], blocks_.back());
            block = blocks_.back();
            blocks_.pop_back();
        }
        if (serial_) fragscope_mark("row");
        callback_.deallocate(block.address, block.bytes, stream);
    }

    const bool fixed_;
    const bool serial_;
    std::vector<std::shared_ptr<Resource>> kept_;
    std::shared_ptr<Resource> resource_;
    mr::logging_resource_adaptor<Resource> logging_;
    mr::tracking_resource_adaptor<Resource> tracking_;
    mr::statistics_resource_adaptor<Resource> statistics_;
    mr::failure_callback_resource_adaptor<Resource> callback_;
    std::mutex serial_mutex_;
    std::mutex blocks_mutex_;
    std::vector<Block> blocks_;
    std::atomic<unsigned> tries_{0};
    std::atomic<unsigned> failures_{0};
};

int mixture(const std::string& name, const std::string& log, std::uint64_t seed) {
    char rest[64];
    std::puts("ready");
    std::fflush(stdout);
    if (read(STDIN_FILENO, rest, sizeof rest) <= 0) return 1;
    Program program(name, log, /*serial=*/false);
    program.run(0, seed, [](unsigned step) {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        return step % 3 != 0 || poll(&input, 1, 1) == 0;
    });
    fragscope_mark("mixture:end");
    std::puts("done");
    std::fflush(stdout);
    while (read(STDIN_FILENO, rest, sizeof rest) > 0) {
    }
    std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7) return 2;
    const std::uint64_t seed = std::strtoull(argv[3], nullptr, 10);
    const unsigned steps = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
    const unsigned threads = static_cast<unsigned>(std::strtoul(argv[5], nullptr, 10));
    cudaFree(nullptr);  // the driver is in use from here on, so that marks are recorded
    if (std::string(argv[6]) == "mixture") return mixture(argv[1], argv[2], seed);
    Program program(argv[1], argv[2], std::string(argv[6]) == "serial");
    fragscope_mark("begin");
    const auto more = [steps](unsigned step) { return step < steps; };
    std::vector<std::thread> others;
    for (unsigned thread = 1; thread < threads; ++thread)
        others.emplace_back([&, thread] { program.run(thread, seed, more); });
    program.run(0, seed, more);
    for (std::thread& other : others) other.join();
    program.deallocate_all();
    fragscope_mark("end");
    program.print();
    std::fflush(stdout);
    std::_Exit(0);  // what is left stays: RMM's destructors would check it
}
