// "Would a request of this size have been met at that moment, and if not, why not?"
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "analysis/callers.h"
#include "analysis/contract.h"
#include "analysis/moment.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// The way in which the request would be made.
struct Mechanism {
    wire::Kind kind = wire::Kind::kLinearAcquired;
    ObjectId pool;  // 0: the device's current one
};
// "linear", "vmm", "pool", "pool:0x7f…", "address", "framework", "host", "managed"; nothing: none of them.
std::optional<Mechanism> mechanism_named(const std::string& name);
extern const char* const kMechanismForms;  // what it takes, for a sentence

struct RequestQuestion {
    std::uint64_t bytes = 0;
    std::string at;  // as the person wrote it
    Where where;
    std::optional<std::uint32_t> process;
    std::optional<std::string> device;  // its ordinal in the process, or its UUID; nothing: the one used most
    std::optional<Mechanism> mechanism;  // nothing: the one by which the process asked for most
    std::optional<Shape> contract;
};

// Calls `answer` for each moment that the question names, process by process. Stops, and returns an empty
// text, when `answer` says false. Otherwise a sentence without a full stop that says why there is no answer,
// or nothing.
std::string answer_requests(const Trace& trace, const RequestQuestion& question, const StackWords& words,
                            const std::function<bool(const report::Explanation&)>& answer);

}  // namespace fragscope::analysis
