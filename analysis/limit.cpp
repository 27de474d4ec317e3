#include "analysis/limit.h"

#include <array>

namespace fragscope::analysis {

using report::Verdict;

const LimitFacts& facts_of(LimitKind kind) {
    static constexpr std::array<LimitFacts, 10> kFacts = {{
        {LimitKind::kPoolMaximum, "pool_maximum", Verdict::other_constraint, "the maximum size of the pool",
         "CUmemPoolProps::maxSize of cuMemPoolCreate"},
        {LimitKind::kProcessFraction, "process_fraction", Verdict::commitment_limit,
         "the share of the device that the framework's allocator may reserve",
         "torch.cuda.set_per_process_memory_fraction"},
        {LimitKind::kAllocatorLimit, "allocator_limit", Verdict::commitment_limit,
         "the limit on what the framework's allocator may reserve",
         "the allocator's own setting: torch.cuda.set_per_process_memory_fraction, a pool's maximum size, …"},
        {LimitKind::kHostCommit, "commit_limit", Verdict::commitment_limit,
         "the limit on what the host will back",
         "a larger page file or swap, or the host's overcommit setting"},
        {LimitKind::kPerAllocation, "per_allocation_limit", Verdict::other_constraint,
         "the limit on the size of one allocation", "several smaller allocations"},
        {LimitKind::kPinnedHost, "pinned_host_limit", Verdict::other_constraint,
         "the limit on page-locked host memory",
         "ulimit -l, memory.max of the cgroup, or the limit of the virtual machine"},
        {LimitKind::kBar1, "BAR1_aperture", Verdict::other_constraint,
         "the window through which others reach device memory (BAR1)",
         "Resizable BAR in the firmware, or mapping less at a time"},
        {LimitKind::kAddressSpace, "address_space", Verdict::other_constraint, "the virtual address space",
         "cuMemAddressFree of reservations that hold nothing"},
        {LimitKind::kMappingCount, "mapping_count", Verdict::other_constraint, "the number of mappings",
         "a larger granularity, or vm.max_map_count where it is the host's"},
        {LimitKind::kHandleType, "handle_type", Verdict::other_constraint,
         "the kinds of handle that the device supports", "another CUmemAllocationHandleType"},
    }};
    for (const LimitFacts& facts : kFacts) {
        if (facts.kind == kind) return facts;
    }
    return kFacts.front();
}

}  // namespace fragscope::analysis
