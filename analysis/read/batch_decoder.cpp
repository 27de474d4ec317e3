#include "analysis/read/batch_decoder.h"

#include <fmt/format.h>

#include <limits>

#include "proto/chunk.h"

namespace fragscope::analysis {

namespace {

// A column of `count` values, or an empty one that stands for zeros.
template <typename Values>
class Column {
  public:
    explicit Column(const Values& values) : values_(values.empty() ? nullptr : values.data()) {}
    auto operator[](std::size_t i) const {
        return values_ != nullptr ? values_[i] : decltype(values_[i] + 0){0};
    }

  private:
    decltype(std::declval<const Values&>().data()) values_;
};

template <typename Values>
std::string check_length(const char* name, const Values& values, std::uint32_t count) {
    if (values.empty() || static_cast<std::uint32_t>(values.size()) == count) return "";
    return fmt::format("column {} has {} entries, expected {} or none", name, values.size(), count);
}

template <typename Values>
std::string check_below(const char* name, const Values& values, std::uint64_t limit) {
    for (const auto value : values)
        if (value >= limit)
            return fmt::format("column {} holds {}, expected less than {}", name, value, limit);
    return "";
}

std::string check_sequence(const trace::EventBatch& batch) {
    if (batch.sequence().empty()) return "the events have no sequence numbers";
    std::uint64_t sequence = 0;
    for (const std::int64_t delta : batch.sequence()) {
        const std::uint64_t next = sequence + static_cast<std::uint64_t>(delta);
        if (next == 0 || next < sequence)
            return fmt::format("sequence number {} after {}, expected them in order and from 1", next,
                               sequence);
        sequence = next;
    }
    return "";
}

std::string check(const trace::EventBatch& b, std::uint64_t max_events) {
    const std::uint32_t count = b.count();
    if (count == 0 || count > trace::kMaxEventsPerBatch || count > max_events)
        return fmt::format("a batch of {} events, expected 1 to {}", count,
                           std::min<std::uint64_t>(trace::kMaxEventsPerBatch, max_events));
    if (b.process() >= trace::kMaxProcesses)
        return fmt::format("process {}, expected less than {}", b.process(), trace::kMaxProcesses);
    constexpr std::uint64_t kU16 = std::uint64_t{1} << 16;
    constexpr std::uint64_t kKinds = static_cast<std::uint64_t>(wire::kLastKind) + 1;
    for (const std::string& wrong :
         {check_length("sequence", b.sequence(), count),
          check_length("start_ns", b.start_ns(), count),
          check_length("duration_ns", b.duration_ns(), count),
          check_length("kind", b.kind(), count),
          check_length("function", b.function(), count),
          check_length("thread", b.thread(), count),
          check_length("result", b.result(), count),
          check_length("device", b.device(), count),
          check_length("flags", b.flags(), count),
          check_length("stack", b.stack(), count),
          check_length("address", b.address(), count),
          check_length("bytes", b.bytes(), count),
          check_length("object", b.object(), count),
          check_length("extra", b.extra(), count),
          check_sequence(b),
          check_below("kind", b.kind(), kKinds),
          check_below("result", b.result(), kU16),
          check_below("device", b.device(), 256),
          check_below("flags", b.flags(), kU16),
          check_below("function", b.function(), static_cast<std::uint64_t>(b.function_names_size())),
          check_below("thread", b.thread(), static_cast<std::uint64_t>(b.thread_ids_size()))})
        if (!wrong.empty()) return wrong;
    // An empty index column stands for zeros, and these too must name an entry.
    if (b.function_names().empty()) return "the events have no function names";
    if (b.thread_ids().empty()) return "the events have no thread ids";
    return "";
}

// Undoes the delta coding; wraps as the writer wrapped.
template <typename Values>
class Undelta {
  public:
    explicit Undelta(const Values& values) : column_(values) {}
    std::uint64_t operator[](std::size_t i) { return value_ += static_cast<std::uint64_t>(column_[i]); }

  private:
    Column<Values> column_;
    std::uint64_t value_ = 0;
};

}  // namespace

FunctionId FunctionNames::intern(const std::string& name) {
    const auto [entry, added] = ids_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (added) names_.push_back(name);
    return {entry->second};
}

std::string decode_batch(const trace::EventBatch& b, std::uint64_t max_events, FunctionNames& names,
                         std::vector<Event>& out) {
    if (std::string wrong = check(b, max_events); !wrong.empty()) return wrong;
    std::vector<FunctionId> functions;
    for (const std::string& name : b.function_names()) functions.push_back(names.intern(name));

    Undelta sequence(b.sequence());
    Undelta start(b.start_ns());
    Undelta address(b.address());
    Undelta bytes(b.bytes());
    Undelta object(b.object());
    Undelta extra(b.extra());
    const Column duration(b.duration_ns());
    const Column kind(b.kind());
    const Column function(b.function());
    const Column thread(b.thread());
    const Column result(b.result());
    const Column device(b.device());
    const Column flags(b.flags());
    const Column stack(b.stack());
    const std::size_t first = out.size();
    out.resize(first + b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        Event& event = out[first + i];
        event.process = {b.process()};
        event.function = functions[function[i]];
        event.sequence = {sequence[i]};
        event.start = {start[i]};
        event.duration_ns = duration[i];
        event.kind = static_cast<wire::Kind>(kind[i]);
        event.result = static_cast<std::uint16_t>(result[i]);
        event.flags = static_cast<std::uint16_t>(flags[i]);
        event.device = static_cast<std::int16_t>(static_cast<int>(device[i]) - 1);
        event.thread = b.thread_ids(static_cast<int>(thread[i]));
        event.stack = stack[i];
        event.address = {address[i]};
        event.bytes = {bytes[i]};
        event.object = {object[i]};
        event.extra = extra[i];
    }
    return "";
}

}  // namespace fragscope::analysis
