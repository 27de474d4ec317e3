#include "analysis/internal_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/request.h"

namespace fragscope::analysis {
namespace {

// Live allocations of one row, as they are added up. An absent upper end of `charged` stays absent.
struct Sums {
    std::uint64_t count = 0;
    Interval charged = Interval::exactly(0);
    Interval payload = Interval::exactly(0);
    std::uint64_t pages_to = 0;  // shared pages of small blocks below this number are counted
    void add(const Interval& charge, const Interval& held) {
        ++count;
        charged = charged + charge;
        payload = payload + held;
    }
};

// What the allocations of one allocator have in common.
struct Kind {
    std::string name;
    Layer layer = Layer::kBlocks;
    bool assumed = false;  // the charge rests on a rule about the driver
    Definition payload = report::Quantity::requested;
    std::string charged_reason;
    std::string payload_reason;
    bool payload_unknown = false;
};

struct Books {
    Kind kind;
    Sums all;
    std::map<std::uint64_t, Sums> classes;
    std::map<std::uint32_t, Sums> sites;

    template <typename Add>
    void add(std::uint64_t requested, std::uint32_t stack, Add&& add) {
        add(all);
        add(classes[requested == 0 ? 0 : std::bit_floor(requested)]);
        add(sites[stack]);
    }
};

Quantity quantity_of(Definition definition, const Interval& interval, bool assumed, const Losses& lost,
                     const Scope& scope, const std::string& reason) {
    const Interval wide = weakened(interval, lost);
    const std::string why = lost.any() ? reason + "; wider because records are missing" : reason;
    if (assumed && !wide.exact()) return Quantity::assumed(definition, wide, scope, why);
    if (wide.exact()) return Quantity::derived(definition, *wide.low, scope, why);
    return Quantity::bounded(definition, wide, scope, why);
}

InternalPart part_of(const Kind& kind, const Sums& sums, const Losses& losses, const Scope& scope) {
    const Losses lost = narrowed(losses, kind.layer);
    InternalPart out;
    out.allocator = kind.name;
    out.count = sums.count;
    out.charged =
        quantity_of(report::Quantity::charged, sums.charged, kind.assumed, lost, scope, kind.charged_reason);
    out.payload = kind.payload_unknown
                      ? Quantity::unknown(kind.payload, scope, kind.payload_reason)
                      : quantity_of(kind.payload, sums.payload, false, lost, scope, kind.payload_reason);
    return out;
}

// Linear and pitched memory: see charged.h. Blocks come in address order, so a page that two of them share is
// counted once in each row.
Books linear_books(const ProcessState& state, int device) {
    Books out;
    const std::uint64_t page = state.page(device);
    out.kind = {
        "linear",
        Layer::kBlocks,
        true,
        report::Quantity::requested,
        fmt::format("between what was requested and whole pages of {}; blocks up to {} share pages, and "
                    "each row counts all of a page that its blocks lie in",
                    in_words(page), in_words(kPackedUpTo)),
        "sizes that cuMemAlloc and cuMemAllocPitch were asked for",
        false};
    state.linear().for_each([&](const Range& range, const LinearBlock& block) {
        if (block.device != device || block.kind == wire::Kind::kManagedAcquired) return;
        out.add(block.requested, block.stack, [&](Sums& sums) {
            std::uint64_t most = round_up(block.granted, page);
            if (block.granted <= kPackedUpTo) {
                const std::uint64_t first = std::max(sums.pages_to, range.begin / page);
                const std::uint64_t end = std::max(first, (range.end - 1) / page + 1);
                most = (end - first) * page;
                sums.pages_to = end;
            }
            ++sums.count;
            // Of a page that is counted already the block's bytes are a part: `most` may be the smaller one.
            sums.charged = {*sums.charged.low + block.granted, *sums.charged.high + most};
            sums.payload = sums.payload + Interval::exactly(block.requested);
        });
    });
    return out;
}

Books handle_books(const ProcessState& state, int device, const Payload& payload) {
    Books out;
    out.kind = {"VMM",
                Layer::kHandles,
                false,
                report::Quantity::payload_written,
                "sizes of live physical allocations (cuMemCreate)",
                payload.why,
                !payload.seen};
    state.physical().for_each([&](const Physical& physical) {
        if (!physical.on_device || physical.device != device || physical.imported || physical.multicast)
            return;
        const std::uint64_t written = std::min(physical.touched.sum(), physical.bytes);
        const Interval charge{physical.maybe_gone ? 0 : physical.bytes, physical.bytes};
        const Interval held{written, payload.decisive ? written : physical.bytes};
        out.add(physical.bytes, physical.stack, [&](Sums& sums) { sums.add(charge, held); });
    });
    return out;
}

std::map<ObjectId, Books> pool_books(const ProcessState& state, int device) {
    std::map<ObjectId, Books> out;
    state.pool_blocks().for_each([&](const Range&, const PoolBlock& block) {
        if (block.device != device) return;
        const auto [at, added] = out.try_emplace(block.pool);
        if (added) {
            at->second.kind = {
                pool_in_words(block.pool),
                Layer::kPools,
                true,
                report::Quantity::requested,
                fmt::format("whole multiples of {} for each live allocation, as public reports "
                            "show; what the pool keeps unused is no part of it",
                            in_words(kPoolUnit)),
                "requested sizes of live stream-ordered allocations",
                false};
        }
        const Interval charge{block.requested, round_up(block.requested, kPoolUnit)};
        const Interval held{block.maybe_captured ? 0 : block.requested, block.requested};
        at->second.add(block.requested, block.stack, [&](Sums& sums) {
            sums.add(block.maybe_captured ? Interval{0, charge.high} : charge, held);
        });
    });
    return out;
}

Books array_books(const ProcessState& state, int device) {
    Books out;
    out.kind = {"arrays",
                Layer::kArrays,
                false,
                report::Quantity::requested,
                "at least their texels: what a layout takes beyond them, no call says",
                "texels of arrays that own memory",
                false};
    for (const auto& [id, array] : state.arrays().all()) {
        if (!array.owns_memory || array.device != device) continue;
        const std::uint64_t texels = array.texel_bytes;
        out.add(texels, array.stack, [&](Sums& sums) {
            sums.add(Interval{texels, std::nullopt}, Interval::exactly(texels));
        });
    }
    return out;
}

Books framework_books(const FrameworkState& framework, int device) {
    Books out;
    out.kind = {
        "framework's blocks",
        Layer::kFramework,
        false,
        report::Quantity::requested,
        "blocks that the framework's allocator gave out, live and waiting; what it keeps unused is no part "
        "of it",
        "the allocator tells of blocks, which are rounded up: what was asked for is in no record",
        true};
    for (const auto& [address, block] : framework.blocks()) {
        if (block.device != device) continue;
        const std::uint64_t bytes = block.bytes;
        out.add(bytes, block.stack, [&](Sums& sums) {
            sums.add(Interval::exactly(bytes), Interval{0, bytes});
        });
    }
    return out;
}

}  // namespace

InternalParts internal_parts_of(const ProcessState& state, const FrameworkState& framework, int device,
                                const Payload& payload, const Losses& losses, const Scope& scope) {
    InternalParts out;
    const auto put = [&](const Books& books, const Losses& lost) {
        if (books.all.count == 0) return;
        out.by_allocator.push_back(part_of(books.kind, books.all, lost, scope));
        for (const auto& [bytes, sums] : books.classes) {
            out.by_size_class.push_back(part_of(books.kind, sums, lost, scope));
            out.by_size_class.back().size_class = bytes;
        }
        for (const auto& [stack, sums] : books.sites) {
            out.by_call_site.push_back(part_of(books.kind, sums, lost, scope));
            out.by_call_site.back().stack = stack;
        }
    };
    const Losses own = with_contradictions(losses, state.contradictions());
    put(handle_books(state, device, payload), own);
    put(linear_books(state, device), own);
    for (const auto& [pool, books] : pool_books(state, device)) put(books, own);
    put(array_books(state, device), own);
    put(framework_books(framework, device), with_contradictions(losses, framework.contradictions()));
    std::stable_sort(out.by_call_site.begin(), out.by_call_site.end(),
                     [](const InternalPart& a, const InternalPart& b) {
                         return a.charged.low().value_or(0) > b.charged.low().value_or(0);
                     });
    return out;
}

Quantity waste_of(const InternalPart& part) {
    const std::string reason =
        part.payload.known() ? "charged, less what holds payload" : part.payload.reason();
    return minus(part.charged, part.payload, report::Quantity::internal_waste, reason).value();
}

Share waste_share_of(const InternalPart& part) { return rest_of(share(part.payload, part.charged).value()); }

}  // namespace fragscope::analysis
