// What a request stands before with several things gone at once, and what each member of a set is worth.
#include "analysis/removal.h"

#include "analysis/limits_at.h"
#include "analysis/verdict_parts.h"
#include "tests/unit/analysis/by_hand.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using report::Verdict;

namespace {

Counterfactual adds(Blame blame, const char* id, const Quantity& freed) {
    Counterfactual out;
    out.id = id;
    out.blame = blame;
    out.change = Change::kAdds;
    out.freed = freed;
    return out;
}

Limit limit_of(const Situation& s, LimitKind kind, const Interval& limit, const Interval& used) {
    Limit out;
    out.kind = kind;
    out.limit = bytes_of(s, limit);
    out.used = bytes_of(s, used);
    out.headroom = Quantity::unknown(report::Quantity::commitment_headroom, s.physical, "");
    return out;
}

}  // namespace

TEST_CASE("trimmed after a synchronisation, pools give back what a trim alone may have to leave") {
    // 1 GiB left. Pools keep 1 to 3 GiB that a trim gives back, and 2 at least once the streams are done;
    // frees of up to 1 GiB wait.
    Situation s = failed_call(8 * kGiB, kGiB, 4 * kGiB);
    s.reclaimable = bytes_of(s, between(kGiB, 3 * kGiB));
    s.reclaimable_when_done = 2 * kGiB;
    const Counterfactual cached = adds(Blame::kCached, "c", s.reclaimable);
    const Counterfactual pending = adds(Blame::kPending, "p", bytes_of(s, between(0, kGiB)));
    const Counterfactual held = adds(Blame::kHeld, "h", bytes_of(s, kGiB));
    const auto available = [&](const Interval& base, const std::vector<const Counterfactual*>& removed) {
        return standing_with(s, base, removed).available;
    };
    CHECK(available(exactly(kGiB), {&cached}) == between(2 * kGiB, 4 * kGiB));
    CHECK(available(exactly(kGiB), {&pending}) == between(kGiB, 2 * kGiB));
    CHECK(available(exactly(kGiB), {&cached, &pending}) == between(3 * kGiB, 5 * kGiB));
    CHECK(available(exactly(kGiB), {&cached, &held}) == between(3 * kGiB, 5 * kGiB));
    CHECK(available(exactly(kGiB), {&pending, &held}) == between(2 * kGiB, 3 * kGiB));
    CHECK(available(at_most(kGiB), {&cached, &pending}) == at_most(5 * kGiB));
    // Less than what a trim gives back for certain is no loss.
    s.reclaimable_when_done = 512 * kMiB;
    CHECK(available(exactly(kGiB), {&cached, &pending}) == between(2 * kGiB, 5 * kGiB));
    s.reclaimable_when_done = 2 * kGiB;
    // A pool's own request finds what waits in it without a trim.
    s.request.draws = Draws::kPool;
    CHECK(available(exactly(kGiB), {&cached, &pending}) == between(2 * kGiB, 5 * kGiB));
}

TEST_CASE("what draws on the device has no more than the device; what draws on something else may") {
    Situation s = failed_call(8 * kGiB, kGiB, 4 * kGiB);
    for (const Draws draws : {Draws::kPhysical, Draws::kStack, Draws::kContext, Draws::kPool}) {
        CHECK(on_the_device(draws));
        s.request.draws = draws;
        CHECK(standing_with(s, between(kGiB, 9 * kGiB), {}).available == between(kGiB, 8 * kGiB));
        // More than that for certain: one of the numbers is wrong.
        CHECK(standing_with(s, between(9 * kGiB, 10 * kGiB), {}).available == at_most(8 * kGiB));
        CHECK(standing_with(s, exactly(8 * kGiB), {}).available == exactly(8 * kGiB));
        CHECK(standing_with(s, at_least(kGiB), {}).available == at_least(kGiB));
    }
    for (const Draws draws : {Draws::kHost, Draws::kAperture, Draws::kAddressSpace, Draws::kUnaccounted}) {
        CHECK_FALSE(on_the_device(draws));
        s.request.draws = draws;
        CHECK(standing_with(s, exactly(16 * kGiB), {}).available == exactly(16 * kGiB));
    }
}

TEST_CASE("a limit caps what there is; an end that is not known is bounded above only") {
    Situation s = failed_call(16 * kGiB, 4 * kGiB, 2 * kGiB);
    s.limits = {limit_of(s, LimitKind::kHostCommit, exactly(8 * kGiB), exactly(6 * kGiB))};
    const auto with_base = [&](const Interval& base) { return standing_with(s, base, {}); };
    CHECK(with_base(exactly(4 * kGiB)).available == exactly(2 * kGiB));
    CHECK(with_base(exactly(4 * kGiB)).limited_by == &s.limits[0]);
    CHECK(with_base(exactly(kGiB)).available == exactly(kGiB));
    CHECK(with_base(exactly(kGiB)).limited_by == nullptr);
    CHECK(with_base(at_least(kGiB)).available == between(kGiB, 2 * kGiB));
    CHECK(with_base(at_most(4 * kGiB)).available == at_most(2 * kGiB));
    CHECK(with_base(Interval{}).available == at_most(2 * kGiB));
    // How much is used is known from below only: so much is left at most.
    s.limits[0].used = bytes_of(s, at_least(6 * kGiB));
    CHECK(with_base(exactly(4 * kGiB)).available == between(0, 2 * kGiB));
    // Neither where it stands nor what is used is known, but what it leaves.
    s.limits[0].limit = s.limits[0].used = Quantity::unknown(report::Quantity::capacity, s.physical, "");
    s.limits[0].headroom = bytes_of(s, at_least(3 * kGiB));
    CHECK(with_base(exactly(4 * kGiB)).available == between(3 * kGiB, 4 * kGiB));
    s.limits[0].headroom = bytes_of(s, at_most(3 * kGiB));
    CHECK(with_base(exactly(4 * kGiB)).available == at_most(3 * kGiB));
    // One of the two alone tells nothing: what it leaves still does.
    s.limits[0].limit = bytes_of(s, 8 * kGiB);
    CHECK(with_base(exactly(4 * kGiB)).available == at_most(3 * kGiB));
    s.limits[0].used = bytes_of(s, 7 * kGiB);
    s.limits[0].limit = Quantity::unknown(report::Quantity::capacity, s.physical, "");
    CHECK(with_base(exactly(4 * kGiB)).available == at_most(3 * kGiB));
}

TEST_CASE(
    "what is given back to the device is given back to the limits that its owner is under, and to no "
    "others") {
    Situation s = failed_call(16 * kGiB, 8 * kGiB, 4 * kGiB);
    s.limits = {limit_of(s, LimitKind::kHostCommit, exactly(8 * kGiB), exactly(7 * kGiB))};
    const Counterfactual own = adds(Blame::kImporter, "own", bytes_of(s, 2 * kGiB));
    const Counterfactual others = adds(Blame::kOthers, "others", bytes_of(s, 2 * kGiB));
    const Counterfactual rest = adds(Blame::kUnexplained, "rest", bytes_of(s, 2 * kGiB));
    const auto available = [&](const Counterfactual& removed) {
        return standing_with(s, exactly(8 * kGiB), {&removed}).available;
    };
    CHECK(available(own) == exactly(kGiB));
    s.limits[0].grows = Limit::Grows::kWithProcess;
    CHECK(available(own) == exactly(3 * kGiB));
    CHECK(available(others) == exactly(kGiB));
    CHECK(available(rest) == exactly(kGiB));
    // Exceeded: 9 GiB of 8 are used, 7 with the import closed. A limit that knows of no rounding is the same without it.
    s.limits[0].used = bytes_of(s, 9 * kGiB);
    Counterfactual unrounds;
    unrounds.change = Change::kUnrounds;
    CHECK(standing_with(s, exactly(8 * kGiB), {&own, &unrounds}).available == exactly(kGiB));
    CHECK(standing_with(s, exactly(8 * kGiB), {&unrounds}).available == exactly(0));
    // One that knows: 3 GiB as they were asked for.
    s.limits[0].used_unrounded = bytes_of(s, 3 * kGiB);
    s.limits[0].needed_unrounded = bytes_of(s, kGiB);
    CHECK(standing_with(s, exactly(8 * kGiB), {&unrounds}).available == exactly(5 * kGiB));
    CHECK(standing_with(s, exactly(8 * kGiB), {}).available == exactly(0));
    s.limits[0].used = bytes_of(s, 7 * kGiB);
    // What the process has is not what its allocator has.
    s.limits[0].grows = Limit::Grows::kWithAllocator;
    CHECK(available(own) == exactly(kGiB));
}

TEST_CASE("segments that an allocator gives back are given back to its own limit, and to the process's") {
    const std::string segments = R"({"op": "segment", "id": "a", "bytes": "2 GiB"},
        {"op": "block", "id": "b", "segment": "a", "offset": 0, "bytes": "2 GiB"}, {"op": "segment", "id": "c", "bytes": "1 GiB"},
        {"op": "segment", "id": "d", "bytes": "1 GiB"})";
    const std::string request =
        R"({"kind": "allocator", "bytes": "2 GiB", "may_release_cached_segments": true})";
    const auto base = [&](const std::string& limit) {
        const Situation s =
            stated(R"({"op": "device", "capacity": "16 GiB", )" + limit + "}, " + segments, request);
        return row(counterfactuals_of(s), "as_it_was");
    };
    // 4 GiB are reserved of 4; without the empty ones 2 are.
    CHECK(base(R"("allocator_limit": "4 GiB")").available.interval() == exactly(2 * kGiB));
    CHECK(base(R"("allocator_limit": "4 GiB")").fit == Fit::kFits);
    CHECK(base(R"("commit_limit": "4 GiB")").available.interval() == exactly(2 * kGiB));
    // A number of mappings is nobody's memory.
    CHECK(base(R"("mapping_limit": 5, "mappings": 5)").fit == Fit::kDoesNotFit);
    CHECK(base(R"("mapping_limit": 5, "mappings": 4)").fit == Fit::kFits);
}

TEST_CASE("gaps that are moved together go back to the device in whole pages") {
    // 2 MiB are left; four gaps of 946176 B are 3784704 B, of which one page of 2 MiB goes back: 4 MiB.
    std::string events = R"({"op": "device", "capacity": "42 MiB"})";
    for (const char* id : {"1", "2", "3", "4"}) {
        events += std::string(R"(, {"op": "segment", "id": "s)") + id +
                  R"(", "bytes": 10485760}, {"op": "block", "id": "b)" + id + R"(", "segment": "s)" + id +
                  R"(", "offset": 0, "bytes": 9539584})";
    }
    const Situation s = stated(events, R"({"kind": "allocator", "bytes": "6 MiB"})");
    CHECK(row(counterfactuals_of(s), "with_framework_gaps_merged").available.interval() == exactly(4 * kMiB));
    // How large the segment is, is not known: nor how much goes back. Its gaps may hold any block.
    const Situation open =
        stated(R"({"op": "device", "capacity": "8 GiB"}, {"op": "segment", "id": "s", "bytes": null},
        {"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "3 GiB"})",
               R"({"kind": "allocator", "bytes": "6 GiB"})");
    CHECK_FALSE(row(counterfactuals_of(open), "with_framework_gaps_merged").available.high().has_value());
}

TEST_CASE("the worse of two fits") {
    CHECK(both(Fit::kFits, Fit::kCannotTell) == Fit::kCannotTell);
    CHECK(both(Fit::kCannotTell, Fit::kFits) == Fit::kCannotTell);
    CHECK(both(Fit::kDoesNotFit, Fit::kCannotTell) == Fit::kDoesNotFit);
    CHECK(both(Fit::kFits, Fit::kDoesNotFit) == Fit::kDoesNotFit);
    CHECK(both(Fit::kFits, Fit::kFits) == Fit::kFits);
}

TEST_CASE("what a limit of an allocator of a trace leaves follows from the request that it refused") {
    Situation s = failed_call(8 * kGiB, kGiB, 4 * kMiB);
    CHECK(limits_at(s).empty());
    FrameworkAtFailure own;
    own.reserved = bytes_of(s, kGiB);
    s.framework = own;
    CHECK(limits_at(s).empty());
    s.framework->gave_up = true;
    REQUIRE(limits_at(s).size() == 1);
    CHECK(limits_at(s)[0].kind == LimitKind::kProcessFraction);
    CHECK(limits_at(s)[0].headroom.interval() == between(0, 4 * kMiB - 1));
    s.request.needed = at_least(4 * kMiB);
    CHECK(limits_at(s)[0].headroom.interval() == at_least(0));
    s.framework->driver_asked = true;
    CHECK(limits_at(s).empty());
}

TEST_CASE("the margin of one removal is its own row's, of several their sum's, of a number of things none") {
    Situation s = failed_call(8 * kGiB, kGiB, 4 * kGiB);
    const auto margins = [&](std::vector<Counterfactual> rows, const std::vector<std::string>& removed) {
        Counterfactual base;
        base.id = "as_it_was";
        base.available = base.by_bytes = s.free_then;
        base.needed = bytes_of(s, 4 * kGiB);
        base.fit = Fit::kDoesNotFit;
        rows.insert(rows.begin(), base);
        Verdict out;
        for (const std::string& id : removed) out.add_removed(id);
        verdict::add_margins(out, s, rows);
        return out;
    };
    // 1 GiB is left; 2 to 5 more.
    const Counterfactual cached = adds(Blame::kCached, "cached", bytes_of(s, between(2 * kGiB, 5 * kGiB)));
    Verdict out = margins({cached}, {"cached"});
    constexpr auto kOne = static_cast<std::int64_t>(kGiB);
    CHECK(out.short_low() == -3 * kOne);
    CHECK(out.margin_low() == -kOne);
    CHECK(out.margin_high() == 2 * kOne);
    REQUIRE(out.shares_size() == 1);
    CHECK(out.shares(0).constraint() == "cached_by_pool");
    CHECK(out.shares(0).bytes_low() == 2 * kGiB);
    CHECK(out.shares(0).bytes_high() == 5 * kGiB);
    // A row that stands for itself.
    Counterfactual instead;
    instead.id = "instead";
    instead.available = bytes_of(s, between(5 * kGiB, 6 * kGiB));
    instead.needed = bytes_of(s, 4 * kGiB);
    out = margins({instead}, {"instead"});
    CHECK(out.margin_low() == kOne);
    CHECK(out.margin_high() == 2 * kOne);
    CHECK(out.shares_size() == 0);
    instead.available = bytes_of(s, at_least(5 * kGiB));
    out = margins({instead}, {"instead"});
    CHECK(out.margin_low() == kOne);
    CHECK_FALSE(out.has_margin_high());
    instead.available = bytes_of(s, at_most(5 * kGiB));
    out = margins({instead}, {"instead"});
    CHECK_FALSE(out.has_margin_low());
    CHECK(out.margin_high() == kOne);
    // Beside another it has none that could be told; nor has a row that is not there.
    CHECK_FALSE(margins({instead, cached}, {"instead", "cached"}).has_margin_high());
    CHECK_FALSE(margins({cached}, {"not there"}).has_margin_high());
    CHECK_FALSE(margins({cached}, {}).has_margin_high());
    // Nothing is known of what would be given back from above, or from below.
    out = margins({adds(Blame::kCached, "cached", bytes_of(s, at_least(2 * kGiB)))}, {"cached"});
    CHECK(out.margin_low() == -kOne);
    CHECK_FALSE(out.has_margin_high());
    CHECK_FALSE(out.shares(0).has_bytes_high());
    out = margins({adds(Blame::kCached, "cached", bytes_of(s, at_most(2 * kGiB)))}, {"cached"});
    CHECK_FALSE(out.has_margin_low());
    CHECK(out.margin_high() == -kOne);
    CHECK_FALSE(out.shares(0).has_bytes_low());
    // Of 5 things 5 are there: lifted, all memory that there was is there, which is no margin of that.
    s.limits = {limit_of(s, LimitKind::kMappingCount, exactly(5), exactly(5)),
                limit_of(s, LimitKind::kHandleType, exactly(0), exactly(0))};
    for (Limit& limit : s.limits) {
        limit.counts = true;
        limit.needed = bytes_of(s, 1);
    }
    s.free_then = bytes_of(s, 6 * kGiB);
    Counterfactual lifted;
    lifted.id = "lifted";
    lifted.blame = Blame::kLimit;
    lifted.change = Change::kLifts;
    lifted.limit = LimitKind::kMappingCount;
    out = margins({lifted}, {"lifted"});
    CHECK_FALSE(out.has_short_high());
    CHECK_FALSE(out.has_margin_high());
    s.limits.pop_back();
    out = margins({lifted}, {"lifted"});
    CHECK(out.margin_low() == 2 * kOne);
}

TEST_CASE("a share whose two ends come in the other order is told from the smaller to the larger") {
    // 1 GiB is left, 4 are needed in one run, importers hold 4, and which runs nobody holds is not known:
    // between nothing and 5 GiB is to be had with the import closed, 5 with the runs merged as well. From
    // below merging is worth 5 GiB, from above nothing.
    Situation s = failed_call(8 * kGiB, kGiB, 4 * kGiB);
    s.one_run_needed = true;
    s.stated = true;
    s.importers_hold = 1;
    s.held_by_importers = bytes_of(s, 4 * kGiB);
    const auto rows = counterfactuals_of(s);
    Verdict out;
    out.add_removed("with_importers_closed");
    out.add_removed("with_physical_merged");
    verdict::add_margins(out, s, rows);
    REQUIRE(out.shares_size() == 2);
    CHECK(out.shares(1).bytes_low() == 0);
    CHECK(out.shares(1).bytes_high() == 5 * kGiB);
    CHECK(out.margin_low() == static_cast<std::int64_t>(kGiB));
}
