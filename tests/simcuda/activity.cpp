#include "activity.h"

#include <atomic>
#include <cstring>

#include "contexts.h"
#include "pools.h"
#include "sim_activity.h"

namespace fragscope::sim {
namespace {

std::atomic<ActivitySink> sink{nullptr};
std::atomic<std::uint64_t> listener_bytes{0};

void tell(ActivityEvent& event) {
    const ActivitySink told = sink.load(std::memory_order_acquire);
    if (told == nullptr) return;
    event.context_device = -1;
    if (const Context* context = current_context(); context != nullptr) {
        event.context = context->id;
        event.context_device = context->device;
    }
    told(event);
}

bool begins(const char* text, const char* with) { return std::strncmp(text, with, std::strlen(with)) == 0; }

void describe_pool(ActivityEvent& event, std::uint64_t id) {
    const Pool* pool = find_pool_by_id_locked(id);
    if (pool == nullptr) return;
    event.pool = pool->chunks.empty() ? 0 : pool->chunks.begin()->first;
    event.pool_size = pool->reserved;
    event.pool_used = pool->used;
    event.pool_threshold = pool->threshold;
    event.pool_imported = pool->imported;
}

}  // namespace

void note_activity(const LedgerEntry& entry) {
    if (sink.load(std::memory_order_relaxed) == nullptr) return;
    ActivityEvent event{};
    event.operation = entry.operation;
    event.object = entry.object;
    event.bytes = entry.bytes;
    event.device = entry.device;
    if (begins(entry.operation, "pool_")) {
        const bool block = begins(entry.operation, "pool_alloc") || begins(entry.operation, "pool_free");
        describe_pool(event, block ? entry.other : entry.object);
    }
    tell(event);
}

void note_variable_locked(const char* operation, const char* name, std::uint64_t address, std::uint64_t bytes, int device) {
    ActivityEvent event{};
    event.operation = operation;
    event.name = name;
    event.object = address;
    event.bytes = bytes;
    event.device = device;
    tell(event);
}

void note_pool_trim_locked(std::uint64_t pool, std::uint64_t keep, int device) {
    if (sink.load(std::memory_order_relaxed) == nullptr) return;
    ActivityEvent event{};
    event.operation = "pool_trim";
    event.object = pool;
    event.bytes = keep;
    event.device = device;
    describe_pool(event, pool);
    tell(event);
}

void note_prefetch_locked(std::uint64_t address, std::uint64_t bytes, int device) {
    ActivityEvent event{};
    event.operation = device < 0 ? "migrate_to_host" : "migrate_to_device";
    event.object = address;
    event.bytes = bytes;
    event.device = device;
    tell(event);
}

void charge_listener_locked(Context& context) {
    Driver& d = driver();
    const std::uint64_t bytes = listener_bytes.load(std::memory_order_relaxed);
    std::uint64_t free_after = 0;
    std::vector<PageRun> runs;
    if (bytes == 0 || !take_pages_locked(context.device, d.pages_for(bytes), false, runs, free_after)) return;
    context.overhead.insert(context.overhead.end(), runs.begin(), runs.end());
    ledger({"listener", context.id, bytes, static_cast<std::int64_t>(d.pages_for(bytes) * d.settings.page_size),
            context.device, free_after});
}

}  // namespace fragscope::sim

extern "C" [[gnu::visibility("default")]] void fragscope_sim_activity(fragscope::sim::ActivitySink to,
                                                                      unsigned long long bytes_per_context) {
    using namespace fragscope::sim;
    sink.store(to, std::memory_order_release);
    listener_bytes.store(bytes_per_context, std::memory_order_relaxed);
    if (g_driver == nullptr) return;
    Locked guard(driver().lock);
    for (auto& [handle, context] : driver().contexts) {
        if (context->alive) charge_listener_locked(*context);
    }
}
