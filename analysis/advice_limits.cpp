#include "analysis/advice_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

bool removes(const report::Verdict& verdict, const std::string& id) {
    return std::find(verdict.removed().begin(), verdict.removed().end(), id) != verdict.removed().end();
}

// What the program can do where it cannot change the limit; nothing where the limit's own line says it all.
const char* besides(LimitKind kind) {
    switch (kind) {
        case LimitKind::kPinnedHost:
            return "Or pin less at a time: copy through one page-locked buffer that is used again.";
        case LimitKind::kBar1:
            return "Or map only the buffers that are exchanged: memory that nobody else reaches needs no "
                   "window.";
        case LimitKind::kHostCommit:
        case LimitKind::kAllocatorLimit:
            return "Or hold less at this moment: the limit is on the sum.";
        case LimitKind::kMappingCount:
            return "Or map fewer and larger pieces: each mapping counts once, whatever its size.";
        default:
            return "";
    }
}

}  // namespace

std::vector<std::string> limit_actions(const Situation& s, const report::Verdict& verdict) {
    std::vector<std::string> out;
    for (const Limit& limit : s.limits) {
        if (limit.kind == LimitKind::kProcessFraction || !removes(verdict, limit.row())) continue;
        out.push_back(fmt::format("Change {}: {}.", limit.in_words(), facts_of(limit.kind).lifted_by));
        if (const std::string more = besides(limit.kind); !more.empty()) out.push_back(more);
    }
    if (removes(verdict, "with_importers_closed")) {
        out.push_back(
            fmt::format("Close the imports in the other process (cuIpcCloseMemHandle, or cuMemUnmap and "
                        "cuMemRelease of the "
                        "imported handle) before the exporter frees: {} come back then.",
                        in_words(s.held_by_importers.interval())));
    }
    if (removes(verdict, "with_leaked_handles_released")) {
        out.push_back(
            fmt::format("Release every handle of cuMemCreate once it is mapped (cuMemRelease): the mapping "
                        "keeps the memory, and cuMemUnmap then gives it back. {} are held by handles alone.",
                        in_words(s.leaked.interval())));
    }
    if (removes(verdict, "with_smaller_stack")) {
        out.push_back(
            "Lower the stack limit (cuCtxSetLimit with CU_LIMIT_STACK_SIZE, cudaDeviceSetLimit) to what the "
            "kernels "
            "need, or keep large arrays out of their local memory; or launch such a kernel once at the "
            "start, while "
            "the device has the room.");
    }
    if (removes(verdict, "without_request_rounding")) {
        out.push_back(
            s.request.draws == Draws::kHost
                ? "Ask for page-locked memory in powers of two, or register the program's own pages "
                  "(cuMemHostRegister), which are not rounded."
                : "Ask for a size that is not rounded past what is there, or change the rounding: block and "
                  "segment sizes are settings of the allocator.");
    }
    return out;
}

}  // namespace fragscope::analysis
