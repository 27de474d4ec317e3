#include "analysis/explain_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "analysis/balance.h"
#include "analysis/consumers.h"
#include "analysis/driver_word.h"
#include "analysis/explain.h"
#include "analysis/failed_call.h"
#include "analysis/health.h"
#include "analysis/management.h"
#include "analysis/measures.h"
#include "analysis/session.h"
#include "analysis/situation_if.h"
#include "analysis/usage.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

struct Way {
    const char* name;
    Kind kind;
    const char* function;
};
constexpr std::array<Way, 7> kWays = {{
    {"linear", Kind::kLinearAcquired, "cuMemAlloc"},
    {"vmm", Kind::kHandleCreated, "cuMemCreate"},
    {"pool", Kind::kPoolAcquired, "cuMemAllocAsync"},
    {"address", Kind::kReserved, "cuMemAddressReserve"},
    {"framework", Kind::kBlockRefused, "the framework's allocator"},
    {"host", Kind::kHostAcquired, "cuMemHostAlloc"},
    {"managed", Kind::kManagedAcquired, "cuMemAllocManaged"},
}};

const Way& way_of(Kind kind) {
    for (const Way& way : kWays) {
        if (way.kind == kind) return way;
    }
    return kWays.front();
}

// What the processes did up to the moments, watched in their replay.
struct Watched {
    UsageRecorder usage;
    ConsumerRecorder consumers;
};

struct Chosen {
    int device = kNoDevice;
    Mechanism mechanism;
    std::string why;
};

std::vector<int> devices_of(const Trace& trace, ProcessIndex process) {
    std::vector<int> out;
    if (process.value >= trace.processes.size()) return out;
    for (const trace::Device& device : trace.processes[process.value].devices())
        out.push_back(static_cast<int>(device.ordinal()));
    return out;
}

// The ordinal that the process has for what a person wrote; nothing: none.
std::optional<int> device_named(const Trace& trace, ProcessIndex process, const std::string& name) {
    for (const int ordinal : devices_of(trace, process)) {
        const std::string uuid = device_uuid(trace, process, ordinal);
        if (name == std::to_string(ordinal) || (!uuid.empty() && name == uuid)) return ordinal;
    }
    return std::nullopt;
}

std::string devices_in_words(const Trace& trace, ProcessIndex process) {
    std::string out;
    for (const int ordinal : devices_of(trace, process)) {
        const std::string uuid = device_uuid(trace, process, ordinal);
        out += fmt::format("{}{}{}", out.empty() ? "" : ", ", ordinal, uuid.empty() ? "" : " (" + uuid + ")");
    }
    return out.empty() ? "none" : out;
}

// Nothing: the process has no such device.
std::optional<Chosen> choose(const Trace& trace, ProcessIndex process, const RequestQuestion& question,
                             const UsageRecorder& usage) {
    Chosen out;
    const std::vector<int> devices = devices_of(trace, process);
    if (question.device) {
        const auto named = device_named(trace, process, *question.device);
        if (!named) return std::nullopt;
        out.device = *named;
    } else {
        out.device = usage.busiest();
        if (out.device == kNoDevice && !devices.empty()) {
            out.device = devices.front();
            if (devices.size() > 1)
                out.why = "its first device, as this process had asked for nothing on any of them by then";
        } else if (devices.size() > 1) {
            out.why = "the device on which this process had asked for most by then";
        }
    }
    if (question.mechanism) {
        out.mechanism = *question.mechanism;
        return out;
    }
    if (!out.why.empty()) out.why += "; ";
    if (const auto most = usage.most_on(out.device)) {
        out.mechanism.kind = most->kind;
        out.why += fmt::format("{}, by which it had asked for most there: {} in {} call{}",
                               way_of(most->kind).function, in_words(most->use.bytes), most->use.calls,
                               most->use.calls == 1 ? "" : "s");
    } else {
        out.why += "the plain call (cuMemAlloc), as it had asked for nothing there by then";
    }
    return out;
}

std::string moment_in_words(const Trace& trace, const NamedMoment& moment) {
    const auto& events = trace.events[moment.process.value];
    const std::string mark = moment.mark.empty() ? "" : fmt::format(", mark '{}'", moment.mark);
    if (moment.index == 0) return "before the first record of its process" + mark;
    const Event& last = events[moment.index - 1];
    const std::string function = function_name(trace, last);
    return fmt::format("after record {} of its process{}{}{}", last.sequence.value,
                       function.empty() ? "" : " (" + function + ")", mark,
                       moment.index == events.size() ? ", the last one" : "");
}

report::Request request_message(const Situation& s, const NamedMoment& moment,
                                const RequestQuestion& question, const Chosen& chosen) {
    const RequestFacts& facts = s.request;
    const Way& way = way_of(facts.kind);
    report::Request out;
    out.set_hypothetical(true);
    out.set_at(question.at);
    out.set_moment(moment_in_words(*s.trace, moment));
    out.set_mechanism(way.name);
    out.set_chosen(chosen.why);
    out.set_function(way.function);
    out.set_in_words(facts.in_words);
    const Scope scope = s.physical.in_domain(facts.domain);
    *out.mutable_requested() =
        Quantity::measured(report::Quantity::requested, facts.requested, scope, "as it was asked about")
            .message();
    *out.mutable_needed() =
        (facts.rounding_assumed
             ? Quantity::assumed(report::Quantity::needed, facts.needed, scope, facts.needed_reason)
             : Quantity::bounded(report::Quantity::needed, facts.needed, scope, facts.needed_reason))
            .message();
    if (facts.alignment != 0) out.set_alignment_bytes(facts.alignment);
    if (facts.granularity != 0) out.set_granularity_bytes(facts.granularity);
    out.set_contiguity(facts.contiguity);
    out.set_contiguity_reason(facts.contiguity_reason);
    out.set_process(moment.process.value);
    out.set_device(s.device);
    out.set_sequence(s.physical.snapshot.value_or(0));
    out.set_time_ns(s.physical.time_ns.value_or(0));
    return out;
}

// A size that the call refuses before any memory is looked for.
bool refused_for_its_size(const Situation& s, report::Explanation& out) {
    const RequestFacts& facts = s.request;
    if (facts.kind != Kind::kHandleCreated || facts.granularity == 0 ||
        facts.requested % facts.granularity == 0 || facts.granularity != s.page)
        return false;
    const trace::Device* device = device_of(*s.trace, s.failure.process, facts.device);
    if (device == nullptr || device->minimum_granularity_bytes() != facts.granularity) return false;
    report::Verdict& verdict = *out.mutable_verdict();
    verdict.set_cause(report::Verdict::not_an_allocation);
    verdict.set_constraint("size_not_multiple_of_granularity");
    verdict.set_summary(
        fmt::format("cuMemCreate takes whole multiples of the device's granularity only, {} here, and {} ({} "
                    "B) are none: it "
                    "would answer CUDA_ERROR_INVALID_VALUE, whatever memory there is.",
                    in_words(facts.granularity), in_words(facts.requested), facts.requested));
    out.add_actions(fmt::format("Ask for {}, the next whole multiple of {}.",
                                in_words(round_up(facts.requested, facts.granularity)),
                                in_words(facts.granularity)));
    return true;
}

void point_to_other_moments(const Situation& s, report::Explanation& out) {
    if (s.device_free.known() || out.verdict().cause() != report::Verdict::undetermined) return;
    const NearestWords nearest =
        nearest_words(s.trace->events[s.failure.process.value], s.place.before, s.request.device);
    std::string where;
    if (nearest.before) where = fmt::format("--at {} (before)", nearest.before->value);
    if (nearest.after)
        where += fmt::format("{}--at {} (after)", where.empty() ? "" : " or ", nearest.after->value);
    if (where.empty()) return;
    out.add_actions("Ask the same for a moment at which the driver was asked: " + where + ".");
}

report::Explanation explained(const Trace& trace, const NamedMoment& moment, const RequestQuestion& question,
                              const Chosen& chosen, const Watched& watched, const StackWords& words,
                              SessionWalk& walk) {
    AskedRequest asked;
    asked.process = moment.process;
    asked.moment = moment.index;
    asked.time_ns = moment.time_ns;
    asked.kind = chosen.mechanism.kind;
    asked.pool = chosen.mechanism.pool;
    asked.bytes = question.bytes;
    asked.device = static_cast<std::int16_t>(chosen.device);
    Situation s = situation_if(trace, asked, walk);
    set_contract(s, contract_of(s.request, question.contract, watched.consumers, trace, moment.process));

    report::Explanation out;
    out.set_id(fmt::format("if:{}:{}@{}.{}", question.bytes, way_of(asked.kind).name, moment.process.value,
                           s.physical.snapshot.value_or(0)));
    *out.mutable_request() = request_message(s, moment, question, chosen);
    if (refused_for_its_size(s, out)) return out;
    measure(s, walk);
    look_at_the_run(s, nullptr);
    conclude(s, out);
    add_call_sites(s.internal, trace, moment.process, words, *out.mutable_measures());
    point_to_other_moments(s, out);
    if (const auto balance = balance_of(s)) {
        *out.mutable_balance() = message_of(*balance);
        out.mutable_balance()->add_moments(question.at);
    }
    if (auto management = management_at(trace, s.device, s.place.from_ns))
        *out.mutable_management() = std::move(*management);
    return out;
}

}  // namespace

const char* const kMechanismForms = "linear, vmm, pool, pool:0xHANDLE, address, framework, host or managed";

std::optional<Mechanism> mechanism_named(const std::string& name) {
    constexpr std::string_view kPool = "pool:0x";
    if (name.starts_with(kPool)) {
        Mechanism out{Kind::kPoolAcquired, {}};
        const char* const begin = name.data() + kPool.size();
        const char* const end = name.data() + name.size();
        const auto [last, error] = std::from_chars(begin, end, out.pool.value, 16);
        if (begin == end || error != std::errc() || last != end) return std::nullopt;
        return out;
    }
    for (const Way& way : kWays) {
        if (name == way.name) return Mechanism{way.kind, {}};
    }
    return std::nullopt;
}

std::string answer_requests(const Trace& trace, const RequestQuestion& question, const StackWords& words,
                            const std::function<bool(const report::Explanation&)>& answer) {
    const Moments moments = moments_of(trace, question.where, question.process);
    if (!moments.why_none.empty()) return moments.why_none;
    const report::Health health = health_of(trace);
    const auto failures = static_cast<std::uint32_t>(list_failures(trace).size());
    std::vector<Watched> watched(trace.events.size());
    SessionWalk walk(trace, [&](ProcessIndex process, const ProcessState& state, const Event& event) {
        watched[process.value].usage.add(event);
        watched[process.value].consumers.add(state, event);
    });
    bool any = false;
    std::string why_not;  // of the first moment that has no answer
    for (const NamedMoment& moment : moments.found) {
        FailureSnapshot there;
        there.moment = moment.index;
        walk.advance({0, moment.process, moment.index, true}, there);
        const Watched& seen = watched[moment.process.value];
        const auto chosen = choose(trace, moment.process, question, seen.usage);
        if (!chosen) {
            if (why_not.empty())
                why_not = fmt::format("process {} has no device '{}': it saw {}", moment.process.value,
                                      question.device.value_or(""), devices_in_words(trace, moment.process));
            continue;
        }
        const ObjectId pool = chosen->mechanism.pool;
        if (pool.value != 0 && !walk.failing().pools().contains(pool)) {
            if (why_not.empty())
                why_not = fmt::format("process {} had no {} then, as far as its records tell",
                                      moment.process.value, pool_in_words(pool));
            continue;
        }
        any = true;
        report::Explanation out = explained(trace, moment, question, *chosen, seen, words, walk);
        out.set_trace(trace.path);
        *out.mutable_health() = health;
        out.set_of_failures(failures);
        if (!answer(out)) return "";
    }
    return any ? "" : why_not;
}

}  // namespace fragscope::analysis
