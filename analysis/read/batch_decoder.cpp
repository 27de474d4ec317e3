#include "analysis/read/batch_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "analysis/kinds.h"
#include "analysis/read/varint.h"
#include "proto/chunk.h"
#include "proto/trace.pb.h"

namespace fragscope::analysis {

namespace {

using trace::EventBatch;

constexpr std::array<const char*, BatchColumns::kLast + 1> kNames = {
    "",       "",       "",       "",      "",      "sequence", "start_ns", "duration_ns", "kind", "function",
    "thread", "result", "device", "flags", "stack", "address",  "bytes",    "object",      "extra"};

const Column& column(const BatchColumns& batch, int field) {
    return batch.columns[static_cast<std::size_t>(field)];
}

// Walks over the numbers of a column, or of one that is left empty, which stands for zeros.
// What does not fit into a Value is cut off, as protobuf does it.
template <typename Value>
class Numbers {
  public:
    explicit Numbers(const Column& column) : at_(column.begin), there_(!column.empty()) {}
    Value next() { return there_ ? static_cast<Value>(next_varint(at_)) : 0; }
    void skip(std::size_t count) {
        if (!there_) return;
        for (std::size_t i = 0; i < count; ++i) next_varint(at_);
    }

  private:
    const unsigned char* at_;
    bool there_;
};

// Undoes the delta coding; wraps as the writer wrapped.
class Sums {
  public:
    explicit Sums(const Column& column) : numbers_(column) {}
    std::uint64_t next() { return sum_ += static_cast<std::uint64_t>(unzigzag(numbers_.next())); }

  private:
    Numbers<std::uint64_t> numbers_;
    std::uint64_t sum_ = 0;
};

std::string check_below(const BatchColumns& batch, int field, std::uint64_t limit) {
    const Column& values = column(batch, field);
    if (values.empty()) return "";
    if (values.count == static_cast<std::size_t>(values.end - values.begin)) {  // each in one byte
        const unsigned char most = *std::max_element(values.begin, values.end);
        if (most < limit) return "";
    }
    Numbers<std::uint32_t> numbers(values);
    for (std::size_t i = 0; i < values.count; ++i) {
        const std::uint32_t value = numbers.next();
        if (value >= limit)
            return fmt::format("column {} holds {}, expected less than {}",
                               kNames[static_cast<std::size_t>(field)], value, limit);
    }
    return "";
}

std::string check_sequence(const BatchColumns& batch, BatchFacts* facts) {
    if (column(batch, EventBatch::kSequenceFieldNumber).empty()) return "the events have no sequence numbers";
    Sums sums(column(batch, EventBatch::kSequenceFieldNumber));
    std::uint64_t sequence = 0;
    for (std::size_t i = 0; i < batch.count; ++i) {
        const std::uint64_t next = sums.next();
        if (next == 0 || next < sequence)
            return fmt::format("sequence number {} after {}, expected them in order and from 1", next,
                               sequence);
        if (i % kSampled == 0 && facts != nullptr) facts->samples.push_back(next);
        sequence = next;
    }
    if (facts == nullptr) return "";
    facts->first = facts->samples.front();
    facts->last = sequence;
    return "";
}

std::string check_shape(const BatchColumns& b, std::uint64_t max_events) {
    if (b.count == 0 || b.count > trace::kMaxEventsPerBatch || b.count > max_events)
        return fmt::format("a batch of {} events, expected 1 to {}", b.count,
                           std::min<std::uint64_t>(trace::kMaxEventsPerBatch, max_events));
    if (b.process >= trace::kMaxProcesses)
        return fmt::format("process {}, expected less than {}", b.process, trace::kMaxProcesses);
    for (std::size_t field = BatchColumns::kFirst; field <= BatchColumns::kLast; ++field) {
        const std::size_t entries = b.columns[field].count;
        if (entries != 0 && entries != b.count)
            return fmt::format("column {} has {} entries, expected {} or none", kNames[field], entries,
                               b.count);
    }
    return "";
}

void note_facts(const BatchColumns& b, BlockFacts& block) {
    block.count = b.count;
    Numbers<std::uint32_t> kinds(column(b, EventBatch::kKindFieldNumber));
    Numbers<std::uint32_t> results(column(b, EventBatch::kResultFieldNumber));
    Sums starts(column(b, EventBatch::kStartNsFieldNumber));
    Numbers<std::uint64_t> durations(column(b, EventBatch::kDurationNsFieldNumber));
    std::uint64_t low_kinds = 0;
    std::uint64_t high_kinds = 0;
    for (std::size_t i = 0; i < b.count; ++i) {
        const std::uint32_t kind = kinds.next();
        (kind < 64 ? low_kinds : high_kinds) |= std::uint64_t{1} << (kind & 63);
        const std::uint64_t start = starts.next();
        if (acquires(static_cast<wire::Kind>(kind)))
            block.earliest_acquired_ns = std::min(block.earliest_acquired_ns, start);
        block.latest_ns = std::max(block.latest_ns, start + durations.next());
    }
    static_assert(Kinds().size() <= 128);
    block.kinds = Kinds(low_kinds);
    for (std::size_t kind = 64; kind < block.kinds.size(); ++kind)
        if ((high_kinds >> (kind - 64) & 1) != 0) block.kinds.set(kind);
    Numbers<std::uint16_t> flags(column(b, EventBatch::kFlagsFieldNumber));
    for (std::size_t i = 0; i < column(b, EventBatch::kFlagsFieldNumber).count; ++i)
        block.flags = static_cast<std::uint16_t>(block.flags | flags.next());
    block.failures = block.kinds.test(static_cast<std::size_t>(wire::Kind::kBlockRefused));
    if (column(b, EventBatch::kResultFieldNumber).empty()) return;
    for (std::size_t i = 0; i < b.count; ++i) block.failures |= results.next() != 0;
}

// One field of an event and the numbers that it is set to, event after event.
template <typename From, typename Set>
struct Field {
    From from;
    Set set;
};
template <typename From, typename Set>
Field(From, Set) -> Field<From, Set>;

// Sets these fields of all these events side by side: where a number begins is known once the one before it
// is decoded, so a column alone would wait for itself all the time.
template <typename... Fields>
void set_together(std::span<Event> events, Fields&... fields) {
    // Copies, which no event can overlap.
    [&](auto... from) {
        for (Event& event : events) (fields.set(event, from.next()), ...);
        ((fields.from = from), ...);
    }(fields.from...);
}

}  // namespace

FunctionId FunctionNames::intern(std::string_view name) {
    const auto [entry, added] =
        ids_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
    if (added) names_.emplace_back(name);
    return {entry->second};
}

std::string check_batch(const BatchColumns& b, std::uint64_t max_events, BatchFacts* facts) {
    if (std::string wrong = check_shape(b, max_events); !wrong.empty()) return wrong;
    if (std::string wrong = check_sequence(b, facts); !wrong.empty()) return wrong;
    constexpr std::uint64_t kU16 = std::uint64_t{1} << 16;
    constexpr std::uint64_t kKinds = static_cast<std::uint64_t>(wire::kLastKind) + 1;
    const std::pair<int, std::uint64_t> limits[] = {{EventBatch::kKindFieldNumber, kKinds},
                                                    {EventBatch::kResultFieldNumber, kU16},
                                                    {EventBatch::kDeviceFieldNumber, 256},
                                                    {EventBatch::kFlagsFieldNumber, kU16},
                                                    {EventBatch::kFunctionFieldNumber, b.functions.size()},
                                                    {EventBatch::kThreadFieldNumber, b.threads.size()}};
    for (const auto& [field, limit] : limits)
        if (std::string wrong = check_below(b, field, limit); !wrong.empty()) return wrong;
    // An empty index column stands for zeros, and these too must name an entry.
    if (b.functions.empty()) return "the events have no function names";
    if (b.threads.empty()) return "the events have no thread ids";
    if (facts != nullptr) note_facts(b, facts->block);
    return "";
}

void decode_batch(const BatchColumns& b, const std::vector<FunctionId>& functions, std::size_t from,
                  std::size_t to, Event* out) {
    // So many events at a time stay in the nearest cache while column after column is set.
    constexpr std::size_t kTogether = 256;
    const auto sums = [&](int field) {
        Sums values(column(b, field));
        for (std::size_t i = 0; i < from; ++i) values.next();
        return values;
    };
    const auto numbers = [&]<typename Value>(Value, int field) {
        Numbers<Value> values(column(b, field));
        values.skip(from);
        return values;
    };
    constexpr std::uint32_t kNarrow = 0;
    constexpr std::uint64_t kWide = 0;
    Field sequence{sums(EventBatch::kSequenceFieldNumber),
                   [](Event& e, std::uint64_t v) { e.sequence = {v}; }};
    Field start{sums(EventBatch::kStartNsFieldNumber), [](Event& e, std::uint64_t v) { e.start = {v}; }};
    Field duration{numbers(kWide, EventBatch::kDurationNsFieldNumber),
                   [](Event& e, std::uint64_t v) { e.duration_ns = v; }};
    Field kind{numbers(kNarrow, EventBatch::kKindFieldNumber),
               [](Event& e, std::uint32_t v) { e.kind = static_cast<wire::Kind>(v); }};
    Field function{numbers(kNarrow, EventBatch::kFunctionFieldNumber),
                   [names = functions.data()](Event& e, std::uint32_t v) { e.function = names[v]; }};
    Field thread{numbers(kNarrow, EventBatch::kThreadFieldNumber),
                 [ids = b.threads.data()](Event& e, std::uint32_t v) { e.thread = ids[v]; }};
    Field result{numbers(kNarrow, EventBatch::kResultFieldNumber),
                 [](Event& e, std::uint32_t v) { e.result = static_cast<std::uint16_t>(v); }};
    Field device{numbers(kNarrow, EventBatch::kDeviceFieldNumber), [](Event& e, std::uint32_t v) {
                     e.device = static_cast<std::int16_t>(static_cast<int>(v) - 1);
                 }};
    Field flags{numbers(kNarrow, EventBatch::kFlagsFieldNumber),
                [](Event& e, std::uint32_t v) { e.flags = static_cast<std::uint16_t>(v); }};
    Field stack{numbers(kNarrow, EventBatch::kStackFieldNumber),
                [](Event& e, std::uint32_t v) { e.stack = v; }};
    Field address{sums(EventBatch::kAddressFieldNumber), [](Event& e, std::uint64_t v) { e.address = {v}; }};
    Field bytes{sums(EventBatch::kBytesFieldNumber), [](Event& e, std::uint64_t v) { e.bytes = {v}; }};
    Field object{sums(EventBatch::kObjectFieldNumber), [](Event& e, std::uint64_t v) { e.object = {v}; }};
    Field extra{sums(EventBatch::kExtraFieldNumber), [](Event& e, std::uint64_t v) { e.extra = v; }};
    const ProcessIndex process{b.process};
    for (std::size_t at = from; at < to; at += kTogether) {
        const std::span<Event> events(out + (at - from), std::min(kTogether, to - at));
        for (Event& event : events) event.process = process;
        set_together(events, start, address, bytes);
        set_together(events, duration, object, extra, stack);
        set_together(events, sequence, kind, function, thread);
        set_together(events, result, device, flags);
    }
}

std::vector<std::uint64_t> sequences_of(const BatchColumns& b) {
    std::vector<std::uint64_t> out(b.count);
    Sums sequence(column(b, EventBatch::kSequenceFieldNumber));
    for (std::uint64_t& each : out) each = sequence.next();
    return out;
}

}  // namespace fragscope::analysis
