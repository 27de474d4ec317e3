// Where a program's look-ups lead, and that what is not ours is left as it was.
#include <doctest/doctest.h>

#include <sstream>

#include "session.h"

using namespace fragscope;
using namespace fragscope::preload_test;

namespace {

std::map<std::string, std::string> lines(const std::string& output) {
    std::map<std::string, std::string> found;
    std::istringstream text(output);
    for (std::string line; std::getline(text, line);) {
        const std::size_t last = line.rfind(' ');
        found[line.substr(0, last)] = line.substr(last + 1);
    }
    return found;
}

}  // namespace

TEST_CASE("every door leads a hooked function to the shim and every other one to where it led before") {
    const auto plain = lines(run_plain({paths().victim, "doors"}).output);
    Session session;
    const Outcome outcome = session.run({paths().victim, "doors"});
    REQUIRE(outcome.status == 0);
    const auto hooked = lines(outcome.output);
    REQUIRE(plain.size() == hooked.size());
    for (const auto& [line, home] : plain) {
        CAPTURE(line);
        const bool row = line.find("cuMemAlloc_v2") != std::string::npos || line == "resolver cuMemAlloc 0" ||
                         line.find("cuGetProcAddress") != std::string::npos || line == "resolver cuInit 0" ||
                         line == "resolver cuMemAllocAsync 0";
        CHECK(home != "unknown");
        if (row && home == "libcuda")
            CHECK(hooked.at(line) == "libfragscope");
        else
            CHECK(hooked.at(line) == home);
    }
    CHECK(plain.at("handle cuMemAlloc_v2") == "libcuda");
    CHECK(plain.at("resolver cuMemAlloc 0") == "libcuda");
    CHECK(plain.at("handle cuNoSuchFunction") == "null");
}

TEST_CASE("look-ups are counted, with those that lead into the driver and match nothing") {
    Session session;
    REQUIRE(session.run({paths().victim, "doors"}).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].lookups_hooked > 4);
    CHECK(sent[0].lookups > sent[0].lookups_hooked);
    CHECK(sent[0].lookups_unmatched == 1);  // the fake driver's cuCtxGetFlags by cuGetProcAddress
}

TEST_CASE("a driver without the newer functions looks the same with and without the shim") {
    const std::vector<std::string> old = {"LD_LIBRARY_PATH=" + paths().old_driver};
    const Outcome plain = run_plain({paths().probe}, old);
    Session session;
    const Outcome hooked = session.run({paths().probe}, old);
    CHECK(plain.status == 0);
    CHECK(hooked.status == 0);
    CHECK(plain.output == hooked.output);
    CHECK(plain.output.find("cuGetProcAddress_v2 absent") != std::string::npos);
    CHECK(plain.output.find("cuMemAlloc_v2 present") != std::string::npos);
    CHECK(plain.output.find("alloc 0") != std::string::npos);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].of(wire::Kind::kLinearAcquired).size() == 1);
    bool named = false;
    for (const wire::Record& record : sent[0].of(wire::Kind::kHookMissing))
        named = named || sent[0].functions.at(record.function) == "cuGetProcAddress_v2";
    CHECK(named);
}

TEST_CASE("without a driver the exported functions fail and do not crash") {
    const Outcome outcome = run_with_shim("", {paths().probe, "no-driver"});
    CHECK(outcome.status == 0);
    CHECK(outcome.output == "cuMemAlloc_v2 absent by default\n");
}

TEST_CASE(
    "on the simulated driver every version of every hooked function gets a wrapper of the same function") {
    const std::vector<std::string> simulated = {"LD_LIBRARY_PATH=" + paths().simulated_driver};
    const Outcome plain = run_plain({paths().lookups}, simulated);
    Session session;
    const Outcome hooked = session.run({paths().lookups}, simulated);
    REQUIRE(plain.status == 0);
    REQUIRE(hooked.status == 0);
    std::istringstream before(plain.output), after(hooked.output);
    std::size_t compared = 0, swapped = 0;
    for (std::string a, b; std::getline(before, a) && std::getline(after, b);) {
        const std::size_t library_a = a.rfind(' '), library_b = b.rfind(' ');
        CHECK(a.substr(0, library_a) == b.substr(0, library_b));  // same result, same status, same symbol
        const bool ours = b.substr(library_b + 1) == "libfragscope.so";
        if (!ours) CHECK(a.substr(library_a) == b.substr(library_b));
        compared += 1;
        swapped += ours ? 1 : 0;
    }
    CHECK(compared > 3000);
    CHECK(swapped > 1500);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].lookups_hooked == swapped + 2);  // and the resolver, twice
    CHECK(sent[0].lookups_unmatched == 0);
}
