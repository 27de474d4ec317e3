#include "analysis/advice_framework.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

using report::Verdict;

bool removes(const Verdict& verdict, const char* id) {
    return std::find(verdict.removed().begin(), verdict.removed().end(), id) != verdict.removed().end();
}

void for_gaps(const FrameworkAtFailure& own, std::vector<std::string>& out) {
    if (own.expandable) {
        out.push_back(
            "Segments are expandable here already: only whole pages inside a gap go back. Release the blocks "
            "between the gaps, or allocate what lives long before what comes and goes.");
        return;
    }
    out.push_back(
        "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older versions) and run "
        "it again: gaps then give whole pages back and grow together. The reserved address space is larger, "
        "and memory shared with other processes (IPC) needs a newer version for it.");
    out.push_back(
        "Or set max_split_size_mb below the size of the large requests: larger blocks are then not cut into "
        "pieces. Requests that do not match a cached block exactly may then need more calls to the driver; "
        "measure that on the workload.");
    out.push_back(
        "Or call torch.cuda.empty_cache() at a point where few blocks live, before the phase that needs "
        "large "
        "ones: each segment that holds no block goes back.");
}

}  // namespace

std::vector<std::string> framework_actions(const Situation& s, const Verdict& verdict) {
    std::vector<std::string> out;
    if (!s.framework) return out;
    const FrameworkAtFailure& own = *s.framework;
    if (verdict.constraint() == "process_fraction") {
        out.push_back(
            "Raise the limit (torch.cuda.set_per_process_memory_fraction, or per_process_memory_fraction in "
            "PYTORCH_ALLOC_CONF): the device has the memory. If the limit is wanted, hold less at this "
            "moment.");
        return out;
    }
    if (verdict.constraint() == "cached_by_allocator") {
        out.push_back(fmt::format(
            "Call torch.cuda.empty_cache() before this call: it gives back {}. PyTorch does so by itself "
            "before it gives up a request of its own; other users of the device in the process have to ask.",
            in_words(own.reclaimable.interval())));
    }
    if (verdict.constraint() == "pool_ownership") {
        out.push_back(
            "Give private pools up that are not needed any more (reset CUDA graphs, drop MemPool objects), "
            "then torch.cuda.empty_cache(); or let graphs share one pool (torch.cuda.graph_pool_handle).");
    }
    if (removes(verdict, "with_framework_waits_over")) {
        out.push_back(
            "Wait for the other streams before this request (torch.cuda.synchronize()), or use record_stream "
            "less: let the stream that allocated a tensor wait for its other users (wait_stream) before it "
            "is "
            "freed.");
    }
    if (removes(verdict, "with_framework_gaps_merged")) for_gaps(own, out);
    return out;
}

std::vector<std::string> framework_not_known(const Situation& s) {
    std::vector<std::string> out;
    if (!s.framework) return out;
    out.push_back(
        "What was asked of the framework's allocator before it rounded, and which private pool a segment or "
        "a "
        "gap belongs to: the allocator tells of blocks only. torch.cuda.memory._snapshot() tells.");
    if (!s.framework->agrees) {
        out.push_back(
            "Why the framework's allocator counts otherwise than its records: blocks of before the "
            "recording, "
            "or records that were lost. Starting the program under `fragscope run`, with a larger ring, "
            "tells.");
    }
    return out;
}

}  // namespace fragscope::analysis
