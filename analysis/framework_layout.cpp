#include "analysis/framework_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/scenario_layout.h"

namespace fragscope::analysis {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlockSize = 512;

std::string stream_name(const std::optional<ObjectId>& stream) {
    return stream ? fmt::format("{:#x}", stream->value) : std::string();
}

// Names of owners are told apart only; the default pool's is empty.
std::string owner_name(std::uint32_t pool) {
    return pool == 0 || pool == wire::kPoolNotTold ? std::string() : fmt::format("{}", pool);
}

}  // namespace

AllocatorLayout layout_at(const FrameworkState& books, int device, const BlockRequest& request) {
    ScenarioRequest asked;
    asked.kind = ScenarioRequest::Kind::kAllocator;
    asked.bytes = Interval::exactly(request.block);
    asked.owner = owner_name(request.pool);
    asked.stream = stream_name(request.stream);
    std::vector<ScenarioSegment> segments;
    bool expandable = false;
    // At the end of what is mapped of an expandable segment, where it would grow.
    std::uint64_t longest_tail = 0;
    books.for_each_segment([&](const Range& range, const SegmentFacts& facts) {
        if (facts.device != device || facts.large != request.large) return;
        ScenarioSegment& segment = segments.emplace_back();
        segment.bytes = Interval::exactly(range.size());
        segment.owner = owner_name(facts.pool);
        segment.stream = stream_name(facts.stream);
        std::uint64_t tail = 0;
        books.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
            tail = block == nullptr ? piece.size() : 0;
            if (block == nullptr) return;
            ScenarioBlock& part = segment.blocks.emplace_back();
            part.offset = piece.begin - range.begin;
            part.bytes = Interval::exactly(piece.size());
            if (block->requested) part.requested = Interval::exactly(std::min(*block->requested, piece.size()));
            part.pending = block->waits_for != 0;
        });
        if (facts.kind != SegmentKind::kExpandable) return;
        expandable = true;
        if (segment.owner == asked.owner && segment.stream == asked.stream) longest_tail = std::max(longest_tail, tail);
    });
    AllocatorLayout out = layout_of(segments, asked, 1);
    out.requested = {request.block < kBlockSize ? 0 : request.block - (kBlockSize - 1), request.block};
    const std::uint64_t page = request.large ? 20 * kMiB : 2 * kMiB;
    const std::uint64_t segment = !request.large             ? 2 * kMiB
                                  : request.block < 10 * kMiB ? 20 * kMiB
                                                              : round_up(request.block, 2 * kMiB);
    out.segment = Interval::exactly(segment);
    if (expandable) {
        // It grows by whole pages; whether this request would have grown one, or taken a segment, is not told.
        const std::uint64_t missing = request.block - std::min(request.block, longest_tail);
        out.segment = {std::min(segment, std::max(page, round_up(missing, page))),
                       std::max(segment, round_up(request.block, page))};
    }
    return out;
}

}  // namespace fragscope::analysis
