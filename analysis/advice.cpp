#include "analysis/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/advice_framework.h"
#include "analysis/advice_limits.h"

namespace fragscope::analysis {
namespace {

using report::Verdict;

void for_cached(const Situation& s, std::vector<std::string>& out) {
    for (const PoolAtFailure& pool : s.pools) {
        if (pool.reclaimable.high().value_or(0) == 0) continue;
        out.push_back(
            fmt::format("Call cuMemPoolTrimTo (cudaMemPoolTrimTo) on {} with 0 bytes to keep before this "
                        "allocation, after the streams "
                        "that use it are synchronised: it gives back {}.",
                        pool.name, in_words(pool.reclaimable.interval())));
        if (pool.said.threshold && *pool.said.threshold != 0) {
            out.push_back(fmt::format(
                "Or set its release threshold lower (now {}): the pool then returns what is over it at every "
                "synchronisation. Each later allocation may pay for getting it again; measure that on the "
                "workload.",
                *pool.said.threshold == UINT64_MAX ? "the maximum" : in_words(*pool.said.threshold)));
        }
    }
    out.push_back(
        "Or take this allocation from the same pool (cudaMallocAsync): what a pool keeps serves its own "
        "requests.");
}

void for_graphs(const Situation& s, std::vector<std::string>& out) {
    out.push_back(fmt::format(
        "Call cuDeviceGraphMemTrim (cudaDeviceGraphMemTrim) on the device before this allocation, after "
        "its graphs have run: it gives back {}. Their next launch pays for getting it again.",
        in_words(s.graphs_unused.interval())));
}

void for_internal(const Situation& s, std::vector<std::string>& out) {
    out.push_back(
        fmt::format("Put several objects into one physical allocation: every cuMemCreate takes whole pages "
                    "of {} however little is "
                    "written to them.",
                    in_words(s.page)));
    out.push_back(
        "Or take small objects from cudaMalloc or a stream-ordered pool, which share pages among small "
        "requests.");
    out.push_back(
        "Mapping the same allocations at other addresses does not help: the pages stay as empty as they are. "
        "Run the failing "
        "request and the workload again after the change.");
}

void for_capacity(const Situation& s, const std::vector<Counterfactual>& rows, const Verdict& verdict,
                  std::vector<std::string>& out) {
    for (const Counterfactual& row : rows) {
        if (row.id != "with_nothing_else_on_device" || row.fit != Fit::kDoesNotFit) continue;
        out.push_back(
            fmt::format("Ask for less than the device has ({}), in parts if need be, or use a larger "
                        "device: nothing that is given back here would help.",
                        in_words(s.capacity.interval())));
        return;
    }
    const auto size = [](const Quantity& q) { return q.high().value_or(q.low().value_or(0)); };
    const bool named = std::find(verdict.removed().begin(), verdict.removed().end(),
                                 "without_unattributed") != verdict.removed().end();
    const bool most = size(s.unattributed) > size(s.attributed) && size(s.unattributed) > size(s.others);
    const std::string who =
        "See who else uses the device (nvidia-smi lists processes) and record them in the same session: "
        "their share is then told apart from contexts and modules.";
    if (named || most) {
        if (most) out.push_back(who);
        if (s.contexts > 1) {
            out.push_back(
                fmt::format("Use one context for the device in this process: it has {}, and each "
                            "takes device memory of its own. The drop of device-free memory "
                            "(cuMemGetInfo) around cuCtxCreate tells how much.",
                            s.contexts));
        }
    }
    if (!s.other_processes.empty()) {
        out.push_back(fmt::format(
            "Run this program when the other processes do not ({} held by them), or on another device.",
            in_words(s.others.interval())));
    }
    if (s.unmapped_count != 0) {
        out.push_back(
            fmt::format("Release (cuMemRelease) or map {} in {} physical allocation{} that are "
                        "mapped nowhere: no kernel can use them.",
                        in_words(s.unmapped_bytes), s.unmapped_count, s.unmapped_count == 1 ? "" : "s"));
    }
    if (s.payload.decisive && s.payload.never_written != 0) {
        out.push_back(
            fmt::format("Create VMM memory when it is first used: {} lie in pages that were never "
                        "written so far.",
                        in_words(s.payload.never_written)));
    }
    out.push_back(
        fmt::format("Hold less at this moment: {} what each call acquired, what was never released, "
                    "and when the peak was. Smaller batches, earlier frees, or a device with more memory are "
                    "what is left.",
                    s.stated ? "a recording (`fragscope run`) tells" : "`fragscope report` lists"));
    if (named && !most) out.push_back(who);
    out.push_back(
        "Returning caches, moving allocations together or remapping them would not have been enough here.");
}

void for_addresses(const Situation& s, const Verdict& verdict, std::vector<std::string>& out) {
    if (verdict.cause() == Verdict::virtual_space_fragmentation) {
        out.push_back(
            "Reserve one large window at the start and map parts of it as needed, instead of many "
            "reservations "
            "that come and go.");
        out.push_back(
            "Or give the reservations that lie between the gaps back first (cuMemAddressFree); the space "
            "around them joins.");
        return;
    }
    if (s.space.unbacked != 0) {
        out.push_back(fmt::format(
            "Give back reservations that have nothing mapped (cuMemAddressFree): {} of {} reserved.",
            in_words(s.space.unbacked), in_words(s.space.reserved)));
    }
    out.push_back("Reserve less ahead: a reservation costs no memory, but the address space has an end.");
}

}  // namespace

std::vector<std::string> actions_for(const Situation& s, const std::vector<Counterfactual>& rows,
                                     const Verdict& verdict) {
    std::vector<std::string> out = framework_actions(s, verdict);
    for (std::string& action : limit_actions(s, verdict)) out.push_back(std::move(action));
    switch (verdict.cause()) {
        case Verdict::other_constraint:
            if (verdict.constraint() == "cached_by_pool") for_cached(s, out);
            if (verdict.constraint() == "kept_by_graphs") for_graphs(s, out);
            if (verdict.constraint() == "gone_at_once") {
                out.push_back(
                    "Try the same request again after a moment, or after cudaDeviceSynchronize; and record "
                    "every "
                    "process of the device in one session, so that what was given back then is seen.");
            }
            if (verdict.constraint() == "pending_frees" && out.empty()) {
                out.push_back(
                    "Synchronise the streams that freed memory (cudaStreamSynchronize), then trim their pool "
                    "(cuMemPoolTrimTo, cudaMemPoolTrimTo with 0 bytes to keep) before this allocation; or "
                    "give it back earlier, so that the stream gets there in time.");
            }
            if (verdict.constraint() == "pool_maximum") {
                out.push_back(
                    "Raise the pool's maximum size (CUmemPoolProps::maxSize of cuMemPoolCreate), or give "
                    "allocations of this pool back first.");
            }
            if (verdict.constraint() == "address_space" && out.empty()) for_addresses(s, verdict, out);
            if (verdict.constraint() == "driver_refused" || verdict.constraint() == "less_than_said") {
                out.push_back(
                    "Look at what the driver and the system say of that moment: the kernel log (dmesg, Xid "
                    "messages), a memory limit of the container or of MPS, the driver's and runtime's "
                    "versions.");
            }
            break;
        case Verdict::internal_fragmentation:
            if (out.empty()) for_internal(s, out);
            break;
        case Verdict::capacity_exhaustion:
            for_capacity(s, rows, verdict, out);
            break;
        case Verdict::virtual_space_fragmentation:
            for_addresses(s, verdict, out);
            break;
        case Verdict::physical_external_fragmentation:
            out.push_back(
                "Ask for several smaller physical allocations and map them side by side (cuMemMap): the "
                "addresses are then in one piece.");
            break;
        case Verdict::allocator_external_fragmentation:
            if (!out.empty()) break;
            for (const Counterfactual& row : rows) {
                if (row.id == "with_pool_maximum_lifted" && row.applicable && row.fit == Fit::kFits) {
                    out.push_back(
                        "Raise the pool's maximum size (CUmemPoolProps::maxSize of cuMemPoolCreate): the "
                        "device has the memory for it to grow.");
                }
            }
            out.push_back(
                "Give back all blocks of the pool that share chunks with the gaps, or give long-lived and "
                "short-lived "
                "blocks pools of their own.");
            break;
        case Verdict::undetermined:
            out.push_back("Take the deciding measurement before changing anything: " +
                          verdict.deciding_measurement() + ".");
            break;
        default:
            break;
    }
    return out;
}

std::vector<std::string> not_known_in(const Situation& s) {
    std::vector<std::string> out;
    if (s.stated) {
        if (!s.inexact.empty()) {
            std::string names;
            for (const std::string& name : s.inexact) names += (names.empty() ? "" : ", ") + name;
            out.push_back("Exactly: " + names + ". The report that the numbers are from may tell.");
        }
        if (!s.runs) {
            out.push_back(
                "The largest physical run that nobody holds: no call shows it. A probe with cuMemCreate at "
                "the failure bounds it.");
        }
        out.push_back(
            "Whatever the numbers do not speak of: other limits, other users of the device, what memory "
            "holds. A recording of the failing run tells (`fragscope run --probe-on-oom`).");
        return out;
    }
    if (s.hypothetical && !s.device_free.known()) {
        out.push_back("What nobody on the device held at this moment: " + s.not_asked + ".");
    } else if (!s.snapshot.complete && !s.snapshot.by_program) {
        out.push_back(
            "What the driver said right after this failure: the recording has no complete snapshot of it. "
            "The driver "
            "is asked after every failed allocation, but not again within a few milliseconds; of several "
            "failures "
            "in a row the first one has its snapshot.");
    }
    out.push_back(
        "The largest physical run that nobody holds: no call shows it. A probe with cuMemCreate at the "
        "failure bounds it.");
    if (s.linear.interval().known() && !s.linear.exact()) {
        out.push_back(
            fmt::format("How the driver rounds and packs linear memory: {} are charged for {} requested. The "
                        "drop of device-free memory (cuMemGetInfo) around single allocations tells.",
                        in_words(s.linear.interval()), in_words(s.linear_requested.interval())));
    }
    if (!s.payload.decisive && s.handles.high().value_or(1) != 0) {
        out.push_back("How much of the VMM memory holds payload: " + s.payload.why +
                      ". The program's own sizes tell.");
    }
    if (s.payload.decisive && s.payload.never_written != 0) {
        out.push_back(fmt::format(
            "What {} of VMM pages without any written byte are held for: an unused reserve, or data "
            "still to come. The program's author can tell.",
            in_words(s.payload.never_written)));
    }
    if (s.unattributed.high().value_or(1) != 0) {
        out.push_back(
            fmt::format("Whose {} are that no record explains: contexts, modules, or processes that were not "
                        "traced. Recording all processes of the device in one session tells.",
                        in_words(s.unattributed.interval())));
    }
    for (const PoolAtFailure& pool : s.pools) {
        if (pool.reclaimable.known() && !pool.reclaimable.exact()) {
            out.push_back(fmt::format(
                "How much of the {} kept by {} a trim returns: it depends on which chunks hold live "
                "blocks. cuMemPoolTrimTo followed by cuMemGetInfo tells.",
                in_words(pool.cached.interval()), pool.name));
        }
    }
    if (s.pending.high().value_or(0) != 0) {
        out.push_back(fmt::format(
            "Whether {} of stream-ordered frees had taken effect: no synchronisation was seen after "
            "them. The same request after cudaStreamSynchronize tells.",
            in_words(s.pending.interval())));
    }
    if (s.managed != 0) {
        out.push_back(fmt::format(
            "How much of {} of managed memory is resident on the device: pages move as they are used.",
            in_words(s.managed)));
    }
    if (s.imported != 0) {
        out.push_back(fmt::format(
            "Who exported the {} of physical memory that this process imported: its bytes count for "
            "the exporter.",
            in_words(s.imported)));
    }
    if (s.contradictions.unknown_releases != 0) {
        out.push_back(fmt::format(
            "What {} released addresses or handles were that this trace did not see acquired: they are "
            "unknown before attach. Starting the program under `fragscope run` tells.",
            s.contradictions.unknown_releases));
    }
    for (std::string& what : framework_not_known(s)) out.push_back(std::move(what));
    return out;
}

}  // namespace fragscope::analysis
