// Call stacks of a trace as messages: the runtime function that the program called, and the frames in words.
// What the places in files are called is for somebody else to say, who may open those files (StackWords);
// without that a frame is the file and the offset in it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// The frames of a stack, the innermost first, each a line for people; inlined functions have lines of their
// own.
using StackWords = std::function<std::vector<std::string>(const ProcessNames&, const trace::Stack&)>;

// Nothing where `stack` is 0. A number whose definition was lost gives a stack whose frames say so.
std::optional<report::CallStack> call_stack_of(const Trace& trace, ProcessIndex process, std::uint32_t stack,
                                               const StackWords& words);

// The text that an event names by number; where its definition was lost, a few words that say so.
std::string text_of(const Trace& trace, ProcessIndex process, std::uint64_t id);

}  // namespace fragscope::analysis
