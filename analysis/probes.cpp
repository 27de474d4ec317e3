#include "analysis/probes.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/failures.h"
#include "analysis/kinds.h"
#include "analysis/quantity.h"

namespace fragscope::analysis {

using wire::Kind;
using wire::ProbeMechanism;
using wire::ProbesEnd;

Probes probes_of(const EventLog& events, std::size_t failed) {
    Probes out;
    const Event& failure = events[failed];
    bool released = false, acquired = false;
    for (std::size_t i = failed + 1; i < events.size(); ++i) {
        const Event& event = events[i];
        if (event.thread != failure.thread) {
            if (event.failed() || event.has(wire::kByShim)) continue;
            released = released || releases(event.kind);
            acquired = acquired || acquires(event.kind) || takes_unstated(event.kind) ||
                       event.kind == Kind::kReserved || event.kind == Kind::kHostAcquired;
            continue;
        }
        if (event.sequence == failure.sequence && event.has(wire::kContinued)) continue;
        // The trials come before the program sees its error: whatever it does next ends them.
        if (!event.has(wire::kByShim)) break;
        if (event.kind == Kind::kProbe && event.object.value == failure.sequence.value) {
            Probe probe;
            probe.mechanism = static_cast<ProbeMechanism>(event.address.value & 0xff);
            probe.bytes = event.bytes.value;
            probe.result = event.result;
            probe.duration_ns = event.duration_ns;
            probe.granularity = event.extra;
            probe.after_a_release = released;
            probe.after_an_acquisition = acquired;
            if (!mechanism_id(probe.mechanism).empty()) out.tried.push_back(probe);
        } else if (event.kind == Kind::kProbesEnded && event.object.value == failure.sequence.value) {
            out.end = static_cast<ProbesEnd>(event.address.value & 0xff);
            out.took_ns = event.bytes.value;
            out.most_at_once = event.extra;
            break;
        }
    }
    return out;
}

std::uint64_t Probes::granted(ProbeMechanism mechanism) const {
    std::uint64_t most = 0;
    for (const Probe& probe : tried) {
        if (probe.mechanism == mechanism && probe.granted() && !probe.after_a_release)
            most = std::max(most, probe.bytes);
    }
    return most;
}

std::optional<std::uint64_t> Probes::refused(ProbeMechanism mechanism) const {
    const std::uint64_t most = granted(mechanism);
    std::optional<std::uint64_t> least;
    for (const Probe& probe : tried) {
        if (probe.mechanism != mechanism || probe.result != kOutOfMemory || probe.after_an_acquisition)
            continue;
        if (probe.bytes > most && (!least || probe.bytes < *least)) least = probe.bytes;
    }
    return least;
}

std::string mechanism_id(ProbeMechanism mechanism) {
    switch (mechanism) {
        case ProbeMechanism::kDirect:
            return "direct";
        case ProbeMechanism::kHandleMinimum:
            return "vmm";
        case ProbeMechanism::kHandleRecommended:
            return "vmm_recommended";
        case ProbeMechanism::kStitched:
            return "stitched";
        case ProbeMechanism::kPool:
            return "pool";
        case ProbeMechanism::kManaged:
            return "managed";
        case ProbeMechanism::kHost:
            return "host";
        case ProbeMechanism::kAddresses:
            return "reservation";
    }
    return "";
}

std::string ended_in_words(const Probes& probes) {
    if (!probes.end) {
        return probes.tried.empty()
                   ? ""
                   : "That the trials ended is not in the trace: some may be missing, and so may "
                     "the undoing of the last one.";
    }
    const std::string did = fmt::format(
        "The recorder tried {} allocation{} in place and undid {}, in {:.1f} ms, with at "
        "most {} held at once.",
        probes.tried.size(), probes.tried.size() == 1 ? "" : "s", probes.tried.size() == 1 ? "it" : "each",
        static_cast<double>(probes.took_ns) / 1e6, in_words(probes.most_at_once));
    switch (*probes.end) {
        case ProbesEnd::kFinished:
            return did;
        case ProbesEnd::kTimeLimit:
            return did + " Its time limit ended them.";
        case ProbesEnd::kCapturing:
            if (!probes.tried.empty()) return did + " A stream capture that began ended them.";
            return "Nothing was tried in place: a stream capture was running.";
        case ProbesEnd::kNoContext:
            return "Nothing was tried in place: no context was current.";
        case ProbesEnd::kNotUndone:
            return did + " One of them could not be undone: from here on the process holds that much more.";
        case ProbesEnd::kTooSoon:
            return "Nothing was tried in place: other trials had taken their time shortly before, or were under way in "
                   "another thread.";
    }
    return did;
}

}  // namespace fragscope::analysis
