// The allocator prints, when it gives a request up: the request, a line for each bin, then each region with its
// chunks ("InUse at … of size …", before 2019 "Chunk at …" and all that are free behind them), a summary of what is in
// use by size, and statistics. Logs often have its end only, or the statistics; what is there counts, and
// bfc_state.cpp says what the rest leaves open.
#include "analysis/read/bfc_dump.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/read/bfc_state.h"
#include "analysis/read/message_text.h"

namespace fragscope::analysis {

namespace {

constexpr std::uint64_t kMostLinesBetween = 60;  // other lines inside of a dump
constexpr std::size_t kMostChunks = std::size_t{1} << 23;

struct Type {
    std::string_view name;
    std::uint64_t bytes;
};
// Longer names before those that they begin with.
constexpr std::array<Type, 22> kTypes = {{{"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"float16", 2},    {"float64", 8},   {"float32", 4}, {"float", 4},
                                          {"half", 2},       {"bfloat16", 2},  {"double", 8},  {"int64", 8},
                                          {"int32", 4},      {"int16", 2},     {"int8", 1},    {"uint64", 8},
                                          {"uint32", 4},     {"uint16", 2},    {"uint8", 1},   {"bool", 1},
                                          {"complex64", 8},  {"complex128", 16}, {"qint8", 1}, {"quint8", 1}}};

// "[128,225,225,3]andtypefloat": the bytes of such a tensor. Nothing: it is none, or too large.
std::optional<std::uint64_t> tensor_bytes(Cursor& at) {
    if (!at.literal("[")) return std::nullopt;
    std::uint64_t elements = 1;
    if (!at.literal("]")) {
        for (;;) {
            std::uint64_t each = 0;
            if (!at.number(each) || (each != 0 && elements > UINT64_MAX / each)) return std::nullopt;
            elements *= each;
            if (at.literal("]")) break;
            if (!at.literal(",")) return std::nullopt;
        }
    }
    if (!at.literal("andtype")) return std::nullopt;
    for (const Type& type : kTypes) {
        if (!at.rest().starts_with(type.name)) continue;
        if (elements > UINT64_MAX / type.bytes) return std::nullopt;
        at.skip(type.name.size());
        return elements * type.bytes;
    }
    return std::nullopt;
}

std::optional<std::uint64_t> take_address(std::string_view& text) {
    if (text.starts_with("0x")) text.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

// "GPU_0_bfc" of "(GPU_0_bfc)" or "byallocatorGPU_0_bfc".
std::string allocator_name(std::string_view text) {
    const std::size_t end = std::min(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"),
                                     std::min<std::size_t>(text.size(), 40));
    return std::string(text.substr(0, end));
}

class BfcReader final : public MessageReader {
  public:
    using MessageReader::MessageReader;

    void line(const TextPiece& piece) override {
        if (dump_.anything() && piece.line > dump_.last_line + kMostLinesBetween) finish();
        // All of its lines have one of these in them.
        if (piece.text.find("of size") == std::string_view::npos && piece.text.find(':') == std::string_view::npos &&
            piece.text.find("out of memory") == std::string_view::npos && piece.text.find("OOM") == std::string_view::npos)
            return;
        squeezed_.clear();
        append_squeezed(squeezed_, piece.text);
        if (begins(piece.line) || chunk() || total() || by_size() || statistics(piece) || tensor()) {
            if (dump_.first_line == 0) dump_.first_line = piece.line;
            dump_.last_line = piece.line;
        }
    }

    void end() override { finish(); }

  private:
    // The text behind `word`; empty where it is not in the line.
    std::string_view behind(std::string_view word) const {
        const std::size_t at = squeezed_.find(word);
        return at == std::string::npos ? std::string_view() : std::string_view(squeezed_).substr(at + word.size());
    }

    bool begins(std::uint64_t line) {
        std::string_view rest = behind("anoutofmemorytryingtoallocate");
        if (rest.empty()) return false;
        // Tried on the way to something smaller; nobody failed.
        if (rest.find("isnotafailure") != std::string_view::npos) return false;
        const auto asked = take_amount(rest);
        if (!asked) return false;
        const bool closes = dump_.states_memory() && !dump_.request && rest.find("Seelogs") != std::string_view::npos;
        if (!closes && dump_.anything()) finish();
        dump_.first_line = dump_.first_line == 0 ? line : dump_.first_line;
        meet(dump_.request, *asked, "the request");
        if (rest.starts_with("(roundedto")) {
            rest.remove_prefix(10);
            if (const auto rounded = take_amount(rest)) dump_.rounded = *rounded;
        }
        std::string_view name = behind("Allocator(");
        if (!name.empty()) dump_.allocator = allocator_name(name);
        return true;
    }

    bool chunk() {
        if (std::string_view rest = behind("Nextregionofsize"); !rest.empty()) {
            const auto bytes = take_number(rest);
            if (!bytes) return false;
            dump_.regions.push_back(*bytes);
            dump_.region_begins.push_back(dump_.chunks.size());
            return true;
        }
        for (const auto& [word, in_use] : {std::pair<std::string_view, bool>{"InUseat", true},
                                           {"Chunkat", true},
                                           {"Freeat", false}}) {
            std::string_view rest = behind(word);
            if (rest.empty()) continue;
            const auto address = take_address(rest);
            // The address takes no letter of "ofsize": none of them is a digit.
            if (!address || !rest.starts_with("ofsize")) continue;
            rest.remove_prefix(6);
            const auto bytes = take_number(rest);
            if (!bytes || *bytes == 0 || *address > UINT64_MAX - *bytes) continue;
            if (dump_.chunks.size() < kMostChunks) dump_.chunks.push_back({*address, *bytes, in_use});
            return true;
        }
        return false;
    }

    bool total() {
        if (std::string_view rest = behind("SumTotalofin-usechunks:"); !rest.empty()) {
            const auto bytes = take_amount(rest);
            if (bytes) meet(dump_.in_use_in_words, *bytes, "the sum of what is in use");
            return bytes.has_value();
        }
        std::string_view rest = behind("total_region_allocated_bytes_:");
        if (rest.empty()) rest = behind("Totalbytesinpool:");
        if (rest.empty()) return false;
        dump_.pool = take_number(rest);
        Cursor at(rest);
        std::uint64_t limit = 0;
        if (at.literal("memory_limit_:") && at.number(limit)) dump_.limit = limit;
        return dump_.pool.has_value();
    }

    // "4 Chunks of size 256 totalling 1.0KiB"
    bool by_size() {
        const std::size_t word = squeezed_.find("Chunksofsize");
        if (word == std::string::npos) return false;
        std::size_t begin = word;
        while (begin > 0 && squeezed_[begin - 1] >= '0' && squeezed_[begin - 1] <= '9') --begin;
        std::string_view count_text = std::string_view(squeezed_).substr(begin, word - begin);
        std::string_view rest = std::string_view(squeezed_).substr(word + 12);
        const auto count = take_number(count_text);
        const auto bytes = take_number(rest);
        if (!count || !bytes || !rest.starts_with("totalling")) return false;
        const std::uint64_t before = dump_.in_use_by_size.value_or(0);
        if (*bytes != 0 && *count > (UINT64_MAX - before) / *bytes) return false;
        dump_.in_use_by_size = before + *count * *bytes;
        return true;
    }

    // Each on a line of its own, without a logger's prefix: "Limit:   1490198528".
    bool statistics(const TextPiece& piece) {
        std::string_view text = squeezed_;
        if (const std::size_t stats = text.find("Stats:"); stats != std::string_view::npos) {
            in_statistics_ = piece.line;
            text.remove_prefix(stats + 6);
        }
        if (in_statistics_ == 0 || piece.line > in_statistics_ + 12) return false;
        bool any = text.empty();
        const auto take = [&](std::string_view name, std::optional<std::uint64_t>& out) {
            if (!text.starts_with(name)) return;
            text.remove_prefix(name.size());
            const auto value = take_number(text);
            any = any || value.has_value();
            if (value && *value != 0) out = value;
        };
        take("Limit:", dump_.limit);
        take("InUse:", dump_.in_use);
        std::optional<std::uint64_t> not_used;
        for (const std::string_view name :
             {"MaxInUse:", "NumAllocs:", "MaxAllocSize:", "Reserved:", "PeakReserved:", "LargestFreeBlock:"})
            take(name, not_used);
        return any;
    }

    bool tensor() {
        std::string_view rest = behind("OOMwhenallocatingtensorwithshape");
        if (rest.empty()) return false;
        Cursor at(rest);
        const auto bytes = tensor_bytes(at);
        const std::size_t by = rest.find("byallocator");
        const std::string name = by == std::string_view::npos ? "" : allocator_name(rest.substr(by + 11));
        // Memory of the host is another matter.
        if (name.find("cpu") != std::string::npos) return false;
        if (bytes && dump_.request && !both(*dump_.request, Interval::exactly(*bytes))) {
            // Of another failure than the one before it.
            finish();
        }
        if (bytes) dump_.request = Interval::exactly(*bytes);
        if (!name.empty()) dump_.allocator = name;
        return bytes || !name.empty();
    }

    void meet(std::optional<Interval>& place, const Interval& amount, const char* what) {
        const auto same = place ? both(*place, amount) : amount;
        if (!same) dump_.contradictions.push_back(std::string("The dump states ") + what + " twice, and no number is both.");
        place = same.value_or(amount);
    }

    void finish() {
        in_statistics_ = 0;
        if (!dump_.anything()) {
            dump_ = BfcDump();
            return;
        }
        const auto says = dump_.states_memory() ? FoundStates::Says::kState : FoundStates::Says::kRequest;
        const std::uint64_t last = dump_.last_line;
        found().add({state_of(dump_), says, "bfc", last});
        dump_ = BfcDump();
    }

    BfcDump dump_;
    std::string squeezed_;
    std::uint64_t in_statistics_ = 0;  // the line of "Stats:"; 0: not in them
};

}  // namespace

constinit const MessageKind kBfcDump{
    "bfc-dump", "a dump of the BFC allocator (TensorFlow, XLA)",
    "\"Allocator (…) ran out of memory\", \"InUse at … of size …\", \"Sum Total of in-use chunks\", \"OOM when allocating "
    "tensor\"",
    [](FoundStates& found) -> std::unique_ptr<MessageReader> { return std::make_unique<BfcReader>(found); }};

}  // namespace fragscope::analysis
