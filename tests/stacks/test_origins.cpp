// Which function of the runtime interface led to a driver call: by the stand-in runtime, and by NVIDIA's own
// shared one as far as it goes without a GPU (it calls cuInit and cuDeviceGetCount before it authenticates
// the driver). What the program called is what origins.cpp was told to call.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "../preload/session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Kind;

namespace {

std::string libraries(const char* runtime) {
    return "LD_LIBRARY_PATH=" + std::string(std::getenv("SIMULATED_DRIVER")) + ":" + std::getenv(runtime);
}

std::string origin_of(const Sent& sent, const wire::Record& record) {
    if (record.stack == 0) return "";
    const wire::StackText head = sent.stacks.at(record.stack).head;
    return head.origin == 0 ? "" : sent.strings.at(head.origin);
}

// What the program's own records of this driver function say of their origin, in order, with commas between.
std::string origins(const Sent& sent, const std::string& function) {
    std::string all;
    for (const wire::Record& record : sent.records)
        if ((record.flags & wire::kByShim) == 0 && sent.functions.at(record.function) == function)
            all += (all.empty() ? "" : ", ") + (record.stack != 0 ? origin_of(sent, record) : "-");
    return all;
}

Sent run(const Options& options, const std::vector<std::string>& calls, const char* runtime) {
    Session session(options);
    std::vector<std::string> command = {std::getenv("ORIGINS")};
    command.insert(command.end(), calls.begin(), calls.end());
    const Outcome outcome = session.run(command, {libraries(runtime)});
    CAPTURE(outcome.output);
    REQUIRE(outcome.status == 0);
    REQUIRE(outcome.output.empty());
    auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    return sent[0];
}

}  // namespace

TEST_CASE("the function of the runtime that led to a driver call is its origin") {
    const Sent sent =
        run({},
            {"cudaGetDeviceCount", "cudaMalloc", "cudaMallocManaged", "cudaMallocPitch", "cudaMallocAsync",
             "cudaHostAlloc", "cudaMallocHost", "cudaFree", "thread", "driver", "cudaMalloc"},
            "STAND_IN_RUNTIME");
    CHECK(origins(sent, "cuDeviceGetCount").rfind("cudaGetDeviceCount", 0) == 0);
    CHECK(origins(sent, "cuMemAlloc_v2") == "cudaMalloc, cudaMalloc, cudaMalloc, -, cudaMalloc");
    CHECK(origins(sent, "cuMemAllocManaged") == "cudaMallocManaged");
    CHECK(origins(sent, "cuMemAllocPitch_v2") == "cudaMallocPitch");
    CHECK(origins(sent, "cuMemAllocAsync") == "cudaMallocAsync");
    // One calls the other by a jump in the stand-in, which leaves no frame: the program's own call tells.
    CHECK(origins(sent, "cuMemHostAlloc") == "cudaHostAlloc, cudaMallocHost");
    CHECK(origins(sent, "cuMemFree_v2") == "cudaFree");
    // Only origins: no frames were asked for, and no more is told than there are different ones.
    std::map<std::uint32_t, int> seen;
    for (const auto& [number, stack] : sent.stacks) {
        CHECK(stack.frames.empty());
        CHECK(++seen[stack.head.origin] == 1);
    }
    CHECK(sent.modules.empty());
}

TEST_CASE("a whole stack has its origin too, and begins in the runtime") {
    Options options;
    options.stack_bytes = 3 * 1024;
    const Sent sent = run(options, {"cudaMalloc", "cudaMalloc", "cudaMalloc", "driver"}, "STAND_IN_RUNTIME");
    const auto taken = sent.of(Kind::kLinearAcquired);
    REQUIRE(taken.size() == 4);
    CHECK(taken[0].stack == taken[1].stack);
    CHECK(sent.stacks.at(taken[0].stack).frames.empty());
    const SentStack& deep = sent.stacks.at(taken[2].stack);
    CHECK(sent.strings.at(deep.head.origin) == "cudaMalloc");
    REQUIRE(deep.frames.size() >= 4);
    CHECK(deep.head.flags == 0);
    CHECK(sent.modules.at(wire::frame_module(deep.frames[0])).path.find("libcudart.so") != std::string::npos);
    CHECK(sent.modules.at(wire::frame_module(deep.frames.back())).path == std::getenv("ORIGINS"));
    const SentStack& direct = sent.stacks.at(taken[3].stack);
    CHECK(direct.head.origin == 0);
    CHECK(sent.modules.at(wire::frame_module(direct.frames[0])).path == std::getenv("ORIGINS"));
}

TEST_CASE("NVIDIA's own runtime, up to its authentication of the driver") {
    if (std::string(std::getenv("NVIDIA_RUNTIME")).empty()) {
        MESSAGE("there is no libcudart.so.13 beside the toolkit's headers: skipped");
        return;
    }
    for (const char* function : {"cudaMalloc", "cudaGetDeviceCount", "cudaHostAlloc", "cudaMallocAsync"}) {
        CAPTURE(function);
        Options options;
        options.stack_bytes = 1;
        const Sent sent = run(options, {function}, "NVIDIA_RUNTIME");
        CHECK(origins(sent, "cuInit") == function);
        CHECK(origins(sent, "cuDeviceGetCount") == function);
    }
}
