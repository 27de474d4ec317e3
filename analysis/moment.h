// Moments of a trace that somebody names, for every command that takes one (`--at WHERE`). One grammar, one
// meaning: a moment is the state of one process between two of its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "analysis/trace.h"

namespace fragscope::analysis {

struct AtSequence {  // after the event of this number
    std::uint64_t sequence = 0;
};
struct AtTime {            // before the first event that had not ended by then
    std::uint64_t ns = 0;  // since the session's start
};
struct AtMarks {  // at each of them, after it
    std::string text;
    bool prefix = false;  // marks that begin with the text, too
};
struct AtFailure {  // when the call failed: what the driver said right after it belongs to this moment
    std::uint32_t number = 0;  // from 1, as `list_failures` has them
};
struct AtEnd {};

using Where = std::variant<AtSequence, AtTime, AtMarks, AtFailure, AtEnd>;

// "17", "1.5s" (or ms, us, ns), "mark:TEXT", "mark:TEXT*", "failure:2", "end"; nothing: it is none of them.
std::optional<Where> where_of(const std::string& asked);
// What `where_of` takes, for a sentence: "a sequence number, …".
extern const char* const kWhereForms;

// The state before the event of this index of the process.
struct NamedMoment {
    ProcessIndex process;
    std::size_t index = 0;
    std::string mark;  // its text, where it was asked for
};

struct Moments {
    std::vector<NamedMoment> found;  // process by process, in order of time inside each
    std::string why_none;            // a sentence without a full stop; empty: there are some
};

// `process`: of this one only.
Moments moments_of(const Trace& trace, const Where& where, const std::optional<std::uint32_t>& process);

}  // namespace fragscope::analysis
