// A state's sections, each a function from the message to lines: see words_state.h.
#include "tools/words_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/words_books.h"
#include "tools/words_domain.h"
#include "tools/words_leaks.h"
#include "tools/words_report.h"
#include "tools/words_terms.h"

namespace fragscope::tools {
namespace {

using Tone = Page::Tone;
using Align = Table::Align;

constexpr std::size_t kSegmentsShown = 12;
constexpr std::size_t kGapsShown = 8;

std::string device_words(const report::FrameworkAllocator& allocator) {
    if (!allocator.has_ordinal()) return "on a device that is not known";
    return allocator.device().empty()
               ? fmt::format("device {}", allocator.ordinal())
               : fmt::format("device {} ({})", allocator.ordinal(), allocator.device());
}

// The largest first; of equal ones the lower address.
template <typename Item>
void largest_first(std::vector<const Item*>& items) {
    std::sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
        return a->bytes() != b->bytes() ? a->bytes() > b->bytes() : a->address() < b->address();
    });
}

void put_moment(Page& page, const report::State& state) {
    page.title(fmt::format("Memory of process {} (pid {}{}{})", state.process(),
                           state.has_pid() ? fmt::format("{}", state.pid()) : "not known",
                           state.executable().empty() ? "" : ", ", state.executable()));
    std::string when = state.sequence() == 0
                           ? "Before its first event."
                           : fmt::format("After event {}, {} after the start of the recording.",
                                         grouped(state.sequence()), human_duration(state.time_ns()));
    if (!state.mark().empty()) when = fmt::format("At the mark '{}'. {}", state.mark(), when);
    if (state.has_asked_ns()) {
        when =
            fmt::format("{} after the start of the recording. {}", human_duration(state.asked_ns()),
                        state.sequence() == 0
                            ? "This process had made no call that counts by then."
                            : fmt::format("The last of its events that counts by then is {}, which began {} "
                                          "after the start.",
                                          grouped(state.sequence()), human_duration(state.time_ns())));
        if (state.calls_under_way() != 0)
            when += fmt::format(" {} under way; what {} changed does not count yet.",
                                state.calls_under_way() == 1
                                    ? std::string("1 call was")
                                    : fmt::format("{} calls were", grouped(state.calls_under_way())),
                                state.calls_under_way() == 1 ? "it" : "they");
    }
    page.paragraph(when);
    if (state.ended()) {
        page.paragraph("The process had ended by then: the driver had taken back whatever is listed here.", 0,
                       Tone::kWarning);
    }
}

struct SegmentSums {
    std::uint64_t live = 0, waiting = 0, cached = 0, blocks = 0;
};

SegmentSums sums_of(const report::FrameworkSegment& segment) {
    SegmentSums out;
    for (const report::FrameworkBlock& block : segment.blocks()) {
        const bool gap = block.state() == report::FrameworkBlock::unused;
        if (!gap) ++out.blocks;
        (gap                                             ? out.cached
         : block.state() == report::FrameworkBlock::live ? out.live
                                                         : out.waiting) += block.bytes();
    }
    return out;
}

std::string what_words(const report::FrameworkSegment& segment, std::uint64_t blocks) {
    std::string out = fmt::format("{}, {}, {}", segment.large() ? "large" : "small", segment.kind(),
                                  counted(blocks, "block"));
    if (segment.has_stream())
        out += segment.stream() == 0 ? ", default stream" : fmt::format(", stream {:#x}", segment.stream());
    return out;
}

void put_segments(Page& page, const report::FrameworkAllocator& allocator) {
    std::vector<const report::FrameworkSegment*> segments;
    for (const report::FrameworkSegment& segment : allocator.segments()) segments.push_back(&segment);
    if (segments.empty()) return;
    largest_first(segments);
    Table table;
    table.columns = {{"segment at", Align::kLeft},    {"bytes", Align::kRight, true},
                     {"live", Align::kRight, true},   {"waiting", Align::kRight, true},
                     {"cached", Align::kRight, true}, {"what", Align::kLeft, true}};
    for (std::size_t i = 0; i < std::min(segments.size(), kSegmentsShown); ++i) {
        const report::FrameworkSegment& segment = *segments[i];
        const SegmentSums sums = sums_of(segment);
        Table::Row row;
        row.cells = {fmt::format("{:#x}", segment.address()),
                     human_bytes(segment.bytes()),
                     human_bytes(sums.live),
                     human_bytes(sums.waiting),
                     human_bytes(sums.cached),
                     what_words(segment, sums.blocks)};
        table.rows.push_back(row);
    }
    page.gap();
    page.table(table);
    if (segments.size() > kSegmentsShown)
        page.paragraph(fmt::format("{} more; --json has all of them.",
                                   counted(segments.size() - kSegmentsShown, "segment")),
                       2);
}

void put_gaps(Page& page, const report::FrameworkAllocator& allocator) {
    struct Gap {
        const report::FrameworkBlock* block;
        const report::FrameworkSegment* segment;
    };
    std::vector<Gap> gaps;
    for (const report::FrameworkSegment& segment : allocator.segments()) {
        for (const report::FrameworkBlock& block : segment.blocks()) {
            if (block.state() == report::FrameworkBlock::unused) gaps.push_back({&block, &segment});
        }
    }
    if (gaps.empty()) return;
    std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) {
        return a.block->bytes() != b.block->bytes() ? a.block->bytes() > b.block->bytes()
                                                    : a.block->address() < b.block->address();
    });
    Table table;
    table.columns = {{"gap at", Align::kLeft},
                     {"bytes", Align::kRight, true},
                     {"exact", Align::kRight, true},
                     {"in the segment", Align::kLeft, true}};
    for (std::size_t i = 0; i < std::min(gaps.size(), kGapsShown); ++i) {
        const auto& [block, segment] = gaps[i];
        Table::Row row;
        row.cells = {fmt::format("{:#x}", block->address()), human_bytes(block->bytes()),
                     exact_bytes(block->bytes()),
                     block->bytes() == segment->bytes()
                         ? "all of it"
                         : fmt::format("{:#x} of {}", segment->address(), human_bytes(segment->bytes()))};
        table.rows.push_back(row);
    }
    page.gap();
    page.paragraph(fmt::format("{} in segments, the largest first:", counted(gaps.size(), "gap")), 2);
    page.table(table);
}

void put_totals(Page& page, const report::FrameworkTotals& totals) {
    Table table;
    table.columns = {{"the framework's allocator", Align::kLeft, true},
                     {"bytes", Align::kRight, true},
                     {"exact", Align::kRight, true}};
    const auto row = [&](const char* what, std::uint64_t bytes, bool known = true) {
        table.rows.push_back(
            {{what, known ? human_bytes(bytes) : "not known", known ? exact_bytes(bytes) : ""}, {}, false});
    };
    row("in segments taken from the driver", totals.reserved_bytes(), totals.has_reserved_bytes());
    row("- live blocks", totals.live_bytes());
    row("- freed, waiting for other streams", totals.waiting_bytes());
    row("- cached: in no block", totals.cached_bytes(), totals.has_cached_bytes());
    if (totals.outside_bytes() != 0) row("blocks in no extent of the driver", totals.outside_bytes());
    page.table(table);
    if (!totals.has_agrees()) return;
    if (totals.agrees() && totals.disagreements() == 0) {
        page.paragraph(fmt::format("The allocator's own totals say the same, in all of {}.",
                                   counted(totals.records(), "record")),
                       2, Tone::kGood);
        return;
    }
    page.paragraph(
        fmt::format("The allocator's own totals, by its last record: {} allocated, {} reserved: {}. "
                    "{} of {} disagreed, {}.",
                    totals.has_own_allocated_bytes() ? both_bytes(totals.own_allocated_bytes()) : "not told",
                    totals.has_own_reserved_bytes() ? both_bytes(totals.own_reserved_bytes()) : "not told",
                    totals.agrees() ? "the same as these" : "not the same as these",
                    grouped(totals.disagreements()), counted(totals.records(), "record"),
                    totals.disagreement()),
        2, Tone::kWarning);
}

void put_framework(Page& page, const report::FrameworkAllocator& allocator) {
    page.heading(fmt::format("Inside the framework's allocator, {}", device_words(allocator)));
    put_totals(page, allocator.totals());
    put_segments(page, allocator);
    put_gaps(page, allocator);
    if (allocator.refused() != 0)
        page.paragraph(fmt::format("It gave up {} up to here.", counted(allocator.refused(), "request")), 2);
    page.gap();
    for (const std::string& what : allocator.not_known())
        page.item("-", fmt::format("Not known: {}.", what), 2, Tone::kQuiet);
}

}  // namespace

std::string render_state(const report::State& state, const Style& style, const std::string& only) {
    Page page(style);
    put_moment(page, state);
    page.gap();
    put_health(page, state.health());
    if (state.has_domain()) {
        put_domain(page, state.domain());
        return page.text();
    }
    if (only != "framework") {
        put_books(page, state);
    }
    if (state.framework().empty() && only != "driver") {
        page.heading("Inside a framework's allocator");
        page.paragraph("No framework's allocator told of any block up to here.", 2);
    }
    for (const report::FrameworkAllocator& allocator : state.framework()) put_framework(page, allocator);
    if (only != "framework") {
        const char* unless = health_warnings(state.health()).empty()
                                 ? ""
                                 : " But something is missing from the recording: see the top.";
        put_leaks(page, state.leaks(), "Ways of holding memory that are rarely meant", false, unless);
        put_hazards(page, state.hazards(), false, unless);
    }
    return page.text();
}

}  // namespace fragscope::tools
