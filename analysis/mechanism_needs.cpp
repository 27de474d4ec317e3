#include "analysis/mechanism_needs.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

using report::Prerequisite;
using report::Request;

Prerequisite need(const char* id, std::string what, Prerequisite::State state, std::string evidence,
                  std::string would_tell = "") {
    Prerequisite out;
    out.set_id(id);
    out.set_what(std::move(what));
    out.set_state(state);
    out.set_evidence(std::move(evidence));
    out.set_would_tell(std::move(would_tell));
    return out;
}

Prerequisite capability(const Capability& said, const char* what, const char* would_tell) {
    const Prerequisite::State state = !said.there   ? Prerequisite::not_known
                                      : *said.there ? Prerequisite::holds
                                                    : Prerequisite::fails;
    return need("capability", what, state, said.how, said.there ? "" : would_tell);
}

void capabilities(const Situation& s, const Way& way, std::vector<Prerequisite>& out) {
    const Capability nothing = {std::nullopt, "nothing here says what the device can do"};
    if (way.maps) {
        out.push_back(capability(s.facts ? s.facts->virtual_memory : nothing,
                                 "the device supports virtual memory management",
                                 "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"));
    }
    if (way.kind == WayKind::kPool) {
        out.push_back(capability(s.facts ? s.facts->pools : nothing,
                                 "the device supports stream-ordered pools",
                                 "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED"));
    }
    if (way.kind == WayKind::kSmaller) {
        out.push_back(need(
            "granularity",
            fmt::format("the driver gives physical memory in units of less than {}", in_words(s.page)),
            Prerequisite::fails,
            "that is the minimum granularity: sizes of cuMemCreate are whole multiples of it. Smaller "
            "requests share pages only inside cuMemAlloc, a pool, or an allocator of the program's own"));
    }
}

// Whether what the consumers of the memory rely on is kept.
void contract(const Situation& s, const Way& way, std::vector<Prerequisite>& out) {
    const Request::Contiguity contiguity = s.request.contiguity;
    const std::string why = s.request.contiguity_reason;
    if (way.kind == WayKind::kStitched) {
        if (contiguity == Request::physical && s.stated && !s.contract.declared) {
            out.push_back(
                need("contract", "consumers need consecutive addresses only", Prerequisite::not_known,
                     "the driver is said to need one physical run for this request; whether whoever "
                     "uses the memory does, too, is not said",
                     "the consumers of the memory: whether a device without address translation is "
                     "among them, or --contract"));
        } else if (contiguity == Request::physical) {
            out.push_back(
                need("contract", "consumers need consecutive addresses only", Prerequisite::fails,
                     "one physical extent is required, and mapping pieces side by side makes none larger: " +
                         why));
        } else if (contiguity == Request::contiguity_unspecified) {
            out.push_back(need("contract", "consumers need consecutive addresses only",
                               Prerequisite::not_known,
                               why.empty() ? "what the consumers need is not stated" : why,
                               "the program's own use of the memory, or --contract"));
        } else {
            out.push_back(
                need("contract", "consumers need consecutive addresses only", Prerequisite::holds, why));
        }
    } else if (way.kind == WayKind::kSegmented) {
        if (contiguity == Request::segmented) {
            out.push_back(
                need("contract", "every consumer can follow a table of segments", Prerequisite::holds, why));
        } else if (contiguity == Request::physical) {
            out.push_back(need("contract", "every consumer can follow a table of segments",
                               Prerequisite::fails, "one physical extent is required: " + why));
        } else if (s.contract.declared) {
            out.push_back(need("contract", "every consumer can follow a table of segments",
                               Prerequisite::fails, "one range of addresses is required: " + why));
        } else {
            std::string ask = "a look at every consumer of the pointer";
            for (const std::string& who : to_be_checked(s.contract, report::Contract::segmented))
                ask += "; " + who;
            out.push_back(
                need("contract", "every consumer can follow a table of segments", Prerequisite::not_known,
                     "the program takes one pointer now, and which of its kernels, libraries and peers could "
                     "follow segments instead no record says",
                     ask));
        }
    } else if (way.kind != WayKind::kSmaller) {
        if (contiguity == Request::physical && way.kind != WayKind::kCompaction) {
            out.push_back(need("contract", "the memory comes as one physical extent", Prerequisite::not_known,
                               "no call promises that it does, and none shows it",
                               "the consumer's own check of it (a pin by the device that needs it)"));
        }
    }
    const bool changes_kind = !way.present && way.kind != WayKind::kDirect &&
                              way.kind != WayKind::kCompaction && way.kind != WayKind::kSmaller &&
                              way.kind != WayKind::kSegmented;
    if (changes_kind && s.facts && s.facts->ipc_exports != 0 &&
        s.request.kind != wire::Kind::kHandleCreated && s.request.kind != wire::Kind::kPoolAcquired) {
        out.push_back(need(
            "sharing", "the memory need not be shared through cuIpcGetMemHandle", Prerequisite::not_known,
            fmt::format("the process shared memory so {} time{}, which works for cuMemAlloc only; whether "
                        "it shares this allocation is not known",
                        s.facts->ipc_exports, s.facts->ipc_exports == 1 ? "" : "s"),
            "where the program exports what this call returns"));
    }
}

const report::Bound* bound_of(const std::vector<report::Bound>& bounds, const std::string& id) {
    const auto found = std::find_if(bounds.begin(), bounds.end(),
                                    [&](const report::Bound& b) { return b.mechanism() == id; });
    return found == bounds.end() ? nullptr : &*found;
}

const char* probe_for(const Way& way) {
    return way.kind == WayKind::kCompaction
               ? "the same request after the move"
               : "the same request by this mechanism at the failure: `fragscope run --probe-on-oom` tries it";
}

// Whether so much was there to be had by this mechanism.
void backing(const Situation& s, const Way& way, const std::vector<report::Bound>& bounds,
             std::vector<Prerequisite>& out) {
    const report::Bound* bound = bound_of(bounds, way.id);
    const std::uint64_t least = way.maps ? way.charged.low.value_or(wanted_bytes(s)) : wanted_bytes(s);
    const std::string what = fmt::format("{} could be had so at that moment", in_words(least));
    if (bound == nullptr || (!bound->largest().has_low_bytes() && !bound->largest().has_high_bytes())) {
        out.push_back(need("backing", what, Prerequisite::not_known, "nothing bounds what could be had by it",
                           probe_for(way)));
        return;
    }
    const report::Quantity& largest = bound->largest();
    if (largest.has_high_bytes() && largest.high_bytes() < least) {
        out.push_back(need("backing", what, Prerequisite::fails,
                           fmt::format("at most {}, limited by {}: {}", in_words(largest.high_bytes()),
                                       bound->limited_by(), bound->high_evidence())));
    } else if (largest.has_low_bytes() && largest.low_bytes() >= least) {
        out.push_back(need("backing", what, Prerequisite::holds, bound->low_evidence()));
    } else {
        out.push_back(need("backing", what, Prerequisite::not_known,
                           fmt::format("at least {} and {}", in_words(largest.low_bytes()),
                                       largest.has_high_bytes() ? "at most " + in_words(largest.high_bytes())
                                                                : std::string("no upper end is known")),
                           probe_for(way)));
    }
}

void addresses(const Situation& s, const Way& way, std::vector<Prerequisite>& out) {
    using wire::ProbeMechanism;
    const std::uint64_t bytes = way.charged.low.value_or(0);
    const std::string what = fmt::format("{} of consecutive addresses could be reserved", in_words(bytes));
    // With records missing, something may lie in a gap.
    const std::uint64_t gap =
        narrowed(s.books, Layer::kAddresses).any() ? 0 : s.space.witnessed.largest();
    const std::uint64_t granted =
        std::max({s.probes.granted(ProbeMechanism::kAddresses), s.witnesses.reservation, gap});
    for (const Limit& limit : s.limits) {
        if (limit.kind != LimitKind::kAddressSpace || !limit.headroom.high() ||
            *limit.headroom.high() >= bytes)
            continue;
        out.push_back(need("addresses", what, Prerequisite::fails, limit.headroom.reason()));
        return;
    }
    const auto refused = s.probes.refused(ProbeMechanism::kAddresses);
    if (refused && *refused <= bytes) {
        out.push_back(
            need("addresses", what, Prerequisite::fails,
                 fmt::format("{} of addresses were refused right after the failure", in_words(*refused))));
    } else if (granted >= bytes) {
        out.push_back(
            need("addresses", what, Prerequisite::holds,
                 gap >= bytes
                     ? fmt::format("a gap of {} was reserved before and was given back",
                                   in_words(gap))
                     : fmt::format("{} of addresses were granted in this state", in_words(granted))));
    } else {
        out.push_back(need(
            "addresses", what, Prerequisite::not_known, "the driver's limits on addresses are in no call",
            "cuMemAddressReserve of that size, which takes no memory (--probe-on-oom tries it)"));
    }
}

void mappings(const Situation& s, const Way& way, std::vector<Prerequisite>& out) {
    if (way.kind != WayKind::kStitched) return;
    const std::uint64_t most = way.pieces.high.value_or(0);
    if (most < 2) {
        out.push_back(need(
            "pieces", "the request consists of several units", Prerequisite::fails,
            fmt::format("it is one unit of {}: there is nothing to put side by side", in_words(way.unit))));
        return;
    }
    const std::string what = fmt::format("{} more mappings can exist", most);
    for (const Limit& limit : s.limits) {
        if (limit.kind != LimitKind::kMappingCount) continue;
        const Interval left = limit.headroom.interval();
        const Prerequisite::State state =
            left.high && *left.high < way.pieces.low.value_or(2)   ? Prerequisite::fails
            : left.low && *left.low >= way.pieces.high.value_or(0) ? Prerequisite::holds
                                                                   : Prerequisite::not_known;
        out.push_back(
            need("mappings", what, state,
                 limit.headroom.reason() + "; stitching lifts no limit on the number of mappings",
                 state == Prerequisite::not_known ? "fewer, larger pieces, where the driver has them" : ""));
        return;
    }
    out.push_back(
        need("mappings", what, Prerequisite::not_known,
             "a limit on the number of mappings is documented nowhere and none was met here; stitching adds "
             "to their number and lifts no such limit",
             "the same number of cuMemMap in the failing process"));
}

// Compaction only: without a safe way to move something, and room for it meanwhile, there is none.
void relocation(const Situation& s, const Way& way, std::vector<Prerequisite>& out) {
    if (way.kind != WayKind::kCompaction) return;
    constexpr char kWhat[] = "live memory can be moved without a pointer becoming wrong";
    if (!s.movable) {
        out.push_back(
            need("relocation", kWhat, Prerequisite::fails,
                 "nothing here says that any of it is reached through a mapping or a table: pointers that "
                 "the program knows must stay"));
        return;
    }
    const Movable& movable = *s.movable;
    if (movable.count == 0) {
        out.push_back(
            need("relocation", kWhat, Prerequisite::fails,
                 movable.shared != 0
                     ? fmt::format("{} of mapped memory are shared with others, and all else lies where the "
                                   "program's pointers say",
                                   in_words(movable.shared))
                     : "all of it lies where the program's pointers say: none is reached through a mapping"));
        return;
    }
    out.push_back(need(
        "relocation", kWhat, Prerequisite::not_known,
        fmt::format("{} in {} mapped physical allocation{} keep their addresses when they are copied and "
                    "mapped anew; whether a kernel, a copy or a graph may use them meanwhile no record "
                    "says. {} of linear memory and pools cannot be moved",
                    in_words(movable.bytes), movable.count, movable.count == 1 ? "" : "s",
                    in_words(movable.fixed)),
        "a point in the program at which nothing uses them: after a synchronisation of every stream and "
        "process, outside of captures"));
    const auto headroom = s.free_then.interval();
    const std::string room =
        fmt::format("{} of device memory for the copy while it lasts", in_words(movable.smallest));
    if (headroom.high && *headroom.high < movable.smallest) {
        out.push_back(
            need("headroom", room, Prerequisite::fails,
                 fmt::format("no more than {} were held by nobody, and the smallest piece that can be moved "
                             "needs as much again",
                             in_words(*headroom.high))));
    } else if (headroom.low && *headroom.low >= movable.smallest) {
        out.push_back(need("headroom", room, Prerequisite::holds, s.free_then.reason()));
    } else {
        out.push_back(need("headroom", room, Prerequisite::not_known, s.free_then.reason(),
                           "cuMemGetInfo right before the move"));
    }
}

}  // namespace

std::vector<Prerequisite> needs_of(const Situation& s, const Way& way,
                                   const std::vector<report::Bound>& bounds, bool of_a_moment) {
    std::vector<Prerequisite> out;
    capabilities(s, way, out);
    if (way.kind == WayKind::kSmaller) return out;
    contract(s, way, out);
    relocation(s, way, out);
    mappings(s, way, out);
    if (!of_a_moment) return out;
    if (way.maps && way.kind != WayKind::kCompaction) addresses(s, way, out);
    backing(s, way, bounds, out);
    return out;
}

report::Mechanism::Standing standing_of(const std::vector<Prerequisite>& needs) {
    const auto any = [&](Prerequisite::State state) {
        return std::any_of(needs.begin(), needs.end(),
                           [&](const Prerequisite& each) { return each.state() == state; });
    };
    if (any(Prerequisite::fails)) return report::Mechanism::rejected;
    return needs.empty() || any(Prerequisite::not_known) ? report::Mechanism::hypothesis
                                                         : report::Mechanism::feasible;
}

std::string reason_of(const std::vector<Prerequisite>& needs) {
    std::string open;
    for (const Prerequisite& each : needs) {
        if (each.state() == Prerequisite::fails)
            return "Not so: " + each.what() + " (" + each.evidence() + ").";
        if (each.state() == Prerequisite::not_known) open += (open.empty() ? "" : "; ") + each.what();
    }
    if (needs.empty()) return "Nothing was looked at.";
    return open.empty() ? "All that it needs is established." : "Not established: " + open + ".";
}

}  // namespace fragscope::analysis
