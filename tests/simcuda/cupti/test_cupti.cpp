// The stand-in CUPTI against the public header: who may subscribe, whose callbacks are called, what records say, when they
// come, and what is dropped. Addresses and sizes are those that the driver's own calls gave.
#include <cupti.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../sim_test.h"

extern "C" unsigned long long fragscope_sim_cupti_misuse();

using namespace sim_test;

namespace {

// The fields that are looked at, by the header's names: those of its packed structs cannot be referred to.
struct Memory {
    std::uint32_t memoryOperationType, memoryKind, correlationId, processId, deviceId, streamId, isAsync;
    std::uint64_t address, bytes, timestamp, PC, pool_size, pool_used;
    std::string name;
};
struct PoolOperation {
    std::uint32_t memoryPoolOperationType;
    std::uint64_t minBytesToKeep;
};
struct Counter {
    std::uint32_t counterKind, dstId;
    std::uint64_t value, address;
};

Memory read(const CUpti_ActivityMemory4& r) {
    return {r.memoryOperationType, r.memoryKind, r.correlationId, r.processId, r.deviceId, r.streamId, r.isAsync,
            r.address, r.bytes, r.timestamp, r.PC, r.memoryPoolConfig.pool.size, r.memoryPoolConfig.utilizedSize,
            r.name == nullptr ? "" : r.name};
}

// What a client collects.
struct Client {
    std::mutex lock;
    std::vector<Memory> memory;
    std::vector<PoolOperation> pools;
    std::vector<Counter> counters;
    std::atomic<int> buffers{0}, requests{0};
    std::size_t dropped = 0;
};
Client first, second;
std::atomic<bool> flush_inside{false}, no_buffers{false};

void give(Client& client, std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
    client.requests.fetch_add(1);
    *bytes = 4096;
    *buffer = no_buffers ? nullptr : new std::uint8_t[*bytes];
    *most = 0;
}

void take(Client& client, std::uint8_t* buffer, std::size_t valid) {
    const std::lock_guard<std::mutex> guard(client.lock);
    client.buffers.fetch_add(1);
    if (flush_inside) CHECK(cuptiActivityFlushAll(0) == CUPTI_ERROR_INVALID_OPERATION);
    CUpti_Activity* record = nullptr;
    CUptiResult result = CUPTI_SUCCESS;
    while ((result = cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
            client.memory.push_back(read(*reinterpret_cast<const CUpti_ActivityMemory4*>(record)));
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) {
            const auto& pool = *reinterpret_cast<const CUpti_ActivityMemoryPool3*>(record);
            client.pools.push_back({pool.memoryPoolOperationType, pool.minBytesToKeep});
        } else {
            const auto& counter = *reinterpret_cast<const CUpti_ActivityUnifiedMemoryCounter3*>(record);
            client.counters.push_back({counter.counterKind, counter.dstId, counter.value, counter.address});
        }
    }
    CHECK(result == CUPTI_ERROR_MAX_LIMIT_REACHED);
    std::size_t dropped = 0;
    CHECK(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS);
    client.dropped += dropped;
    delete[] buffer;
}

void request_first(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) { give(first, buffer, bytes, most); }
void complete_first(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    take(first, buffer, valid);
}
void request_second(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) { give(second, buffer, bytes, most); }
void complete_second(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    take(second, buffer, valid);
}

void listen(std::initializer_list<CUpti_ActivityKind> kinds = {CUPTI_ACTIVITY_KIND_MEMORY2}) {
    REQUIRE(cuptiActivityRegisterCallbacks(request_first, complete_first) == CUPTI_SUCCESS);
    for (const CUpti_ActivityKind kind : kinds) REQUIRE(cuptiActivityEnable(kind) == CUPTI_SUCCESS);
}

void flush() { CHECK(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) == CUPTI_SUCCESS); }

}  // namespace

TEST_CASE("the layouts are those of CUDA 13.0") {
    CHECK(sizeof(CUpti_ActivityMemory4) == 128);
    CHECK(sizeof(CUpti_ActivityMemoryPool3) == 80);
    CHECK(sizeof(CUpti_ActivityUnifiedMemoryCounter3) == 104);
    std::uint32_t version = 0;
    CHECK(cuptiGetVersion(&version) == CUPTI_SUCCESS);
    CHECK(version == 130001);
}

SIM_TEST("one subscriber, and its name") {
    CUpti_SubscriberHandle one = nullptr, two = nullptr;
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "the first";
    REQUIRE(cuptiSubscribe_v2(&one, nullptr, nullptr, &params) == CUPTI_SUCCESS);
    char old[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
    params.oldSubscriberName = old;
    params.oldSubscriberSize = sizeof old;
    CHECK(cuptiSubscribe_v2(&two, nullptr, nullptr, &params) == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK(std::string(old) == "CUPTI for the first");
    CHECK(cuptiSubscribe(&two, nullptr, nullptr) == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK(cuptiGetLastError() == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK(cuptiGetLastError() == CUPTI_SUCCESS);
    CHECK(cuptiUnsubscribe(one) == CUPTI_SUCCESS);
    CHECK(cuptiUnsubscribe(one) == CUPTI_ERROR_INVALID_PARAMETER);
    CHECK(cuptiSubscribe(&two, nullptr, nullptr) == CUPTI_SUCCESS);
}

SIM_TEST("a tool that was there first", "CUPTI_SUBSCRIBER=Nsight Systems") {
    CUpti_SubscriberHandle one = nullptr;
    CHECK(cuptiSubscribe(&one, nullptr, nullptr) == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
}

SIM_TEST("records say what the calls said") {
    start();
    listen({CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL});
    std::uint64_t before = 0, after = 0;
    CHECK(cuptiGetTimestamp(&before) == CUPTI_SUCCESS);
    const CUdeviceptr linear = allocate(3 * kMiB);
    CHECK(cuMemFree(linear) == CUDA_SUCCESS);
    void* pinned = nullptr;
    REQUIRE(cuMemHostAlloc(&pinned, 8192, 0) == CUDA_SUCCESS);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    CUdeviceptr ordered = 0;
    REQUIRE(cuMemAllocFromPoolAsync(&ordered, 100, pool, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(ordered, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemPoolTrimTo(pool, 12345) == CUDA_SUCCESS);
    CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    CHECK(cuptiGetTimestamp(&after) == CUPTI_SUCCESS);
    flush();

    REQUIRE(first.memory.size() == 5);
    for (const Memory& each : first.memory) {
        CHECK(each.timestamp >= before);
        CHECK(each.timestamp <= after);
        CHECK(each.processId == static_cast<std::uint32_t>(::getpid()));
        CHECK(each.deviceId == 0);
        CHECK(each.PC != 0);
    }
    CHECK(first.memory[0].memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
    CHECK(first.memory[0].memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    CHECK(first.memory[0].address == linear);
    CHECK(first.memory[0].bytes == 3 * kMiB);
    CHECK(first.memory[0].streamId == CUPTI_INVALID_STREAM_ID);
    CHECK(first.memory[1].memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
    CHECK(first.memory[1].address == linear);
    CHECK(first.memory[1].correlationId > first.memory[0].correlationId);
    CHECK(first.memory[2].memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
    CHECK(first.memory[2].address == reinterpret_cast<std::uint64_t>(pinned));
    CHECK(first.memory[3].isAsync == 1);
    CHECK(first.memory[3].address == ordered);
    CHECK(first.memory[3].bytes == 100);
    CHECK(first.memory[3].pool_used == 512);
    CHECK(first.memory[3].pool_size == 32 * kMiB);
    REQUIRE(first.pools.size() == 3);
    CHECK(first.pools[0].memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED);
    CHECK(first.pools[1].memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED);
    CHECK(first.pools[1].minBytesToKeep == 12345);
    CHECK(first.pools[2].memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED);
}

SIM_TEST("static variables and migrations") {
    start();
    listen({CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER});
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, "fragscope-sim-module\ncode 3MiB\nvariable table 1MiB\n") == CUDA_SUCCESS);
    CUdeviceptr table = 0;
    REQUIRE(cuModuleGetGlobal(&table, nullptr, module, "table") == CUDA_SUCCESS);
    CUdeviceptr managed = 0;
    REQUIRE(cuMemAllocManaged(&managed, 4 * kMiB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CUmemLocation to{};
    to.type = CU_MEM_LOCATION_TYPE_DEVICE;
    REQUIRE(cuMemPrefetchAsync_v2(managed, kMiB, to, 0, nullptr) == CUDA_SUCCESS);
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    flush();
    REQUIRE(first.memory.size() == 3);
    CHECK(first.memory[0].memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC);
    CHECK(first.memory[0].name == "table");
    CHECK(first.memory[0].address == table);
    CHECK(first.memory[0].bytes == kMiB);
    CHECK(first.memory[1].memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
    CHECK(first.memory[2].memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
    CHECK(first.memory[2].address == table);
    REQUIRE(first.counters.size() == 1);
    CHECK(first.counters[0].counterKind == CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD);
    CHECK(first.counters[0].address == managed);
    CHECK(first.counters[0].value == kMiB);
    CHECK(first.counters[0].dstId == 0);
}

SIM_TEST("records come late: unforced flushes leave those that are not complete", "CUPTI_LATENCY=3600s") {
    start();
    listen();
    const CUdeviceptr address = allocate(kMiB);
    CHECK(cuptiActivityFlushAll(0) == CUPTI_SUCCESS);
    CHECK(first.memory.empty());
    flush();
    REQUIRE(first.memory.size() == 1);
    CHECK(first.memory[0].address == address);
}

SIM_TEST("the worker hands full buffers over by itself", "CUPTI_LATENCY=0", "CUPTI_BATCH=1") {
    start();
    listen();
    // 4096 bytes are full after 31 records of 128, when no record of the largest size fits behind them.
    for (int i = 0; i < 64; ++i) CHECK(cuMemFree(allocate(512)) == CUDA_SUCCESS);
    // Ends when the worker has done it; the bound is for a worker that never does.
    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (first.buffers < 4 && std::chrono::steady_clock::now() < bound)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(first.buffers >= 4);
    const std::lock_guard<std::mutex> guard(first.lock);
    CHECK(first.memory.size() >= 124);
}

SIM_TEST("without a buffer records are dropped and counted") {
    start();
    listen();
    no_buffers = true;
    allocate(512);
    allocate(512);
    flush();
    CHECK(first.memory.empty());
    no_buffers = false;
    allocate(512);
    flush();
    CHECK(first.memory.size() == 1);
    CHECK(first.dropped == 2);
}

SIM_TEST("each third record is dropped where it is set so", "CUPTI_DROP_EVERY=3") {
    start();
    listen();
    for (int i = 0; i < 9; ++i) allocate(512);
    flush();
    CHECK(first.memory.size() == 6);
    CHECK(first.dropped == 3);
}

SIM_TEST("a second client replaces the first one's callbacks") {
    start();
    listen();
    allocate(512);
    flush();
    REQUIRE(cuptiActivityRegisterCallbacks(request_second, complete_second) == CUPTI_SUCCESS);
    allocate(512);
    flush();
    CHECK(first.memory.size() == 1);
    CHECK(second.memory.size() == 1);
    CHECK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMORY2) == CUPTI_SUCCESS);
    allocate(512);
    flush();
    CHECK(second.memory.size() == 1);
}

SIM_TEST("its own device memory", "CONTEXT_OVERHEAD=0", "CUPTI_DEVICE_MEMORY=9MiB") {
    start();
    const std::size_t before = free_bytes();
    listen();
    CHECK(before - free_bytes() == 10 * kMiB);  // whole pages of 2 MiB
    CUcontext another = nullptr;
    REQUIRE(cuCtxCreate(&another, nullptr, 0, 0) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 20 * kMiB);
    CHECK(cuCtxDestroy(another) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 10 * kMiB);
}

SIM_TEST("its own memory on the host", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    std::uint8_t on = 1;
    std::size_t bytes = sizeof on;
    REQUIRE(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &bytes, &on) == CUPTI_SUCCESS);
    listen();
    CHECK(before == free_bytes());
}

SIM_TEST("a flush inside a callback is refused and counted") {
    start();
    listen();
    flush_inside = true;
    allocate(512);
    flush();
    CHECK(first.memory.size() == 1);
    CHECK(fragscope_sim_cupti_misuse() == 1);
}

SIM_TEST("buffers are asked for inside the call", "CUPTI_REQUEST_IN_CALL=on", "CUPTI_BATCH=1000") {
    start();
    listen();
    CHECK(first.requests == 0);
    allocate(512);
    CHECK(first.requests == 1);
    allocate(512);
    CHECK(first.requests == 1);
}

SIM_TEST("faults", "CUPTI_FAULT_cuptiActivityEnable=35") {
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2) == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    const char* text = nullptr;
    CHECK(cuptiGetResultString(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, &text) == CUPTI_SUCCESS);
    CHECK(std::string(text) == "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES");
}

SIM_TEST("a setting that is not there", "CUPTI_NO_SUCH=1") {
    std::uint32_t version = 0;
    CHECK(cuptiGetVersion(&version) == CUPTI_ERROR_NOT_INITIALIZED);
}
