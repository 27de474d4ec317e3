#include "tests/unit/collector/producer.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "collector/clock.h"
#include "collector/liveness.h"

namespace fragscope::test {

Producer::Producer(collector::RingHost& session, std::int32_t pid, std::uint64_t start_time) : host(session) {
    for (slot = 0; slot < collector::kProcessSlots; ++slot) {
        wire::ProcessSlot& mine = host.process_slot(slot);
        wire::SlotState expected = wire::SlotState::kFree;
        if (!mine.state.compare_exchange_strong(expected, wire::SlotState::kClaimed)) continue;
        mine.pid = pid != 0 ? pid : ::getpid();
        mine.start_time = pid != 0 ? start_time : collector::process_start_time(::getpid());
        mine.pid_namespace = collector::own_pid_namespace();
        mine.state.store(wire::SlotState::kLive);
        return;
    }
    throw std::runtime_error("no process slot");
}

wire::RingWriter Producer::ring(std::int32_t thread) {
    for (std::uint32_t i = 0; i < collector::kRings; ++i) {
        wire::RingHeader& header = host.ring(i);
        wire::SlotState expected = wire::SlotState::kFree;
        if (!header.state.compare_exchange_strong(expected, wire::SlotState::kClaimed)) continue;
        header.process = slot;
        header.thread = thread != 0 ? thread : static_cast<std::int32_t>(::syscall(SYS_gettid));
        header.state.store(wire::SlotState::kLive);
        return {&header, const_cast<wire::Record*>(host.records(i)), host.ring_records()};
    }
    throw std::runtime_error("no ring");
}

void Producer::give_back(wire::RingWriter& ring) { ring.header()->state.store(wire::SlotState::kReleased); }

wire::Record record_of(std::uint64_t sequence, wire::Kind kind) {
    wire::Record record{};
    record.sequence = sequence;
    record.start = collector::monotonic_ns();
    record.kind = kind;
    record.address = 0x1000 * sequence;
    record.bytes = 64;
    return record;
}

void put(wire::RingWriter& ring, const wire::Record& record) {
    wire::Record* slot = ring.reserve();
    if (slot == nullptr) throw std::runtime_error("the ring is full");
    *slot = record;
    ring.commit();
}

void put_text(wire::RingWriter& ring, wire::TextKind kind, std::uint16_t subject, const std::string& text,
              std::uint32_t id) {
    for (std::size_t at = 0, part = 0; at < text.size(); at += 32, ++part) {
        wire::TextRecord record{};
        record.total_bytes = static_cast<std::uint32_t>(text.size());
        record.subject = subject;
        record.part_bytes = static_cast<std::uint16_t>(std::min<std::size_t>(32, text.size() - at));
        record.kind = wire::Kind::kText;
        record.text_kind = kind;
        record.id = id;
        record.part = static_cast<std::uint16_t>(part);
        std::memcpy(record.text, text.data() + at, record.part_bytes);
        wire::Record copy;
        std::memcpy(&copy, &record, sizeof copy);
        put(ring, copy);
    }
}

std::string module_text(std::uint64_t begin, std::uint64_t end, std::uint64_t bias,
                        const std::string& build_id, const std::string& path) {
    const wire::ModuleText payload{begin, end, bias, static_cast<std::uint32_t>(build_id.size()), 0};
    return std::string(reinterpret_cast<const char*>(&payload), sizeof payload) + build_id + path;
}

std::string stack_text(std::uint32_t origin, std::uint16_t flags, const std::vector<std::uint64_t>& frames) {
    const wire::StackText payload{origin, static_cast<std::uint16_t>(frames.size()), flags};
    return std::string(reinterpret_cast<const char*>(&payload), sizeof payload) +
           std::string(reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof frames[0]);
}

}  // namespace fragscope::test
