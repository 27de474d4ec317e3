// Orders by declared objectives and the Pareto set, on comparisons written by hand.
#include "analysis/mechanism_order.h"

#include <doctest/doctest.h>

using namespace fragscope;
using namespace fragscope::analysis;
using report::Comparison;
using report::CostPart;
using report::Mechanism;

namespace {

void cost(Mechanism& m, const char* part, CostPart::Evidence evidence, std::uint64_t low,
          std::uint64_t high) {
    CostPart& out = *m.add_costs();
    out.set_part(part);
    out.set_evidence(evidence);
    out.set_low_ns(low);
    out.set_high_ns(high);
}

// Everything measured, each part the same interval.
Mechanism& all_measured(Comparison& c, const char* id, std::uint64_t memory, std::uint64_t low,
                        std::uint64_t high) {
    Mechanism& m = *c.add_mechanisms();
    m.set_id(id);
    m.set_standing(Mechanism::feasible);
    m.mutable_overhead_known()->set_low_bytes(memory);
    m.mutable_overhead_known()->set_high_bytes(memory);
    for (const char* part :
         {"setup", "steady_state", "tail", "translation", "indirection", "allocator", "synchronisation"})
        cost(m, part, CostPart::measured, low, high);
    return m;
}

}  // namespace

TEST_CASE("dominated: no better in anything and certainly worse in something, with all of it measured") {
    Comparison c;
    all_measured(c, "a", 10, 100, 200);
    all_measured(c, "b", 10, 201, 300);  // certainly slower than a, and no smaller
    all_measured(c, "c", 5, 201, 300);   // less memory than a
    find_pareto_set(c);
    REQUIRE(c.pareto_size() == 2);
    CHECK(c.pareto(0) == "a");
    CHECK(c.pareto(1) == "c");
    REQUIRE(c.dominated_size() == 1);
    CHECK(c.dominated(0).find("b: ") == 0);
}

TEST_CASE("overlapping intervals dominate nothing") {
    Comparison c;
    all_measured(c, "a", 10, 100, 200);
    all_measured(c, "b", 10, 150, 300);
    find_pareto_set(c);
    CHECK(c.pareto_size() == 2);
}

TEST_CASE("setup-only timing: what lacks steady state and tail neither dominates nor is ranked by them") {
    Comparison c;
    all_measured(c, "a", 10, 100, 200);
    Mechanism& m = *c.add_mechanisms();
    m.set_id("setup_only");
    m.set_standing(Mechanism::hypothesis);
    m.mutable_overhead_known()->set_low_bytes(0);
    m.mutable_overhead_known()->set_high_bytes(0);
    cost(m, "setup", CostPart::measured, 1, 2);
    find_pareto_set(c);
    CHECK(c.pareto_size() == 2);
    CHECK(c.pareto_note().find("steady state") != std::string::npos);
    CHECK(c.pareto_note().find("tail") != std::string::npos);
    rank(c, "steady");
    REQUIRE(c.ranking().ranked_size() == 1);
    CHECK(c.ranking().ranked(0).id() == "a");
    REQUIRE(c.ranking().cannot_be_ranked_size() == 1);
    CHECK(c.ranking().cannot_be_ranked(0) == "setup_only: nothing is known of it");
    rank(c, "setup");
    CHECK(c.ranking().ranked(0).id() == "setup_only");
    CHECK(c.ranking().ranked(1).rank() == 2);
}

TEST_CASE("a hypothesis orders nothing, however good its number looks") {
    Comparison c;
    all_measured(c, "a", 10, 100, 200);
    Mechanism& guess = all_measured(c, "guess", 0, 1, 1);
    for (CostPart& part : *guess.mutable_costs()) {
        if (part.part() == "translation") part.set_evidence(CostPart::hypothesis);
    }
    find_pareto_set(c);
    CHECK(c.pareto_size() == 2);
    rank(c, "translation");
    REQUIRE(c.ranking().ranked_size() == 1);
    CHECK(c.ranking().ranked(0).id() == "a");
}

TEST_CASE("rank: one more than the number of those that are certainly better; rejected ones have none") {
    Comparison c;
    all_measured(c, "slow", 0, 500, 600);
    all_measured(c, "fast", 0, 100, 200);
    all_measured(c, "as_fast", 0, 150, 250);
    all_measured(c, "refused", 0, 1, 1).set_standing(Mechanism::rejected);
    rank(c, "tail");
    REQUIRE(c.ranking().ranked_size() == 3);
    CHECK(c.ranking().ranked(0).id() == "fast");
    CHECK(c.ranking().ranked(0).rank() == 1);
    CHECK(c.ranking().ranked(1).id() == "as_fast");
    CHECK(c.ranking().ranked(1).rank() == 1);
    CHECK(c.ranking().ranked(2).id() == "slow");
    CHECK(c.ranking().ranked(2).rank() == 3);
}

TEST_CASE("memory: by the known bytes; without an upper end there is no rank") {
    Comparison c;
    all_measured(c, "large", 4096, 1, 1);
    all_measured(c, "small", 16, 1, 1);
    all_measured(c, "open", 16, 1, 1).mutable_overhead_known()->clear_high_bytes();
    rank(c, "memory");
    REQUIRE(c.ranking().ranked_size() == 2);
    CHECK(c.ranking().ranked(0).id() == "small");
    CHECK(c.ranking().ranked(1).rank() == 2);
    CHECK(c.ranking().cannot_be_ranked_size() == 1);
    CHECK(is_objective("memory"));
    CHECK_FALSE(is_objective("price"));
}
