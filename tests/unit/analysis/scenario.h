// What the tests of verdicts share: the explanation of a built trace, and places in it by name.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "analysis/explain.h"
#include "analysis/explain_if.h"
#include "tests/unit/analysis/audits.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/sums.h"
#include "tests/unit/analysis/texts.h"

namespace fragscope::test {

inline constexpr std::uint64_t kPage = 2 * kMiB;

inline const report::Counterfactual& row(const report::Explanation& e, const std::string& id) {
    for (const auto& r : e.counterfactuals()) {
        if (r.id() == id) return r;
    }
    FAIL("no counterfactual " << id);
    return e.counterfactuals(0);
}

inline const report::Quantity& audit(const report::Explanation& e, report::Quantity::Definition definition) {
    for (const auto& q : e.audit()) {
        if (q.definition() == definition) return q;
    }
    FAIL("not in the audit: " << report::Quantity::Definition_Name(definition));
    return e.audit(0);
}

inline const report::Domain& domain(const report::Explanation& e, const std::string& name) {
    for (const auto& d : e.domains()) {
        if (d.name() == name) return d;
    }
    FAIL("no domain " << name);
    return e.domains(0);
}

inline const report::Bound& bound(const report::Explanation& e, const std::string& mechanism) {
    for (const auto& b : e.bounds()) {
        if (b.mechanism() == mechanism) return b;
    }
    FAIL("no bound " << mechanism);
    return e.bounds(0);
}

inline bool says(const report::Explanation& e, const std::string& text) {
    return std::any_of(e.actions().begin(), e.actions().end(),
                       [&](const std::string& action) { return action.find(text) != std::string::npos; });
}

// A test program sets it, for all of its scenarios.
inline bool ask_again = false;

// Asked about at the failure's own moment, the request that failed has the cause that the failure has: the
// same state, the same request, and a refusal in it.
inline void check_asked_again(SessionBuilder& session, const report::Explanation& failure) {
    if (!failure.has_request() || failure.verdict().cause() == report::Verdict::not_an_allocation) return;
    // The moment of a failure is the one at which the driver spoke. Where it did not, a number that the
    // program asked for before is of that moment and not of the failure; where other threads changed
    // something in between, the two are two moments.
    const report::Quantity& said = audit(failure, report::Quantity::device_free);
    const report::Quantity& available = row(failure, "as_it_was").available();
    if (available.scope().domain() == "physical" &&
        (!said.has_low_bytes() || said.low_bytes() != available.low_bytes()))
        return;
    const auto& events = session.trace().events[failure.request().process()];
    const auto made = std::find_if(events.begin(), events.end(), [&](const analysis::Event& event) {
        return event.sequence.value == failure.request().sequence();
    });
    REQUIRE(made != events.end());
    const analysis::Event call = *made;
    analysis::RequestQuestion question;
    question.bytes = call.bytes.value;
    question.at = failure.id();
    question.where = *analysis::where_of(failure.id());
    switch (call.kind) {
        case wire::Kind::kLinearAcquired:
        case wire::Kind::kReserved:
        case wire::Kind::kHandleCreated:
            question.mechanism = analysis::Mechanism{call.kind, {}};
            break;
        case wire::Kind::kPoolAcquired:
            if (call.object.value == 0 || call.has(wire::kCaptured)) return;
            question.mechanism = analysis::Mechanism{call.kind, call.object};
            break;
        default:
            return;
    }
    if (!failure.request().device().empty()) question.device = failure.request().device();
    const std::string why_not =
        analysis::answer_requests(session.trace(), question, {}, [&](const report::Explanation& asked) {
            INFO(asked.verdict().summary());
            check_words(asked);
            check_sums(asked);
            CHECK(report::Verdict::Cause_Name(asked.verdict().cause()) ==
                  report::Verdict::Cause_Name(failure.verdict().cause()));
            CHECK(asked.verdict().constraint() == failure.verdict().constraint());
            return true;
        });
    CHECK(why_not == "");
}

// Every scenario of this file goes through here, and so does every text that is made of it.
inline report::Explanation explained(SessionBuilder& session) {
    const report::Report report = analysis::make_report(session.trace());
    check_words(report);
    check_sums(report);
    const report::Explanation out = analysis::explain_failure(session.trace());
    check_words(out);
    check_sums(out);
    check_audit(out);
    check_domains(out.domains());
    if (ask_again) check_asked_again(session, out);
    return out;
}

// `count` objects of `payload` bytes, each in a 2 MiB allocation of its own.
inline ProcessBuilder& small_objects(ProcessBuilder& p, std::uint64_t count, std::uint64_t payload) {
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t address = 0x1000000000 + i * kPage;
        p.create(100 + i, kPage).reserve(address, kPage).map(address, kPage, 100 + i);
        if (payload != 0) p.touch(address, payload);
    }
    return p;
}

}  // namespace fragscope::test
