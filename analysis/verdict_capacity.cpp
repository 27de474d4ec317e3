// Verdicts of a full device: what the program itself could have given back, and who holds the rest.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;

namespace {

constexpr char kNotFreedEnough[] = " Nothing that this process has given back already";

// What the process itself could have done without giving up payload; reached only if that was not enough.
std::string own_part(const Situation& s, const std::vector<Counterfactual>& rows) {
    if (s.stated)
        return " Nothing that holds no data would have been enough: no cache, no gap, no rounding and no "
               "limit.";
    const Counterfactual* waste = row_of(rows, "without_internal_waste");
    if (waste != nullptr && waste->applicable && waste->fit != Fit::kDoesNotFit) {
        return fmt::format(
            "{} would have been enough. Up to {} of what it is charged may be rounding: that might have made "
            "room for this one request, but is less than a quarter of what it holds.",
            kNotFreedEnough, in_words(waste->freed.high().value_or(0)));
    }
    const Counterfactual* never = row_of(rows, "without_never_written_pages");
    if (never != nullptr && never->applicable && never->fit != Fit::kDoesNotFit) {
        return fmt::format(
            "{} would have been enough. {} of what it is charged lie in VMM pages that {} never written: "
            "without those it {} have fitted.",
            kNotFreedEnough, in_words(never->freed.interval()),
            never->freed.exact() ? "were" : "may have been", never->fit == Fit::kFits ? "would" : "might");
    }
    if (!s.handle_waste.known()) {
        return fmt::format(
            "{} would have been enough. Whether what it holds is full of payload is not known.",
            kNotFreedEnough);
    }
    return fmt::format("{}, or wastes, would have been enough.", kNotFreedEnough);
}

std::string others_in_words(const Situation& s) {
    std::string out;
    for (const OtherProcess& other : s.other_processes) {
        if (!out.empty()) out += ", ";
        out += fmt::format("{} {}", other.name, in_words(other.charged));
    }
    return out;
}

// A sixteenth of the device or more.
bool matters(const Situation& s, const Quantity& quantity) {
    return quantity.high().value_or(0) >= s.capacity.high().value_or(0) / 16 &&
           quantity.high().value_or(0) != 0;
}

}  // namespace

void add_shares(Verdict& out, const Situation& s) {
    struct Share {
        std::uint64_t bytes;
        std::string words;
    };
    std::vector<Share> shares;
    const auto share = [&](const Quantity& quantity, const std::string& words) {
        const std::uint64_t bytes = quantity.high().value_or(quantity.low().value_or(0));
        if (quantity.known() && bytes != 0)
            shares.push_back({bytes, words + ": " + in_words(quantity.interval())});
    };
    share(s.handles, "VMM allocations of this process");
    share(s.linear, "linear memory of this process");
    share(s.arrays, "arrays of this process");
    share(s.graphs, "reserved for allocations of this process's graphs");
    for (const PoolAtFailure& pool : s.pools) {
        share(pool.reserved, pool.name + " of this process");
        share(pool.cached, "of that, kept by " + pool.name + " and in no live allocation");
    }
    for (const OtherProcess& other : s.other_processes) {
        const std::uint64_t bytes = other.charged.high.value_or(other.charged.low.value_or(0));
        shares.push_back({bytes, other.name + (s.stated ? ": " : ", another process of this trace: ") +
                                     in_words(other.charged)});
    }
    share(s.unattributed,
          s.stated ? "contexts, and what the numbers do not name"
                   : "held by no record of any recorded process (contexts, modules, processes that "
                     "were not recorded)");
    share(s.held_by_importers, "freed by this process and still mapped by an importer");
    share(s.leaked, "in leaked physical handles of this process");
    share(s.partly_waste, "charged for VMM pages but never written, in pages that hold some payload");
    if (s.payload.decisive && s.payload.never_written != 0) {
        shares.push_back({s.payload.never_written,
                          "VMM pages without any written byte: " + in_words(s.payload.never_written)});
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
    for (const Share& each : shares) out.add_contributing(each.words);
    if (s.unmapped_count != 0) {
        out.add_contributing(
            fmt::format("mapped nowhere, so that no kernel can use it: {} in {} physical "
                        "allocation{}",
                        in_words(s.unmapped_bytes), s.unmapped_count, s.unmapped_count == 1 ? "" : "s"));
    }
    if (s.contexts > 1 && matters(s, s.unattributed)) {
        out.add_contributing(
            fmt::format("this process has {} contexts on the device: what they take is part "
                        "of what no record explains",
                        s.contexts));
    }
}

Verdict own_cause(const Situation& s, const std::vector<Counterfactual>& rows, const Removals& removals) {
    Verdict out;
    const Counterfactual* main = &main_of(s, rows, removals);
    const NamedCause named = cause_of(s, *main);
    const auto say = [&](const std::string& summary) { set(out, named.cause, named.constraint, summary); };
    switch (main->blame) {
        case Blame::kCached:
            say(fmt::format(
                "{}; stream-ordered pools of this program keep {} that it has freed already, and "
                "cuMemPoolTrimTo (cudaMemPoolTrimTo) would have given back {}.",
                free_and_needed(s), in_words(s.cached.interval()), in_words(main->freed.interval())));
            break;
        case Blame::kPending:
            say(
                fmt::format("{}; {} were freed by the program but still waited for their stream: after a "
                            "synchronisation and cuMemPoolTrimTo the device would have had them.",
                            free_and_needed(s), in_words(s.pending.interval())));
            break;
        case Blame::kFrameworkCached:
        case Blame::kFrameworkWaiting:
        case Blame::kFrameworkGaps:
        case Blame::kOwners:
        case Blame::kStreams:
            say(framework_words(s, *main));
            break;
        case Blame::kGraphs:
            say(fmt::format(
                "{}; {} are reserved for allocations of this program's graphs and used by none, and "
                "cuDeviceGraphMemTrim (cudaDeviceGraphMemTrim) would have given back {}.",
                free_and_needed(s), in_words(s.graphs_unused.interval()), in_words(main->freed.interval())));
            break;
        case Blame::kStack:
            say(fmt::format(
                "{}. It is the stack of a kernel, which the driver takes when the kernel is launched: its "
                "size is the stack limit times the threads that the device can hold, and no "
                "call of the program asks for it.",
                free_and_needed(s)));
            break;
        case Blame::kImporter:
            say(fmt::format(
                "{}. This process has freed {} in {} allocation{} that another process has imported and "
                "still maps: the device gets them back only when the importer closes them.",
                free_and_needed(s), in_words(main->freed.interval()), s.importers_hold,
                s.importers_hold == 1 ? "" : "s"));
            break;
        case Blame::kLeaked:
            say(fmt::format(
                "{}. {} are in {} physical handle{} that nothing maps any more and that were never "
                "released.",
                free_and_needed(s), in_words(main->freed.interval()), s.leaks, s.leaks == 1 ? "" : "s"));
            break;
        case Blame::kRounding:
            say(rounding_words(s));
            break;
        case Blame::kLimit:
            say(limit_words(s, *main));
            break;
        case Blame::kGaps: {
            const PhysicalRuns runs = s.runs.value_or(PhysicalRuns{});
            say(fmt::format("{}{} the driver needs one physical run for it, and the largest of {} runs that "
                            "nobody holds is {}.",
                            free_and_needed(s), removals.size() == 1 ? ", which is enough. But" : ". Besides,",
                            runs.count, in_words(runs.largest)));
            break;
        }
        default:
            if (s.framework && s.framework->layout) {
                say(fmt::format(
                    "{}. {} of the allocator's live blocks were never asked for: they are rounding.",
                    free_and_needed(s), in_words(main->freed.interval())));
                break;
            }
            say(fmt::format(
                "{}. This process is charged {} for its allocations, and {} of it lie in pages that hold "
                "some payload but were never written there: the device is full of rounding, not of data.",
                free_and_needed(s), in_words(s.attributed.interval()), in_words(main->freed.interval())));
    }
    if (removals.size() > 1) {
        std::string others;
        for (const Counterfactual* row : removals) {
            if (row != main) others += (others.empty() ? "" : ", ") + row->removed;
        }
        out.set_summary(out.summary() +
                        " That alone would not have been enough: it takes this together with " + others +
                        ".");
    }
    for (const Counterfactual* row : removals) out.add_removed(row->id);
    return out;
}

Verdict capacity(const Situation& s, const std::vector<Counterfactual>& rows) {
    Verdict out;
    const Counterfactual* whole = row_of(rows, "with_nothing_else_on_device");
    if (whole != nullptr && whole->fit == Fit::kDoesNotFit) {
        set(out, Verdict::capacity_exhaustion, "",
            fmt::format(
                "The request is larger than the device: it needs {}, and the device has {} in all. "
                "What else is held plays no part.",
                in_words(s.request.needed.low.value_or(s.request.requested)),
                in_words(s.capacity.interval())));
        return out;
    }
    // Who holds the device, the largest share first.
    struct Holder {
        std::uint64_t bytes;
        std::string words;
    };
    const auto size = [](const Quantity& q) { return q.high().value_or(q.low().value_or(0)); };
    std::vector<Holder> holders = {
        {size(s.attributed), fmt::format("this process itself holds {}", in_words(s.attributed.interval()))}};
    if (!s.other_processes.empty()) {
        holders.push_back(
            {size(s.others), s.stated ? fmt::format("other processes hold {}", in_words(s.others.interval()))
                                      : fmt::format("other processes of this trace hold {} ({})",
                                                    in_words(s.others.interval()), others_in_words(s))});
    }
    if (s.unattributed.known() && size(s.unattributed) != 0) {
        holders.push_back({size(s.unattributed),
                           in_words(s.unattributed.interval()) +
                               (s.stated ? " are taken by contexts and by what the numbers do not name"
                                         : " are held by no record of any recorded process (contexts, "
                                           "modules, processes that were "
                                           "not recorded, memory of graphs)")});
    }
    std::stable_sort(holders.begin(), holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    std::string words = free_and_needed(s) + ": ";
    for (std::size_t i = 0; i < holders.size(); ++i) words += (i == 0 ? "" : ", ") + holders[i].words;
    words += ".";
    if (fits(rows, "without_other_processes")) {
        words += " Without the other processes it would have fitted.";
        out.add_removed("without_other_processes");
    } else if (fits(rows, "without_unattributed")) {
        words += size(s.unattributed) > size(s.attributed)
                     ? " Whose share is which is not known without tracing the other users of the device."
                     : own_part(s, rows);
        out.add_removed("without_unattributed");
    } else {
        words += own_part(s, rows);
        std::vector<const Counterfactual*> all;
        for (const Counterfactual& row : rows) {
            if (row.applicable && row.adds()) all.push_back(&row);
        }
        for (const Counterfactual* row : smallest_set(s, rows, all)) out.add_removed(row->id);
        if (out.removed().empty()) out.add_removed("with_nothing_else_on_device");
    }
    set(out, Verdict::capacity_exhaustion, "", words);
    return out;
}

}  // namespace fragscope::analysis::verdict
