// A whole recording: what the readers in analysis/read/ make and everything else in analysis/ works
// on.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/event_log.h"
#include "proto/trace.pb.h"

namespace fragscope::analysis {

// What the reader itself found wrong or missing in the file. Losses during recording are in Trace::losses.
struct FileHealth {
    bool cut_off = false;              // no SessionEnd: the recording was cut short, or the file was
    std::uint64_t readable_bytes = 0;  // whole chunks up to here
    std::string problem;               // one sentence with the offset and what was expected; empty: none
};

// What the events of one process name by number. A number without an entry: its definition was lost.
struct ProcessNames {
    std::unordered_map<std::uint32_t, std::string> texts;
    std::unordered_map<std::uint32_t, trace::CodeModule> modules;
    std::unordered_map<std::uint32_t, trace::Stack> stacks;  // by Event::stack
};

struct Trace {
    std::string path;
    trace::Session session;
    std::vector<trace::Process> processes;  // by index; merged
    std::vector<trace::Loss> losses;        // by process index; a default message where none was written
    trace::SessionEnd end;                  // default where file.cut_off
    FileHealth file;
    std::vector<std::string> functions;  // names by FunctionId
    // By process index, and inside a process by sequence: the linearisation. Across processes only times can
    // be compared.
    std::vector<EventLog> events;
    std::vector<ProcessNames> names;  // by process index
    std::vector<trace::Readings> readings;  // of the management library, as the file has them
};

}  // namespace fragscope::analysis
