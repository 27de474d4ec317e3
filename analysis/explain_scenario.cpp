#include "analysis/explain_scenario.h"

#include "analysis/explain.h"

namespace fragscope::analysis {

report::Explanation explain_scenario(const Scenario& scenario,
                                     std::optional<Shape> contract) {
    Situation situation = situation_of(scenario);
    set_contract(situation, contract_of(situation.request, contract));
    report::Explanation out;
    out.set_id(scenario.id);
    out.mutable_scenario()->set_title(scenario.title);
    for (const std::string& name : situation.inexact) out.mutable_scenario()->add_inexact(name);
    out.mutable_health()->set_complete(scenario.not_used.empty());
    for (const std::string& member : scenario.not_used) {
        out.mutable_health()->add_warnings(
            "The scenario's member " + member +
            " is none of the format, or of no meaning there: the answer is one without it.");
    }
    const RequestFacts& facts = situation.request;
    const Scope scope = situation.physical.in_domain(facts.domain);
    report::Request& request = *out.mutable_request();
    request.set_in_words(facts.in_words);
    *request.mutable_requested() =
        (scenario.request.bytes.exact()
             ? Quantity::measured(report::Quantity::requested, facts.requested, scope,
                                  "as it is stated")
             : Quantity::bounded(report::Quantity::requested, scenario.request.bytes, scope,
                                 "as far as it is stated"))
            .message();
    *request.mutable_needed() =
        (facts.needed.exact()
             ? Quantity::derived(report::Quantity::needed, *facts.needed.low, scope, facts.needed_reason)
             : Quantity::bounded(report::Quantity::needed, facts.needed, scope, facts.needed_reason))
            .message();
    if (facts.alignment != 0) request.set_alignment_bytes(facts.alignment);
    if (facts.granularity != 0) request.set_granularity_bytes(facts.granularity);
    request.set_contiguity(facts.contiguity);
    request.set_contiguity_reason(facts.contiguity_reason);
    request.set_device(situation.device);
    conclude(situation, out);
    return out;
}

}  // namespace fragscope::analysis
