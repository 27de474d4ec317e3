// One frame of a call stack as a line: for dump, report and explain.
#pragma once

#include <string>

#include "analysis/callers.h"
#include "analysis/read/symbolizer.h"

namespace fragscope::tools {

// "train (model.py:12)", "known::inner(int) [inlined] (known.cpp:31)", "malloc+0x24 (/lib/libc.so.6)".
std::string frame_line(const analysis::FrameName& frame);

// Lines of whole stacks, from the files of code on this machine. `symbolizer` lives longer than the answer.
analysis::StackWords stack_words(analysis::Symbolizer& symbolizer);

}  // namespace fragscope::tools
