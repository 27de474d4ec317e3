// A table tells what the allocator of one device holds, and how often memory was short there; of no request. Its
// amounts are whole units that were divided and cut, so that "1024 KB" is anything from 1024 KB to one byte below 1025.
#include "analysis/read/message_torch_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "analysis/read/message_text.h"

namespace fragscope::analysis {

namespace {

constexpr std::uint64_t kMostLines = 80;  // a table has less than fifty

struct Table {
    std::uint64_t line = 0;  // 0: none is being read
    std::uint64_t last = 0;
    std::optional<std::uint64_t> device;
    std::optional<std::uint64_t> failures;
    std::optional<Interval> allocated;
    std::optional<Interval> active;
    std::optional<Interval> requested;
    std::optional<Interval> reserved;
    std::optional<Interval> in_gaps;  // not releasable: between blocks
};

// "1024KB" as the table cuts it.
std::optional<Interval> take_cut(std::string_view text) {
    std::string_view rest = text;
    const auto whole = take_number(rest);
    if (!whole) return std::nullopt;
    std::string one = "1" + std::string(rest.substr(0, rest.find_first_not_of("KMGTPiB")));
    std::string_view unit_text = one;
    const auto unit = take_amount(unit_text);
    if (!unit || !unit_text.empty() || *whole > UINT64_MAX / *unit->low - 1) return std::nullopt;
    return Interval{*whole * *unit->low, *whole * *unit->low + *unit->low - 1};
}

class SummaryReader final : public MessageReader {
  public:
    using MessageReader::MessageReader;

    void line(const TextPiece& piece) override {
        if (table_.line != 0 && piece.line > table_.line + kMostLines) finish();
        if (table_.line == 0 && piece.text.find("memory summary") == std::string_view::npos) return;
        squeezed_.clear();
        append_squeezed(squeezed_, piece.text);
        Cursor at(squeezed_);
        if (at.find("memorysummary,deviceID", squeezed_.size())) {
            finish();
            table_.line = piece.line;
            table_.last = piece.line;
            std::uint64_t device = 0;
            if (at.number(device)) table_.device = device;
            return;
        }
        if (table_.line == 0) return;
        table_.last = piece.line;
        std::uint64_t count = 0;
        if (at.find("OOMs:", 16) && at.number(count)) table_.failures = count;
        for (const auto& [name, place] : {std::pair<std::string_view, std::optional<Interval> Table::*>{
                                              "Allocatedmemory", &Table::allocated},
                                          {"Activememory", &Table::active},
                                          {"Requestedmemory", &Table::requested},
                                          {"GPUreservedmemory", &Table::reserved},
                                          {"Non-releasablememory", &Table::in_gaps}}) {
            const std::size_t found_at = squeezed_.find(name);
            if (found_at == std::string::npos || table_.*place) continue;
            table_.*place = take_cut(std::string_view(squeezed_).substr(found_at + name.size()));
        }
        if (table_.in_gaps) finish();
    }

    void end() override { finish(); }

  private:
    void finish() {
        if (table_.line != 0 && (table_.allocated || table_.reserved)) found().add(state());
        table_ = Table();
    }

    FoundStates::Found state() const {
        ImportedState out;
        out.kind = "torch-summary";
        out.in_words = "a table of torch.cuda.memory_summary()";
        out.line = table_.line;
        Scenario& scenario = out.scenario;
        scenario.device_name = table_.device ? fmt::format("GPU {}", *table_.device) : std::string("the GPU");
        scenario.title = fmt::format("PyTorch's allocator on {}{}", scenario.device_name,
                                     table_.failures ? fmt::format(", after {} failed request{}", *table_.failures,
                                                                   *table_.failures == 1 ? "" : "s")
                                                     : std::string());
        scenario.device.context = {0, std::nullopt};
        scenario.device.other_processes = {0, std::nullopt};
        scenario.device.device_free = {0, std::nullopt};
        scenario.request.kind = ScenarioRequest::Kind::kAllocator;
        scenario.request.bytes = {0, std::nullopt};
        const Interval live = table_.allocated.value_or(Interval{0, std::nullopt});
        const Interval active = both(table_.active.value_or(live), {live.low, std::nullopt}).value_or(live);
        ScenarioSegment segment;
        segment.id = "segments";
        segment.several = true;
        segment.blocks.push_back({"live", std::nullopt, live, table_.requested, false});
        const auto waiting = part_left(active, live);
        if (waiting && waiting->low.value_or(0) != 0)
            segment.blocks.push_back({"waiting", std::nullopt, *waiting, std::nullopt, true});
        const auto unused = table_.reserved ? part_left(*table_.reserved, active) : std::nullopt;
        if (table_.reserved && !unused)
            out.warnings.push_back(fmt::format("The table contradicts itself: {} active are more than {} reserved.",
                                               in_words(active), in_words(*table_.reserved)));
        segment.unused = unused.value_or(Interval{0, std::nullopt});
        segment.bytes = table_.reserved.value_or(Interval{live.low, std::nullopt});
        scenario.segments.push_back(std::move(segment));
        if (!table_.allocated || !table_.reserved || !table_.in_gaps)
            out.warnings.emplace_back("The table breaks off: rows of it are not in the text.");
        out.not_in_source = {
            "A request that failed: the table tells of what is held when it was printed, not of any request.",
            "The capacity of the device, and what of it was held by nobody or by others.",
            "How large each unused piece is, and which pool and stream it serves: torch.cuda.memory._snapshot() tells."};
        return {std::move(out), FoundStates::Says::kState, "torch-summary", table_.last};
    }

    Table table_;
    std::string squeezed_;
};

}  // namespace

constinit const MessageKind kTorchSummary{
    "torch-summary", "a table of torch.cuda.memory_summary()", "\"PyTorch CUDA memory summary, device ID …\"",
    [](FoundStates& found) -> std::unique_ptr<MessageReader> { return std::make_unique<SummaryReader>(found); }};

}  // namespace fragscope::analysis
