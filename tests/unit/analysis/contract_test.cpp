// The contiguity contract: what a request's memory has to look like, who says so, and who would have to be
// asked before it may demand less.
#include <doctest/doctest.h>

#include "analysis/explain_if.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using report::Contract;
using report::Verdict;
using wire::Kind;

namespace {

report::Explanation explained_as(SessionBuilder& session, const std::string& contract) {
    analysis::ReportOptions options;
    options.contract = analysis::shape_named(contract);
    const report::Explanation out = analysis::explain_failure(session.trace(), 0, options);
    check_words(out);
    return out;
}

const report::Consumer* consumer(const report::Explanation& e, const std::string& id) {
    for (const report::Consumer& one : e.contract().consumers()) {
        if (one.id() == id) return &one;
    }
    return nullptr;
}

bool any_has(const google::protobuf::RepeatedPtrField<std::string>& texts, const std::string& part) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

// 4 GiB of linear memory that a copy, an export and launches use; then 2 GiB more are refused.
SessionBuilder& full_of_linear(SessionBuilder& session) {
    auto& p = session.process(8 * kGiB);
    p.linear(0x100000000, 4 * kGiB).touch(0x100000000, kMiB).touch(0x100200000, kMiB);
    p.call(Kind::kIpcExported, 0x100000000);
    // The export of a physical handle and peers' access to it are of another kind of memory.
    p.create(7, kGiB).reserve(0x4000000000, kGiB).map(0x4000000000, kGiB, 7);
    p.call(Kind::kAccessSet, 0x4000000000, kGiB, wire::pack_location(1, 0, 0), 3);
    p.call(Kind::kAccessSet, 0x4000000000, kGiB, wire::pack_location(1, 1, 0), 3);
    p.call(Kind::kHandleExported, 0, 0, 7, 1);
    p.linear(0x300000000, 4 * kGiB).failed().snapshot(2 * kGiB, 8 * kGiB).snapshot_end();
    p.loss().set_kernel_launches(12);
    return session;
}

}  // namespace

TEST_CASE(
    "one pointer: consecutive addresses, and those who use such memory are listed with what they demand") {
    SessionBuilder session;
    const auto e = explained_as(full_of_linear(session), "");
    CHECK(e.contract().shape() == Contract::virtual_only);
    CHECK_FALSE(e.contract().declared());
    CHECK(e.contract().to_be_checked().empty());
    REQUIRE(consumer(e, "kernels") != nullptr);
    CHECK(consumer(e, "kernels")->count() == 12);
    REQUIRE(consumer(e, "copies") != nullptr);
    CHECK(consumer(e, "copies")->count() == 2);
    REQUIRE(consumer(e, "legacy_ipc") != nullptr);
    CHECK(consumer(e, "legacy_ipc")->one_allocation());
    // Of handles, not of linear memory.
    CHECK(consumer(e, "handle_export") == nullptr);
    CHECK(consumer(e, "peers") == nullptr);
    CHECK_FALSE(e.contract().not_visible().empty());
}

TEST_CASE(
    "of a handle: its own exports and the devices that were given access, its own device not among them") {
    SessionBuilder session;
    full_of_linear(session);
    session.process(8 * kGiB, 'C');  // another process is nobody's consumer here
    auto& p = session.process(8 * kGiB, 'D');
    p.create(7, kGiB).reserve(0x4000000000, 2 * kGiB).map(0x4000000000, kGiB, 7);
    p.create(8, kGiB).map(0x4000000000 + kGiB, kGiB, 8);
    p.call(Kind::kAccessSet, 0x4000000000, 2 * kGiB, wire::pack_location(1, 0, 0), 3);
    p.call(Kind::kAccessSet, 0x4000000000, 2 * kGiB, wire::pack_location(1, 1, 0), 3);
    p.call(Kind::kHandleExported, 0, 0, 7, 1);
    p.create(9, 7 * kGiB).failed().snapshot(6 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained_as(session, "");
    CHECK(e.contract().shape() == Contract::virtual_only);
    REQUIRE(consumer(e, "handle_export") != nullptr);
    CHECK(consumer(e, "handle_export")->count() == 1);
    REQUIRE(consumer(e, "peers") != nullptr);
    CHECK(consumer(e, "peers")->count() == 1);
    // Handle 8 follows handle 7 in one reservation.
    REQUIRE(consumer(e, "stitched") != nullptr);
    CHECK(consumer(e, "stitched")->count() == 1);
    CHECK(consumer(e, "copies") == nullptr);
    CHECK(any_has(e.contract().not_visible(), "gpuDirectRDMACapable"));
}

TEST_CASE("a handle that was asked to be exportable has importers in view") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.call(Kind::kHandleCreated, 0, 9 * kGiB, 1, wire::pack_location(1, 0, 1)).failed();
    const auto e = explained_as(session, "");
    REQUIRE(consumer(e, "exportable") != nullptr);
    CHECK(consumer(e, "exportable")->what().find("POSIX file descriptor") != std::string::npos);
    CHECK(consumer(e, "exportable")->one_allocation());
}

TEST_CASE("declared weaker: everybody who would have to be checked is named, and so is what cannot be seen") {
    SessionBuilder session;
    const auto e = explained_as(full_of_linear(session), "segmented");
    CHECK(e.contract().shape() == Contract::segmented);
    CHECK(e.contract().inferred() == Contract::virtual_only);
    CHECK(e.contract().declared());
    CHECK(e.request().contiguity() == report::Request::segmented);
    for (const char* part : {"kernels", "copies", "cuIpcGetMemHandle", "not in this trace"}) {
        INFO(part);
        CHECK(any_has(e.contract().to_be_checked(), part));
    }
}

TEST_CASE("declared stronger: nobody has to be asked") {
    SessionBuilder session;
    const auto e = explained_as(full_of_linear(session), "physical");
    CHECK(e.contract().shape() == Contract::physical);
    CHECK(e.contract().declared());
    CHECK(e.contract().to_be_checked().empty());
    CHECK(e.request().contiguity() == report::Request::physical);
}

TEST_CASE("addresses only: a range by definition, and no consumers of memory") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x100000000, kGiB).touch(0x100000000, kMiB).reserve(0x4000000000, kGiB).failed();
    const auto e = explained_as(session, "");
    CHECK(e.contract().shape() == Contract::virtual_only);
    CHECK(e.contract().consumers().empty());
}

TEST_CASE("in one physical piece: pieces do not count, and how large a piece there was is not visible") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x100000000, kGiB).linear(0x300000000, 4 * kGiB).failed();
    p.snapshot(6 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained_as(session, "physical");
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(row(e, "as_it_was").available().low_bytes() == 0);
    CHECK(row(e, "as_it_was").available().high_bytes() == 6 * kGiB);
    for (const char* pieces : {"stitched", "segmented"}) {
        CHECK(bound(e, pieces).largest().high_bytes() == 0);
        CHECK(bound(e, pieces).limited_by() == "the contract");
    }
    CHECK(bound(explained_as(session, ""), "stitched").largest().high_bytes() == 6 * kGiB);
}

TEST_CASE("in pieces: what a pool keeps and what it may grow by count together") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x10000000, 6 * kGiB, 0xb0).pool_give(0x10000000).synchronize(7);
    p.pool_take(0, 7 * kGiB, 0xb0).failed().snapshot(kGiB, 8 * kGiB);
    p.snapshot_pool(0xb0, 0, 6 * kGiB).snapshot_end();
    // 1 GiB that nobody holds, and 6 that the pool keeps: all 7, if they may come in pieces.
    const auto pieces = explained_as(session, "segmented");
    CHECK(row(pieces, "as_it_was").outcome() == report::Counterfactual::fits);
    CHECK(row(pieces, "as_it_was").margin_low() == 0);
    const auto one = explained_as(session, "");
    CHECK(row(one, "as_it_was").outcome() == report::Counterfactual::does_not_fit);
}

TEST_CASE("names of contracts") {
    CHECK(analysis::shape_named("physical") == Contract::physical);
    CHECK(analysis::shape_named("virtual") == Contract::virtual_only);
    CHECK(analysis::shape_named("segmented") == Contract::segmented);
    CHECK_FALSE(analysis::shape_named("").has_value());
    CHECK_FALSE(analysis::shape_named("virtual_only").has_value());
}
