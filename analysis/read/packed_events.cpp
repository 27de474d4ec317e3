#include "analysis/read/packed_events.h"

#include <algorithm>
#include <array>

#include "analysis/kinds.h"
#include "analysis/read/varint.h"

namespace fragscope::analysis {

namespace {

// An event as numbers: most differ little from those of the event before.
constexpr std::size_t kFields = 15;
using Numbers = std::array<std::uint64_t, kFields>;

Numbers numbers_of(const Event& event) {
    return {event.sequence.value,
            event.start.value,
            event.duration_ns,
            static_cast<std::uint64_t>(event.kind),
            event.function.value,
            event.result,
            event.flags,
            static_cast<std::uint64_t>(event.device),
            static_cast<std::uint64_t>(event.thread),
            event.stack,
            event.address.value,
            event.bytes.value,
            event.object.value,
            event.extra,
            event.process.value};
}

Event event_of(const Numbers& numbers) {
    Event event;
    event.sequence = {numbers[0]};
    event.start = {numbers[1]};
    event.duration_ns = numbers[2];
    event.kind = static_cast<wire::Kind>(numbers[3]);
    event.function = {static_cast<std::uint32_t>(numbers[4])};
    event.result = static_cast<std::uint16_t>(numbers[5]);
    event.flags = static_cast<std::uint16_t>(numbers[6]);
    event.device = static_cast<std::int16_t>(numbers[7]);
    event.thread = static_cast<std::int32_t>(numbers[8]);
    event.stack = static_cast<std::uint32_t>(numbers[9]);
    event.address = {numbers[10]};
    event.bytes = {numbers[11]};
    event.object = {numbers[12]};
    event.extra = numbers[13];
    event.process = {static_cast<std::uint32_t>(numbers[14])};
    return event;
}

void put(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
}

std::uint64_t zigzag(std::uint64_t difference) {
    return (difference << 1) ^ (0 - (difference >> 63));
}

}  // namespace

void PackedEvents::add(const Event& event) {
    open_.push_back(event);
    ++size_;
    if (open_.size() == kEventsInBlock) pack();
}

void PackedEvents::finish() {
    if (!open_.empty()) pack();
    std::vector<Event>().swap(open_);
}

void PackedEvents::pack() {
    BlockFacts facts;
    facts.first = facts_.empty() ? 0 : facts_.back().first + facts_.back().count;
    facts.count = open_.size();
    std::string bytes;
    Numbers before{};
    for (const Event& event : open_) {
        const Numbers numbers = numbers_of(event);
        // Which of them differ, then by how much.
        std::uint64_t changed = 0;
        for (std::size_t i = 0; i < kFields; ++i) changed |= static_cast<std::uint64_t>(numbers.at(i) != before.at(i)) << i;
        put(bytes, changed);
        for (std::size_t i = 0; i < kFields; ++i)
            if (numbers.at(i) != before.at(i)) put(bytes, zigzag(numbers.at(i) - before.at(i)));
        before = numbers;
        facts.kinds.set(static_cast<std::size_t>(event.kind));
        facts.flags = static_cast<std::uint16_t>(facts.flags | event.flags);
        facts.failures = facts.failures || event.failed() || event.kind == wire::Kind::kBlockRefused;
        if (acquires(event.kind)) facts.earliest_acquired_ns = std::min(facts.earliest_acquired_ns, event.start.value);
        facts.latest_ns = std::max(facts.latest_ns, event.start.value + event.duration_ns);
    }
    bytes.append(kLongestVarint, '\0');  // what next_varint() may look at
    bytes.shrink_to_fit();
    facts_.push_back(facts);
    packed_.push_back(std::move(bytes));
    open_.clear();
}

std::shared_ptr<const std::vector<Event>> PackedEvents::load(std::size_t block) const {
    auto out = std::make_shared<std::vector<Event>>();
    out->reserve(facts_[block].count);
    const auto* at = reinterpret_cast<const unsigned char*>(packed_[block].data());
    Numbers numbers{};
    for (std::size_t i = 0; i < facts_[block].count; ++i) {
        const std::uint64_t changed = next_varint(at);
        for (std::size_t field = 0; field < kFields; ++field)
            if ((changed >> field & 1) != 0)
                numbers.at(field) += static_cast<std::uint64_t>(unzigzag(next_varint(at)));
        out->push_back(event_of(numbers));
    }
    return out;
}

}  // namespace fragscope::analysis
