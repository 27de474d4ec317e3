#include "analysis/read/batch_columns.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "analysis/read/varint.h"
#include "proto/trace.pb.h"

namespace fragscope::analysis {

namespace {

using trace::EventBatch;

constexpr std::uint32_t kNumber = 0;  // protobuf's wire types
constexpr std::uint32_t kLength = 2;

// Reads fields one after the other; every read says whether the bytes were there.
class Fields {
  public:
    explicit Fields(std::span<const unsigned char> bytes) : bytes_(bytes) {}

    bool at_end() const { return bytes_.empty(); }
    std::optional<std::uint64_t> number() {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < std::min(bytes_.size(), kLongestVarint); ++i) {
            value |= static_cast<std::uint64_t>(bytes_[i] & 0x7f) << (7 * i);
            if (bytes_[i] >= 0x80) continue;
            bytes_ = bytes_.subspan(i + 1);
            return value;
        }
        return std::nullopt;
    }
    std::optional<std::span<const unsigned char>> bytes() {
        const auto length = number();
        if (!length || *length > bytes_.size()) return std::nullopt;
        const auto out = bytes_.first(static_cast<std::size_t>(*length));
        bytes_ = bytes_.subspan(out.size());
        return out;
    }

  private:
    std::span<const unsigned char> bytes_;
};

bool take_threads(std::span<const unsigned char> bytes, std::vector<std::int32_t>& out) {
    Fields packed(bytes);
    while (!packed.at_end()) {
        const auto value = packed.number();
        if (!value) return false;
        out.push_back(static_cast<std::int32_t>(*value));
    }
    return true;
}

enum class Names { kUnchecked, kText };

// Whether the message is encoded as the protobuf library would encode it, as far as matters here.
bool take_usual(std::span<const unsigned char> message, Names names, BatchColumns& out) {
    Fields chunk(message);
    if (chunk.number() != std::uint64_t{trace::Chunk::kEventsFieldNumber << 3 | kLength}) return false;
    const auto body = chunk.bytes();
    if (!body || !chunk.at_end()) return false;
    std::uint32_t seen = 0;  // by field
    for (Fields batch(*body); !batch.at_end();) {
        const std::uint64_t tag = batch.number().value_or(0);
        const std::uint64_t field = tag >> 3;
        if (field == 0 || field > EventBatch::kCompleteBelowFieldNumber) return false;
        const bool again = (seen >> field & 1) != 0;
        seen |= 1u << field;
        if (again && field != EventBatch::kFunctionNamesFieldNumber) return false;
        if (field == EventBatch::kProcessFieldNumber || field == EventBatch::kCountFieldNumber ||
            field == EventBatch::kCompleteBelowFieldNumber) {
            const auto value = batch.number();
            if ((tag & 7) != kNumber || !value) return false;
            if (field == EventBatch::kProcessFieldNumber) out.process = static_cast<std::uint32_t>(*value);
            if (field == EventBatch::kCountFieldNumber) out.count = static_cast<std::uint32_t>(*value);
            continue;
        }
        const auto bytes = (tag & 7) == kLength ? batch.bytes() : std::nullopt;
        if (!bytes) return false;
        if (field == EventBatch::kFunctionNamesFieldNumber) {
            const auto is_ascii = [](unsigned char c) { return c < 0x80; };
            // Whether other bytes are text in UTF-8 the library knows.
            if (names == Names::kUnchecked && !std::all_of(bytes->begin(), bytes->end(), is_ascii))
                return false;
            const char* name = reinterpret_cast<const char*>(bytes->data());
            out.functions.emplace_back(name, bytes->size());
        } else if (field == EventBatch::kThreadIdsFieldNumber) {
            if (!take_threads(*bytes, out.threads)) return false;
        } else {
            const std::size_t count = count_varints(*bytes);
            if (count == SIZE_MAX) return false;
            out.columns[field] = {bytes->data(), bytes->data() + bytes->size(), count};
        }
    }
    return true;
}

std::span<const unsigned char> bytes_of(const PaddedBytes& message) {
    return {reinterpret_cast<const unsigned char*>(message.data()), message.size()};
}

}  // namespace

void PaddedBytes::resize(std::size_t size) {
    size_ = size;
    if (bytes_.size() < size + kLongestVarint) bytes_.resize(size + kLongestVarint);
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(size), kLongestVarint, '\0');
}

Taken take_apart(PaddedBytes& message, BatchColumns& out) {
    out = {};
    if (take_usual(bytes_of(message), Names::kUnchecked, out)) return Taken::kDone;
    out = {};
    trace::Chunk chunk;
    if (!chunk.ParseFromArray(message.data(), static_cast<int>(message.size()))) return Taken::kNoMessage;
    if (!chunk.has_events()) return Taken::kNoEvents;
    chunk.DiscardUnknownFields();
    const std::string usual = chunk.SerializeAsString();
    message.resize(usual.size());
    std::memcpy(message.data(), usual.data(), usual.size());
    return take_usual(bytes_of(message), Names::kText, out) ? Taken::kDone : Taken::kNoMessage;
}

}  // namespace fragscope::analysis
