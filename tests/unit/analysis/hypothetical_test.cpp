// What would have come of a request that nobody made, at a moment that somebody names. Expected values are
// computed by hand from the calls of each trace.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "analysis/explain_if.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using analysis::Event;
using report::Verdict;
using wire::Kind;

namespace {

constexpr std::int64_t kSignedGiB = static_cast<std::int64_t>(kGiB);

struct Answers {
    std::vector<report::Explanation> all;
    std::string why_not;
    const report::Explanation& only() const {
        REQUIRE_MESSAGE(all.size() == 1, why_not);
        return all[0];
    }
};

Answers ask(SessionBuilder& session, std::uint64_t bytes, const std::string& at, const std::string& as = "",
            const std::string& device = "", const std::string& contract = "") {
    analysis::RequestQuestion question;
    question.bytes = bytes;
    question.at = at;
    question.where = analysis::where_of(at).value();
    question.mechanism = analysis::mechanism_named(as);
    question.contract = analysis::shape_named(contract);
    if (!device.empty()) question.device = device;
    Answers out;
    out.why_not = analysis::answer_requests(session.trace(), question, {}, [&](const report::Explanation& e) {
        check_words(e);
        check_sums(e);
        CHECK(e.request().hypothetical());
        out.all.push_back(e);
        return true;
    });
    return out;
}

Verdict::Cause cause(const Answers& answers) { return answers.only().verdict().cause(); }

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the driver was asked at this moment: it fits, or it does not, by its word") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0x10000000, 2 * kGiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    // 5 GiB were held by nobody and 3 are needed, which is whole pages already: 2 GiB to spare.
    const auto fits = ask(session, 3 * kGiB, "end", "linear");
    CHECK(cause(fits) == Verdict::would_fit);
    CHECK(row(fits.only(), "as_it_was").outcome() == report::Counterfactual::fits);
    CHECK(row(fits.only(), "as_it_was").margin_low() == 2 * kSignedGiB);
    CHECK(audit(fits.only(), report::Quantity::device_free).evidence() == report::Quantity::measured);
    CHECK(audit(fits.only(), report::Quantity::device_free).low_bytes() == 5 * kGiB);
    // 8 less 5 less the block of 2.
    CHECK(audit(fits.only(), report::Quantity::unattributed).low_bytes() == kGiB);
    CHECK(fits.only().has_balance());
    CHECK_FALSE(contains(audit(fits.only(), report::Quantity::device_free).reason(), "failure"));

    const auto too_large = ask(session, 6 * kGiB, "end", "linear");
    CHECK(cause(too_large) == Verdict::capacity_exhaustion);
    CHECK(row(too_large.only(), "as_it_was").margin_high() == -kSignedGiB);
    // All of it at once is what is needed for 9 GiB on a device of 8: nothing that is held plays a part.
    CHECK(contains(ask(session, 9 * kGiB, "end", "linear").only().verdict().summary(),
                   "larger than the device"));
}

TEST_CASE("a word of another moment is not used") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, 2 * kGiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    const std::uint64_t sampled = p.last_sequence() - 1;
    p.linear(0x200000000, kGiB);
    // By the records 3 of 8 GiB are taken at least: no more than 5 are left, of which nobody knows who holds
    // them.
    const auto unknown = ask(session, 4 * kGiB, "end", "linear");
    CHECK(cause(unknown) == Verdict::undetermined);
    CHECK(contains(unknown.only().verdict().deciding_measurement(), "--sample"));
    CHECK(audit(unknown.only(), report::Quantity::device_free).evidence() == report::Quantity::unknown);
    CHECK_FALSE(row(unknown.only(), "as_it_was").available().has_low_bytes());
    CHECK(row(unknown.only(), "as_it_was").available().high_bytes() == 5 * kGiB);
    CHECK(says(unknown.only(), fmt::format("--at {}", sampled)));
    CHECK_FALSE(unknown.only().has_balance());
    // More than the records leave cannot have fitted, whatever the driver would have said.
    CHECK(cause(ask(session, 6 * kGiB, "end", "linear")) == Verdict::capacity_exhaustion);
    // At the sample itself it counts.
    CHECK(cause(ask(session, 4 * kGiB, fmt::format("{}", sampled), "linear")) == Verdict::would_fit);
}

TEST_CASE(
    "the program's own question counts as well, and calls that change nothing do not part it from a moment") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, kGiB).call(Kind::kDeviceMemory, 6 * kGiB, 8 * kGiB, kContext).on(0);
    p.reserve(0x4000000000, kGiB).linear(0x300000000, 64 * kGiB).failed(1);
    const auto e = ask(session, 6 * kGiB, "end", "linear");
    CHECK(cause(e) == Verdict::would_fit);
    CHECK(contains(audit(e.only(), report::Quantity::device_free).reason(), "the program itself asked"));
    // Reservations take addresses, not memory; the failed call took nothing.
    CHECK(audit(e.only(), report::Quantity::address_reserved).low_bytes() == kGiB);
}

TEST_CASE("between the word and the moment another recorded process may have changed something") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    auto& other = session.process(8 * kGiB);
    session.trace().names.resize(2);
    session.trace().names[0].texts[1] = "now";
    p.linear(0x10000000, kGiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    other.linear(0x10000000, 2 * kGiB);
    p.call(Kind::kMark, 0, 0, 1);
    // The other's 2 GiB came in between, or the driver had counted them already: 5 GiB, less or more by 2.
    const auto e = ask(session, 4 * kGiB, "mark:now", "linear");
    CHECK(cause(e) == Verdict::undetermined);
    CHECK(row(e.only(), "as_it_was").available().low_bytes() == 3 * kGiB);
    CHECK(row(e.only(), "as_it_was").available().high_bytes() == 7 * kGiB);
    CHECK(cause(ask(session, 3 * kGiB, "mark:now", "linear")) == Verdict::would_fit);
}

TEST_CASE("calls of other threads that overlap with the question make its word an interval") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, kGiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    // Another thread's block of 2 GiB began before the question and ended after it: 5 GiB or 7 were there.
    p.thread(2).linear(0x200000000, 2 * kGiB).lasted(10'000, 0);
    const std::uint64_t before = p.last_sequence() - 1;
    const auto e = ask(session, 6 * kGiB, fmt::format("{}", before), "linear");
    CHECK(cause(e) == Verdict::undetermined);
    CHECK(row(e.only(), "as_it_was").available().low_bytes() == 5 * kGiB);
    CHECK(row(e.only(), "as_it_was").available().high_bytes() == 7 * kGiB);
    CHECK(cause(ask(session, 5 * kGiB, fmt::format("{}", before), "linear")) == Verdict::would_fit);
    CHECK(cause(ask(session, 7 * kGiB + kPage, fmt::format("{}", before), "linear")) ==
          Verdict::capacity_exhaustion);
}

TEST_CASE("what the process went on to take, before it gave anything back, was there") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, kGiB);
    const std::string moment = fmt::format("{}", p.last_sequence());
    p.linear(0x100000000, 3 * kGiB).linear(0x200000000, kGiB).free(0x10000000);
    const auto same = ask(session, 3 * kGiB, moment, "linear");
    CHECK(cause(same) == Verdict::would_fit);
    CHECK(contains(same.only().verdict().summary(), "granted"));
    // 3 and 1 GiB were taken: 4 GiB at least, and at most the 7 that the records leave. In one piece of 5:
    // unknown.
    const auto larger = ask(session, 5 * kGiB, moment, "linear");
    CHECK(cause(larger) == Verdict::undetermined);
    CHECK(row(larger.only(), "as_it_was").available().low_bytes() == 4 * kGiB);
    CHECK(row(larger.only(), "as_it_was").available().high_bytes() == 7 * kGiB);
    // After a release the next success is no witness of the moment before it.
    SessionBuilder other;
    auto& q = other.process(8 * kGiB);
    q.linear(0x10000000, kGiB);
    const std::string then = fmt::format("{}", q.last_sequence());
    q.free(0x10000000).linear(0x100000000, 3 * kGiB);
    const auto after = ask(other, 3 * kGiB, then, "linear");
    CHECK(cause(after) == Verdict::undetermined);
    CHECK_FALSE(row(after.only(), "as_it_was").available().has_low_bytes());
}

TEST_CASE("a refusal in the same state decides as the failure does") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, kGiB).linear(0x200000000, 2 * kGiB).failed();
    p.snapshot(5 * kGiB, 8 * kGiB).snapshot_end();
    // The driver had 5 GiB by its own word and refused 2: what refused those refuses 3 as well.
    const Verdict failure = analysis::explain_failure(session.trace(), 1).verdict();
    const auto larger = ask(session, 3 * kGiB, "failure:1", "linear");
    CHECK(cause(larger) == Verdict::undetermined);
    CHECK(failure.cause() == Verdict::undetermined);
    // A smaller request was refused by nobody.
    CHECK(cause(ask(session, kGiB, "failure:1", "linear")) == Verdict::would_fit);
    // Neither was one by another call.
    CHECK(cause(ask(session, 3 * kGiB, "failure:1", "vmm")) == Verdict::would_fit);
}

TEST_CASE("what its own pool keeps is named as the cause, as for a failure") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x10000000, 6 * kGiB, 0xb0).pool_give(0x10000000).synchronize(7);
    p.sample(kGiB, 8 * kGiB).sample_pool(0xb0, 0, 6 * kGiB).sample_end();
    const auto e = ask(session, 4 * kGiB, "end", "linear");
    CHECK(cause(e) == Verdict::other_constraint);
    CHECK(e.only().verdict().constraint() == "cached_by_pool");
    // 1 GiB held by nobody and 6 kept: 3 more than needed.
    CHECK(row(e.only(), "with_cached_returned").margin_low() == 3 * kSignedGiB);
    CHECK(says(e.only(), "cuMemPoolTrimTo"));
    // From the pool itself: it may grow by 1 GiB, and whether what it keeps is in one piece nobody knows.
    const auto own = ask(session, 4 * kGiB, "end", "pool:0xb0");
    CHECK(cause(own) == Verdict::undetermined);
    CHECK(row(own.only(), "as_it_was").available().low_bytes() == kGiB);
    CHECK(row(own.only(), "as_it_was").available().high_bytes() == 7 * kGiB);
}

TEST_CASE("addresses: a gap that was reserved and given back is one, and no memory plays a part") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.reserve(0x4000000000, 4 * kGiB)
        .reserve(0x4000000000 + 4 * kGiB, kGiB)
        .unreserve(0x4000000000, 4 * kGiB);
    CHECK(cause(ask(session, 3 * kGiB, "end", "address")) == Verdict::would_fit);
    const auto larger = ask(session, 5 * kGiB, "end", "address");
    CHECK(cause(larger) == Verdict::undetermined);
    CHECK(row(larger.only(), "as_it_was").available().low_bytes() == 4 * kGiB);
    CHECK_FALSE(row(larger.only(), "as_it_was").available().has_high_bytes());
}

TEST_CASE("an address reservation that failed just before stands against memory that needs a range") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, kGiB)
        .reserve(0x4000000000, 2 * kGiB)
        .failed()
        .snapshot(6 * kGiB, 8 * kGiB)
        .snapshot_end();
    const auto e = ask(session, 3 * kGiB, "end", "linear");
    CHECK(cause(e) == Verdict::other_constraint);
    CHECK(e.only().verdict().constraint() == "address_space");
    // A handle takes no addresses, and a smaller range was refused by nobody.
    CHECK(cause(ask(session, 3 * kGiB, "end", "vmm")) == Verdict::would_fit);
    CHECK(cause(ask(session, kGiB, "end", "linear")) == Verdict::would_fit);
    // The reservation itself is refused again.
    CHECK(cause(ask(session, 2 * kGiB, "end", "address")) != Verdict::would_fit);
}

TEST_CASE("a pool that was not there has no answer") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0x10000000, kGiB);
    const auto e = ask(session, kGiB, "end", "pool:0xb7");
    CHECK(e.all.empty());
    CHECK(contains(e.why_not, "no pool 0xb7"));
}

TEST_CASE("a block of a framework's allocator: from the device, or from a gap that may be another's") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    // A segment of 20 MiB with one block of 4 in it leaves a gap of 16; the device has nothing left.
    p.linear(0x10000000, 20 * kMiB).call(Kind::kBlockAcquired, 0x10000000, 4 * kMiB, 4 * kMiB, 20 * kMiB);
    p.sample(0, 8 * kGiB).sample_end();
    const auto gap = ask(session, 8 * kMiB, "end", "framework");
    CHECK(cause(gap) == Verdict::undetermined);
    CHECK(contains(gap.only().verdict().summary(), "gap of 16 MiB"));
    CHECK(row(gap.only(), "as_it_was").available().high_bytes() == 16 * kMiB);
    CHECK(cause(ask(session, 17 * kMiB, "end", "framework")) != Verdict::would_fit);
    CHECK(cause(ask(session, 17 * kMiB, "end", "framework")) != Verdict::undetermined);
    // 4 MiB in blocks and 20 MiB from the driver: the latter is the way to the driver, but both count.
    CHECK(ask(session, 8 * kMiB, "end").only().request().mechanism() == "linear");
}

TEST_CASE("host and managed memory draw on what this trace does not keep books of") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0x10000000, kGiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    for (const char* as : {"host", "managed"}) {
        INFO(as);
        const auto e = ask(session, kGiB, "end", as);
        CHECK(cause(e) == Verdict::undetermined);
        CHECK_FALSE(e.only().verdict().deciding_measurement().empty());
    }
}

TEST_CASE("a size that the call refuses whatever there is") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0x10000000, kGiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    const auto e = ask(session, kGiB + 1, "end", "vmm");
    CHECK(cause(e) == Verdict::not_an_allocation);
    CHECK(e.only().verdict().constraint() == "size_not_multiple_of_granularity");
}

TEST_CASE("without a mechanism, the one by which the program had asked for most there") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x10000000, kGiB).create(1, 512 * kMiB).create(2, 768 * kMiB);
    const std::string here = fmt::format("{}", p.last_sequence());
    p.linear(0x100000000, kGiB);
    // 1280 MiB in handles against 1024 MiB by then; 2048 MiB later.
    const auto handles = ask(session, kGiB, here);
    CHECK(handles.only().request().mechanism() == "vmm");
    CHECK(contains(handles.only().request().chosen(), "1.25 GiB in 2 calls"));
    CHECK(ask(session, kGiB, "end").only().request().mechanism() == "linear");
    CHECK(ask(session, kGiB, "0").only().request().mechanism() == "linear");
    CHECK(contains(ask(session, kGiB, "0").only().request().chosen(), "nothing"));
}

TEST_CASE("the device: by its number, by its UUID, or the one used most") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.another_device(4 * kGiB, 'B').linear(0x10000000, kMiB).linear(0x100000000, kGiB).on(1);
    p.sample(2 * kGiB, 4 * kGiB, 1).sample_end();
    const auto most = ask(session, 3 * kGiB, "end", "linear");
    CHECK(contains(most.only().request().device(), "42424242"));
    CHECK(cause(most) == Verdict::capacity_exhaustion);
    // Device 0 was not asked: 8 GiB less one page at most.
    CHECK(cause(ask(session, 3 * kGiB, "end", "linear", "0")) == Verdict::undetermined);
    CHECK(ask(session, kGiB, "end", "linear", most.only().request().device()).only().request().device() ==
          most.only().request().device());
    const auto none = ask(session, kGiB, "end", "linear", "7");
    CHECK(none.all.empty());
    CHECK(contains(none.why_not, "no device '7'"));
}

TEST_CASE("one answer for each mark that is asked for") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    session.trace().names.resize(1);
    session.trace().names[0].texts[1] = "step 1";
    session.trace().names[0].texts[2] = "step 2";
    p.call(Kind::kMark, 0, 0, 1).sample(6 * kGiB, 8 * kGiB).sample_end();
    p.linear(0x10000000, 4 * kGiB).call(Kind::kMark, 0, 0, 2).sample(2 * kGiB, 8 * kGiB).sample_end();
    const auto e = ask(session, 3 * kGiB, "mark:step*", "linear");
    REQUIRE(e.all.size() == 2);
    CHECK(e.all[0].verdict().cause() == Verdict::would_fit);
    CHECK(e.all[1].verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(contains(e.all[1].request().moment(), "step 2"));
    CHECK(e.all[0].id() != e.all[1].id());
}

TEST_CASE("what a mechanism is called") {
    CHECK(analysis::mechanism_named("vmm")->kind == Kind::kHandleCreated);
    CHECK(analysis::mechanism_named("pool:0x7f00")->pool.value == 0x7f00);
    for (const char* none :
         {"", "VMM", "pool:", "pool:0x", "pool:12", "pool:0xzz", "pool:0x11111111111111111"}) {
        INFO(none);
        CHECK_FALSE(analysis::mechanism_named(none).has_value());
    }
}
