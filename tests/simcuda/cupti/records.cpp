#include "records.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "../sim_activity.h"
#include "settings.h"

namespace fragscope::sim_cupti {
namespace {

using sim::ActivityEvent;

union Record {
    CUpti_Activity any;
    CUpti_ActivityMemory4 memory;
    CUpti_ActivityMemoryPool3 pool;
    CUpti_ActivityUnifiedMemoryCounter3 counter;
};

struct Waiting {
    Record record;
    std::uint64_t complete_at;  // CLOCK_MONOTONIC
};

struct Buffer {
    std::uint8_t* memory = nullptr;
    std::size_t bytes = 0, used = 0, records = 0, most = 0;
};

// Never destroyed: programs end while the worker runs.
struct State {
    std::mutex lock;
    std::condition_variable work;
    std::mutex delivery;  // held while callbacks run, so that buffers come one after the other
    CUpti_BuffersCallbackRequestFunc request = nullptr;
    CUpti_BuffersCallbackCompleteFunc complete = nullptr;
    std::set<CUpti_ActivityKind> enabled;
    std::deque<Waiting> waiting;
    Buffer buffer;  // the one being filled
    std::size_t dropped = 0, made = 0;
    std::uint32_t period_ms = 0, correlation = 0;
    std::map<std::uint64_t, std::uint32_t> contexts;      // by the driver's id
    std::set<std::string> names;                          // what records point at stays
    bool source = false, pinned = false, listening = false, worker = false;
    pid_t process = 0;
    std::atomic<CUpti_TimestampCallbackFunc> timestamp{nullptr};
};

State& state() {
    static State* const once = new State;
    return *once;
}

thread_local int callbacks_deep = 0;
std::atomic<unsigned long long> misuses{0};

std::uint64_t nanoseconds(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

using Listen = void (*)(sim::ActivitySink, unsigned long long);
Listen listen_function() {
    static const Listen found = [] {
        void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
        return driver == nullptr ? nullptr : reinterpret_cast<Listen>(::dlsym(driver, "fragscope_sim_activity"));
    }();
    return found;
}

const char* kept(State& s, const char* name) { return s.names.insert(name).first->c_str(); }

// The innermost frame that is not in this library or the driver.
const void* caller_of_driver(std::string& file) {
    void* frames[16];
    const int count = ::backtrace(frames, 16);
    for (int i = 0; i < count; ++i) {
        Dl_info info;
        if (::dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) return frames[i];
        if (std::strstr(info.dli_fname, "libcuda.so") == nullptr && std::strstr(info.dli_fname, "libcupti.so") == nullptr) {
            file = info.dli_fname;
            return frames[i];
        }
    }
    return nullptr;
}

struct Meaning {
    const char* operation;
    CUpti_ActivityMemoryKind kind;
    bool release;
    bool async;
};
constexpr Meaning kMemory[] = {
    {"linear_alloc", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, false, false},
    {"pitch_alloc", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, false, false},
    {"linear_free", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, true, false},
    {"managed_alloc", CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, false, false},
    {"managed_free", CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, true, false},
    {"host_alloc", CUPTI_ACTIVITY_MEMORY_KIND_PINNED, false, false},
    {"host_free", CUPTI_ACTIVITY_MEMORY_KIND_PINNED, true, false},
    {"array_create", CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, false, false},
    {"array_destroy", CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, true, false},
    {"variable_load", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC, false, false},
    {"variable_unload", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC, true, false},
    {"pool_alloc", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, false, true},
    {"pool_free", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, true, false},
    {"pool_free_asked", CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, true, true},
};

struct PoolMeaning {
    const char* operation;
    CUpti_ActivityMemoryPoolOperationType type;
};
constexpr PoolMeaning kPools[] = {
    {"pool_create", CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED},
    {"pool_destroy", CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED},
    {"pool_trim", CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED},
};

std::uint32_t context_number(State& s, std::uint64_t id) {
    if (id == 0) return CUPTI_INVALID_CONTEXT_ID;
    return s.contexts.emplace(id, static_cast<std::uint32_t>(s.contexts.size() + 1)).first->second;
}

std::uint32_t device_of(const ActivityEvent& event) {
    return static_cast<std::uint32_t>(event.device >= 0 ? event.device : event.context_device);
}

CUpti_ActivityMemoryPoolType pool_type(const ActivityEvent& event) {
    return event.pool_imported ? CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED : CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
}

bool describe_memory(State& s, const ActivityEvent& event, Record& out) {
    for (const Meaning& each : kMemory) {
        if (std::strcmp(each.operation, event.operation) != 0) continue;
        CUpti_ActivityMemory4& r = out.memory;
        r.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
        r.memoryOperationType = each.release ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE
                                             : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
        r.memoryKind = each.kind;
        r.address = event.object;
        r.bytes = event.bytes;
        r.timestamp = timestamp_now();
        std::string file;
        r.PC = reinterpret_cast<std::uint64_t>(caller_of_driver(file));
        r.processId = static_cast<std::uint32_t>(::getpid());
        r.deviceId = device_of(event);
        r.contextId = context_number(s, event.context);
        r.streamId = each.async ? 7 : CUPTI_INVALID_STREAM_ID;
        r.isAsync = each.async ? 1 : 0;
        if (event.name != nullptr) r.name = kept(s, event.name);
        if (s.source && !file.empty()) r.source = kept(s, file.c_str());
        if (each.async || std::strcmp(each.operation, "pool_free") == 0) {
            r.memoryPoolConfig.memoryPoolType = pool_type(event);
            r.memoryPoolConfig.address = event.pool;
            r.memoryPoolConfig.releaseThreshold = event.pool_threshold;
            r.memoryPoolConfig.pool.size = event.pool_size;
            r.memoryPoolConfig.utilizedSize = event.pool_used;
        }
        return true;
    }
    return false;
}

bool describe_pool(const ActivityEvent& event, Record& out) {
    for (const PoolMeaning& each : kPools) {
        if (std::strcmp(each.operation, event.operation) != 0) continue;
        CUpti_ActivityMemoryPool3& r = out.pool;
        r.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
        r.memoryPoolOperationType = each.type;
        r.memoryPoolType = pool_type(event);
        r.processId = static_cast<std::uint32_t>(::getpid());
        r.deviceId = device_of(event);
        if (each.type == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED) r.minBytesToKeep = event.bytes;
        r.address = event.pool;
        r.size = event.pool_size;
        r.releaseThreshold = event.pool_threshold;
        r.timestamp = timestamp_now();
        r.utilizedSize = event.pool_used;
        return true;
    }
    return false;
}

bool describe_migration(const ActivityEvent& event, Record& out) {
    const bool to_device = std::strcmp(event.operation, "migrate_to_device") == 0;
    if (!to_device && std::strcmp(event.operation, "migrate_to_host") != 0) return false;
    CUpti_ActivityUnifiedMemoryCounter3& r = out.counter;
    r.kind = CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER;
    r.counterKind = to_device ? CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD
                              : CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH;
    r.value = event.bytes;
    r.start = timestamp_now();
    r.end = r.start + event.bytes / 16;  // as over a link of 16 GB in a second
    r.address = event.object;
    r.srcId = to_device ? CUPTI_UNIFIED_MEMORY_CPU_DEVICE_ID : static_cast<std::uint32_t>(event.context_device);
    r.dstId = to_device ? static_cast<std::uint32_t>(event.device) : CUPTI_UNIFIED_MEMORY_CPU_DEVICE_ID;
    r.processId = static_cast<std::uint32_t>(::getpid());
    r.flags = CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_PREFETCH;
    return true;
}

// As of a record whose time could not be collected (cupti_activity.h).
void take_time_away(Record& record) {
    if (record.any.kind == CUPTI_ACTIVITY_KIND_MEMORY2) record.memory.timestamp = 0;
    if (record.any.kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) record.pool.timestamp = 0;
    if (record.any.kind == CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER) record.counter.start = record.counter.end = 0;
}

// A buffer of the client's, asked for without any lock.
Buffer ask_for_buffer(CUpti_BuffersCallbackRequestFunc request) {
    Buffer out;
    ++callbacks_deep;
    request(&out.memory, &out.bytes, &out.most);
    --callbacks_deep;
    if (out.memory == nullptr) out = {};
    return out;
}

void hear(const ActivityEvent& event) {
    State& s = state();
    if (s.process != ::getpid()) return;  // a child of fork(): the worker is not in it
    std::unique_lock<std::mutex> guard(s.lock);
    Record record;
    std::memset(static_cast<void*>(&record), 0, sizeof record);
    if (!describe_memory(s, event, record) && !describe_pool(event, record) && !describe_migration(event, record)) return;
    if (!s.enabled.contains(record.any.kind) || s.request == nullptr) return;
    const std::uint32_t correlation = ++s.correlation;
    if (record.any.kind == CUPTI_ACTIVITY_KIND_MEMORY2) record.memory.correlationId = correlation;
    if (record.any.kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) record.pool.correlationId = correlation;
    ++s.made;
    const Settings& set = settings();
    if (s.waiting.size() >= set.queue || (set.drop_every != 0 && s.made % set.drop_every == 0)) {
        ++s.dropped;
        return;
    }
    if (set.timeless_every != 0 && s.made % set.timeless_every == 0) take_time_away(record);
    s.waiting.push_back({record, nanoseconds(CLOCK_MONOTONIC) + set.latency_ns});
    if (set.request_in_call && s.buffer.memory == nullptr) {
        const auto request = s.request;
        guard.unlock();
        const Buffer buffer = ask_for_buffer(request);
        guard.lock();
        if (s.buffer.memory == nullptr) s.buffer = buffer;
    }
    if (s.waiting.size() >= set.batch) s.work.notify_one();
}

std::size_t size_of(const Record& record) { return record_bytes(record.any.kind); }

// Hands the buffer that is being filled over. With `delivery` held and `guard` of the state's lock.
void hand_over(State& s, std::unique_lock<std::mutex>& guard) {
    const Buffer full = s.buffer;
    const auto complete = s.complete;
    s.buffer = {};
    if (full.memory == nullptr) return;
    guard.unlock();
    ++callbacks_deep;
    complete(nullptr, 0, full.memory, full.bytes, full.used);
    --callbacks_deep;
    guard.lock();
}

// Complete records (all of them if `forced`) into buffers; full ones are handed over, `all`: every one.
void move_records(bool forced, bool all) {
    State& s = state();
    std::lock_guard<std::mutex> one_at_a_time(s.delivery);
    std::unique_lock<std::mutex> guard(s.lock);
    const std::uint64_t now = nanoseconds(CLOCK_MONOTONIC);
    while (s.complete != nullptr && !s.waiting.empty() && (forced || s.waiting.front().complete_at <= now)) {
        const Record record = s.waiting.front().record;
        const std::size_t bytes = size_of(record);
        if (s.buffer.memory == nullptr) {
            const auto request = s.request;
            guard.unlock();
            const Buffer buffer = ask_for_buffer(request);
            guard.lock();
            if (s.buffer.memory == nullptr) s.buffer = buffer;
        }
        s.waiting.pop_front();
        if (s.buffer.bytes < s.buffer.used + bytes) {  // none was given, or one that is too small
            ++s.dropped;
            if (s.buffer.used == 0) hand_over(s, guard);
            continue;
        }
        std::memcpy(s.buffer.memory + s.buffer.used, &record, bytes);
        s.buffer.used += bytes;
        ++s.buffer.records;
        const bool full = s.buffer.bytes - s.buffer.used < sizeof(Record) ||
                          (s.buffer.most != 0 && s.buffer.records >= s.buffer.most);
        if (full) hand_over(s, guard);
    }
    if (all) hand_over(s, guard);
}

void work() {
    State& s = state();
    for (;;) {
        {
            std::unique_lock<std::mutex> guard(s.lock);
            const auto pause = std::chrono::milliseconds(s.period_ms != 0 ? s.period_ms : 50);
            s.work.wait_for(guard, pause, [&] { return s.waiting.size() >= settings().batch; });
        }
        move_records(false, false);
        // Records that are not complete yet keep the queue long: not a reason to spin.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void listen_locked(State& s, bool on) {
    const Listen listen = listen_function();
    if (listen == nullptr || s.listening == on) return;
    s.listening = on;
    s.process = ::getpid();
    if (on && !s.worker) {
        s.worker = true;
        std::thread(work).detach();
    }
}

}  // namespace

bool in_callback() { return callbacks_deep != 0; }
void note_misuse() { misuses.fetch_add(1); }

std::size_t record_bytes(CUpti_ActivityKind kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_MEMORY2: return sizeof(CUpti_ActivityMemory4);
        case CUPTI_ACTIVITY_KIND_MEMORY_POOL: return sizeof(CUpti_ActivityMemoryPool3);
        case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER: return sizeof(CUpti_ActivityUnifiedMemoryCounter3);
        default: return 0;
    }
}

void set_client(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
    State& s = state();
    std::lock_guard<std::mutex> one_at_a_time(s.delivery);
    std::lock_guard<std::mutex> guard(s.lock);
    s.request = request;
    s.complete = complete;
}

bool has_client() {
    std::lock_guard<std::mutex> guard(state().lock);
    return state().request != nullptr;
}

void set_timestamp(CUpti_TimestampCallbackFunc timestamp) { state().timestamp.store(timestamp); }

std::uint64_t timestamp_now() {
    const CUpti_TimestampCallbackFunc own = state().timestamp.load();
    return own != nullptr ? own() : nanoseconds(CLOCK_REALTIME);
}

void enable(CUpti_ActivityKind kind, bool on) {
    State& s = state();
    bool listening = false, changed = false;
    {
        std::lock_guard<std::mutex> guard(s.lock);
        if (on) {
            s.enabled.insert(kind);
        } else {
            s.enabled.erase(kind);
        }
        listening = !s.enabled.empty();
        changed = s.listening != listening;
        listen_locked(s, listening);
    }
    // Without the lock: the driver tells of things while it holds its own.
    const Listen listen = listen_function();
    if (!changed || listen == nullptr) return;
    const bool pages = listening && !pinned();
    listen(listening ? hear : nullptr, pages ? settings().device_memory : 0);
}

void set_allocation_source(bool on) {
    std::lock_guard<std::mutex> guard(state().lock);
    state().source = on;
}

void set_pinned(bool on) {
    std::lock_guard<std::mutex> guard(state().lock);
    state().pinned = on;
}

bool pinned() {
    std::lock_guard<std::mutex> guard(state().lock);
    return state().pinned;
}

void set_period(std::uint32_t milliseconds) {
    std::lock_guard<std::mutex> guard(state().lock);
    state().period_ms = milliseconds;
}

void flush(bool forced) { move_records(forced, true); }

std::size_t take_dropped() {
    std::lock_guard<std::mutex> guard(state().lock);
    const std::size_t dropped = state().dropped;
    state().dropped = 0;
    return dropped;
}

}  // namespace fragscope::sim_cupti

extern "C" [[gnu::visibility("default")]] unsigned long long fragscope_sim_cupti_misuse() {
    return fragscope::sim_cupti::misuses.load();
}
