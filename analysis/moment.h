// Moments of a trace that somebody names, for every command that takes one (`--at WHERE`): one grammar, one
// meaning. A moment is the state of one process between two of its events.
//
// A process's events are ordered by their sequence numbers; between processes there is nothing but the clock.
// At a point of time a process stands after every event whose change counted by then: a release counts from
// the beginning of its call, everything else from the end of its call, as they were numbered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "analysis/trace.h"

namespace fragscope::analysis {

struct AtSequence {
    std::uint64_t sequence = 0;
};
struct AtMarks {
    std::string text;
    bool prefix = false;  // marks that begin with the text, too
};
struct AtFailure {
    std::uint32_t number = 0;  // from 1, as `list_failures` has them
};
struct AtEnd {};
struct AtTime {
    std::uint64_t ns = 0;  // since the session's start
};
// When most was held on a device, by the records of the processes that are asked about.
struct AtPeak {
    std::string device;  // an ordinal, or a UUID's beginning
};
using Where = std::variant<AtSequence, AtMarks, AtFailure, AtEnd, AtTime, AtPeak>;

// "17", "mark:TEXT", "mark:TEXT*", "failure:2", "end", "1.5s", "200ms", "time:3us", "peak:0",
// "peak:GPU-1234". A time needs its unit (ns, us, ms, s, min), so that it is not taken for a sequence number.
// Nothing: it is none of these.
std::optional<Where> where_of(const std::string& asked);

// What `where_of` takes, for a sentence: "a sequence number, …".
extern const char* const kWhereForms;

// The state before the event of this index of the process.
struct NamedMoment {
    ProcessIndex process;
    std::size_t index = 0;
    std::string mark;                      // its text, where it was asked for
    std::optional<std::uint64_t> time_ns;  // of the clock, where the moment is a point of time
};

struct Moments {
    std::vector<NamedMoment> found;  // process by process, in order of time inside each
    std::string why_none;            // a sentence without a full stop; empty: there are some
};

// `process`: of this one only.
Moments moments_of(const Trace& trace, const Where& where, const std::optional<std::uint32_t>& process);

// From when on the change that an event made counts.
std::uint64_t counts_from(const Event& event);
// The number of events, from the first on, that count at this time of the clock.
std::size_t index_at(const Trace& trace, ProcessIndex process, std::uint64_t time_ns);

// The session's clock at the last moment of the process, as far as its records tell.
std::uint64_t clock_at_end(const Trace& trace, ProcessIndex process);

// From the session's start to the last thing that is known of it.
std::uint64_t duration_of(const Trace& trace);

}  // namespace fragscope::analysis
