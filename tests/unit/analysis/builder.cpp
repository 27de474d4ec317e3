#include "tests/unit/analysis/builder.h"

#include <algorithm>

namespace fragscope::test {

using analysis::Event;
using wire::Kind;

SessionBuilder::SessionBuilder() {
    trace_.path = "built.fst";
    trace_.session.set_start_ns(now_);
    trace_.functions = {"cuMemAlloc_v2", "cuMemCreate", "cuMemAddressReserve", "cuMemAllocAsync", "other"};
}

std::uint64_t SessionBuilder::tick() { return now_ += 1000; }

ProcessBuilder& SessionBuilder::process(std::uint64_t capacity, char uuid) {
    const auto index = static_cast<std::uint32_t>(trace_.processes.size());
    trace::Process process;
    process.set_index(index);
    process.set_pid(100 + index);
    process.set_executable("/usr/bin/program");
    process.set_environment_complete(true);
    trace::Device& device = *process.add_devices();
    device.set_ordinal(0);
    device.set_uuid(std::string(16, uuid));
    device.set_capacity_bytes(capacity);
    device.set_minimum_granularity_bytes(2 * kMiB);
    device.set_recommended_granularity_bytes(2 * kMiB);
    trace_.processes.push_back(process);
    trace::Loss loss;
    loss.set_process(index);
    loss.set_acquisitions(0);
    loss.set_releases(0);
    loss.set_others(0);
    loss.set_acquired_bytes(0);
    loss.set_kernel_launches(0);
    loss.set_opaque_writes(0);
    trace_.losses.push_back(loss);
    trace_.events.emplace_back();
    builders_.emplace_back(*this, index);
    return builders_.back();
}

ProcessBuilder& ProcessBuilder::event(Event event) {
    auto& events = session_->trace().events[index_];
    event.process = {index_};
    event.sequence = {events.empty() ? 1 : events.back().sequence.value + 1};
    event.start = {session_->tick()};
    event.duration_ns = 100;
    event.thread = thread_;
    if (event.device == analysis::kNoDevice) event.device = 0;
    switch (event.kind) {
        case Kind::kLinearAcquired:
            event.function = {0};
            break;
        case Kind::kHandleCreated:
            event.function = {1};
            break;
        case Kind::kReserved:
            event.function = {2};
            break;
        case Kind::kPoolAcquired:
            event.function = {3};
            break;
        default:
            event.function = {4};
    }
    events.push_back(event);
    return *this;
}

ProcessBuilder& ProcessBuilder::add(Kind kind, std::uint64_t address, std::uint64_t bytes,
                                    std::uint64_t object, std::uint64_t extra) {
    Event e;
    e.kind = kind;
    e.address = {address};
    e.bytes = {bytes};
    e.object = {object};
    e.extra = extra;
    return event(e);
}

ProcessBuilder& ProcessBuilder::ask(Kind kind, std::uint64_t address, std::uint64_t bytes,
                                    std::uint64_t object, std::uint64_t extra, unsigned flags) {
    add(kind, address, bytes, object, extra);
    session_->trace().events[index_].edit_last().flags = static_cast<std::uint16_t>(flags);
    return *this;
}

ProcessBuilder& ProcessBuilder::thread(std::int32_t id) {
    thread_ = id;
    return *this;
}
ProcessBuilder& ProcessBuilder::linear(std::uint64_t address, std::uint64_t bytes, std::uint64_t context) {
    return add(Kind::kLinearAcquired, address, bytes, context, 0);
}
ProcessBuilder& ProcessBuilder::free(std::uint64_t address) {
    return add(Kind::kLinearReleased, address, 0, kContext, 0);
}
ProcessBuilder& ProcessBuilder::reserve(std::uint64_t address, std::uint64_t bytes) {
    return add(Kind::kReserved, address, bytes, 0, 0);
}
ProcessBuilder& ProcessBuilder::unreserve(std::uint64_t address, std::uint64_t bytes) {
    return add(Kind::kReservationFreed, address, bytes, 0, 0);
}
ProcessBuilder& ProcessBuilder::create(std::uint64_t handle, std::uint64_t bytes) {
    return add(Kind::kHandleCreated, 0, bytes, handle, wire::pack_location(1, 0, 0));
}
ProcessBuilder& ProcessBuilder::release(std::uint64_t handle) {
    return add(Kind::kHandleReleased, 0, 0, handle, 0);
}
ProcessBuilder& ProcessBuilder::retain(std::uint64_t handle, std::uint64_t address) {
    return add(Kind::kHandleRetained, address, 0, handle, 0);
}
ProcessBuilder& ProcessBuilder::map(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle) {
    return add(Kind::kMapped, address, bytes, handle, 0);
}
ProcessBuilder& ProcessBuilder::unmap(std::uint64_t address, std::uint64_t bytes) {
    return add(Kind::kUnmapped, address, bytes, 0, 0);
}
ProcessBuilder& ProcessBuilder::touch(std::uint64_t address, std::uint64_t bytes) {
    return add(Kind::kTouched, address, bytes, 0, 0);
}
ProcessBuilder& ProcessBuilder::pool_take(std::uint64_t address, std::uint64_t bytes, std::uint64_t pool,
                                          std::uint64_t stream) {
    return add(Kind::kPoolAcquired, address, bytes, pool, stream);
}
ProcessBuilder& ProcessBuilder::pool_give(std::uint64_t address, std::uint64_t stream) {
    return add(Kind::kPoolReleased, address, 0, 0, stream);
}
ProcessBuilder& ProcessBuilder::synchronize(std::uint64_t stream) {
    return add(Kind::kSynchronized, 0, 0, stream, kContext);
}

ProcessBuilder& ProcessBuilder::failed(std::uint16_t result) {
    Event& event = session_->trace().events[index_].edit_last();
    event.result = result;
    failed_sequence_ = event.sequence.value;
    return *this;
}
ProcessBuilder& ProcessBuilder::snapshot(std::uint64_t free, std::uint64_t total, std::int16_t device) {
    return ask(Kind::kDeviceMemory, free, total, kContext, 0).on(device);
}
ProcessBuilder& ProcessBuilder::on(std::int16_t device) {
    session_->trace().events[index_].edit_last().device = device;
    return *this;
}
ProcessBuilder& ProcessBuilder::flagged(unsigned flags) {
    Event& event = session_->trace().events[index_].edit_last();
    event.flags = static_cast<std::uint16_t>(event.flags | flags);
    return *this;
}
ProcessBuilder& ProcessBuilder::another_device(std::uint64_t capacity, char uuid) {
    trace::Device& device = *process().add_devices();
    device.set_ordinal(static_cast<std::uint32_t>(process().devices_size() - 1));
    device.set_uuid(std::string(16, uuid));
    device.set_capacity_bytes(capacity);
    device.set_minimum_granularity_bytes(2 * kMiB);
    return *this;
}
ProcessBuilder& ProcessBuilder::snapshot_pool(std::uint64_t pool, std::uint64_t used, std::uint64_t reserved,
                                              std::uint64_t maximum) {
    ask(Kind::kPoolState, used, reserved, pool, UINT64_MAX);
    return ask(Kind::kPoolHigh, used, reserved, pool, maximum);
}
ProcessBuilder& ProcessBuilder::snapshot_end(unsigned flags, std::uint64_t pools_not_asked) {
    return ask(Kind::kFailureSnapshotEnd, 0, pools_not_asked, failed_sequence_, 0).flagged(flags);
}

ProcessBuilder& ProcessBuilder::snapshot_graphs(std::uint64_t used, std::uint64_t reserved,
                                                std::int16_t device) {
    return ask(Kind::kGraphMemory, used, reserved, used, reserved).on(device);
}
namespace {
constexpr unsigned kAsked = wire::kByShim | wire::kSample;
}
ProcessBuilder& ProcessBuilder::sample(std::uint64_t free, std::uint64_t total, std::int16_t device) {
    return ask(Kind::kDeviceMemory, free, total, kContext, 0, kAsked).on(device);
}
ProcessBuilder& ProcessBuilder::sample_pool(std::uint64_t pool, std::uint64_t used, std::uint64_t reserved) {
    return ask(Kind::kPoolState, used, reserved, pool, UINT64_MAX, kAsked);
}
ProcessBuilder& ProcessBuilder::sample_graphs(std::uint64_t used, std::uint64_t reserved,
                                              std::int16_t device) {
    return ask(Kind::kGraphMemory, used, reserved, used, reserved, kAsked).on(device);
}
ProcessBuilder& ProcessBuilder::sample_end(std::uint64_t pools_not_asked) {
    return ask(Kind::kSampleEnd, static_cast<std::uint64_t>(wire::SampleReason::kTime), pools_not_asked, 0, 0,
               kAsked);
}
ProcessBuilder& ProcessBuilder::probe(wire::ProbeMechanism mechanism, std::uint64_t bytes,
                                      std::uint16_t result) {
    ask(Kind::kProbe, static_cast<std::uint64_t>(mechanism), bytes, failed_sequence_, 2 * kMiB,
        wire::kByShim);
    session_->trace().events[index_].edit_last().result = result;
    return *this;
}
ProcessBuilder& ProcessBuilder::probes_end(wire::ProbesEnd end) {
    return ask(Kind::kProbesEnded, static_cast<std::uint64_t>(end), 3'000'000, failed_sequence_, 64 * kMiB,
               wire::kByShim);
}
ProcessBuilder& ProcessBuilder::call(Kind kind, std::uint64_t address, std::uint64_t bytes,
                                     std::uint64_t object, std::uint64_t extra) {
    return add(kind, address, bytes, object, extra);
}
ProcessBuilder& ProcessBuilder::lasted(std::uint64_t early_ns, std::uint64_t late_ns) {
    Event& event = session_->trace().events[index_].edit_last();
    event.start.value -= early_ns;
    event.duration_ns += early_ns + late_ns;
    return *this;
}
ProcessBuilder& ProcessBuilder::stack(std::uint32_t id) {
    session_->trace().events[index_].edit_last().stack = id;
    return *this;
}

std::uint64_t ProcessBuilder::last_sequence() const {
    return session_->trace().events[index_].back().sequence.value;
}
trace::Process& ProcessBuilder::process() { return session_->trace().processes[index_]; }
trace::Loss& ProcessBuilder::loss() { return session_->trace().losses[index_]; }

}  // namespace fragscope::test
