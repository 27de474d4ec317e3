#include "analysis/mechanism_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace fragscope::analysis {
namespace {

// One setting of one software for one way; `cost`: what public reports and its own sources say of it.
struct Known {
    ClientKind client;
    WayKind way;
    const char* name;
    const char* effect;
    const char* cost;
};

constexpr Known kKnown[] = {
    {ClientKind::kPyTorch, WayKind::kStitched,
     "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older versions)",
     "segments grow page by page (2 MiB for small blocks, 20 MiB for large ones), mapped side by side; whole "
     "pages inside "
     "gaps go back when memory is short",
     "reserves 9/8 of the device's memory in addresses for each pool and stream; memory on it cannot be "
     "shared through "
     "cuIpcGetMemHandle, and other sharing needs a newer version; a page that holds one block stays, so "
     "waste inside "
     "pages stays too; a request may fail half way and keep what it mapped"},
    {ClientKind::kPyTorch, WayKind::kDirect, "PYTORCH_ALLOC_CONF=max_split_size_mb:N",
     "cached blocks larger than this are not cut, so requests of that size find them whole again",
     "requests that match no cached block call the driver more often; a large block may serve only requests "
     "within "
     "max_non_split_rounding_mb of it"},
    {ClientKind::kPyTorch, WayKind::kDirect, "PYTORCH_ALLOC_CONF=garbage_collection_threshold:X",
     "with a memory fraction set, cached segments that were not used for long go back before the driver is "
     "asked",
     "each costs a cuMemFree, which may wait for kernels, and another cuMemAlloc later; without a memory "
     "fraction it "
     "does nothing"},
    {ClientKind::kPyTorch, WayKind::kPool, "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync",
     "blocks come from the driver's stream-ordered pool, which may join what one of PyTorch's segments "
     "cannot",
     "torch.cuda's memory history and snapshots are of PyTorch's own backend only; other settings of it do "
     "not apply; "
     "has to be set before the first use of the device"},
    {ClientKind::kTensorFlow, WayKind::kPool, "TF_GPU_ALLOCATOR=cuda_malloc_async",
     "tensors come from the driver's stream-ordered pool instead of TensorFlow's own regions",
     "a different reuse of memory between streams; the pool keeps what its release threshold allows"},
    {ClientKind::kJax, WayKind::kPool, "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
     "buffers come from the driver's stream-ordered pool instead of XLA's own regions",
     "a different reuse of memory between streams; the pool keeps what its release threshold allows"},
    {ClientKind::kJax, WayKind::kDirect, "XLA_PYTHON_CLIENT_ALLOCATOR=platform",
     "each buffer is one driver allocation, with no region around it",
     "every allocation and release then is a call of the driver, which may wait for kernels"},
    {ClientKind::kRmm, WayKind::kPool, "rmm.mr.CudaAsyncMemoryResource (rmm::mr::cuda_async_memory_resource)",
     "allocations come from a stream-ordered pool of the driver, which grows and shrinks",
     "the pool keeps what its release threshold allows; sharing needs its export handle type"},
    {ClientKind::kRmm, WayKind::kDirect, "rmm.mr.CudaMemoryResource (rmm::mr::cuda_memory_resource)",
     "each allocation is one driver allocation, with no pool around it",
     "every allocation and release then is a call of the driver, which may wait for kernels"},
};

report::Setting setting(const char* client, std::string seen_by, std::string name, std::string effect,
                        std::string cost) {
    report::Setting out;
    out.set_client(client);
    out.set_seen_by(std::move(seen_by));
    out.set_name(std::move(name));
    out.set_effect(std::move(effect));
    out.set_cost(std::move(cost));
    return out;
}

bool frameworks_own(const Situation& s) {
    return std::any_of(s.facts->clients.begin(), s.facts->clients.end(),
                       [](const Client& client) { return client.tells_blocks; });
}

// Of the driver's own interface, where the program calls it itself.
void of_the_driver(const Situation& s, const Way& way, std::vector<report::Setting>& out) {
    constexpr char kDriver[] = "the CUDA driver's interface";
    const bool own_handles = s.facts->creates_handles && !frameworks_own(s);
    if (way.kind == WayKind::kHandle && own_handles && way.unit == s.recommended_granularity &&
        s.recommended_granularity > s.page) {
        out.push_back(setting(
            kDriver, "the program calls cuMemCreate",
            "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED of cuMemGetAllocationGranularity",
            fmt::format("sizes are rounded to {} instead of {}", in_words(way.unit), in_words(s.page)),
            "more rounding for each allocation; that accesses become faster is not known"));
    }
    if (way.kind == WayKind::kPool && s.facts->uses_pools) {
        out.push_back(
            setting(kDriver, "the program calls cuMemAllocAsync", "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD",
                    "the pool keeps up to so much at synchronisations; what is above it goes back",
                    "a high one holds device memory that nothing uses and others lack; 0, the default, pays "
                    "for getting it again after every synchronisation"));
        out.push_back(setting(kDriver, "the program calls cuMemAllocAsync", "CUmemPoolProps::maxSize",
                              "the pool never reserves more",
                              "its requests are refused at that size, whatever the "
                              "device has"));
    }
}

}  // namespace

std::vector<report::Setting> settings_of(const Situation& s, const Way& way) {
    std::vector<report::Setting> out;
    if (!s.facts || way.kind == WayKind::kSmaller) return out;
    for (const Client& client : s.facts->clients) {
        for (const Known& known : kKnown) {
            if (known.client != client.kind || known.way != way.kind) continue;
            const bool expandable = known.client == ClientKind::kPyTorch && way.kind == WayKind::kStitched &&
                                    s.framework && s.framework->expandable;
            out.push_back(
                setting(client_name(client.kind), client.seen_by, known.name,
                        expandable ? std::string("is in use here already: ") + known.effect : known.effect,
                        known.cost));
        }
    }
    of_the_driver(s, way, out);
    return out;
}

}  // namespace fragscope::analysis
