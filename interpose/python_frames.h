// The lines of Python that the calling thread is in the middle of, read from CPython's own structures
// (3.11, 3.12, 3.13) as faulthandler does: without taking the interpreter's lock, a reference, or memory, and
// without changing anything.
//
// A thread's chain of frames changes only by what the thread itself runs. It is now inside of a driver call,
// so the chain stands still whether or not the thread holds the interpreter meanwhile; most callers of the
// driver (ctypes, extension modules that let other threads run) do not. What may go on beside it: other
// threads running the same code objects, of which only parts are read that do not change; and the end of the
// interpreter, during which nothing is read.
#pragma once

#include <cstdint>

#include "proto/wire.h"

namespace fragscope::interpose {

struct PythonFrame {
    std::uint32_t place;  // string "function\nfile", see intern.h
    std::uint32_t line;
    std::uint32_t run;  // which of the thread's evaluation loops it is in, 0: the innermost; a call from
                        // Python to Python stays in one
};

struct PythonFrames {
    PythonFrame frames[wire::kMaxFrames];
    std::uint32_t count = 0;
    bool cut = false;  // there are more
};

// For a thread whose stack, from `low` to `high`, has an evaluation loop in module `number`. False: this
// Python is of a version that is not known, is ending, or has no state for this thread.
bool python_frames(std::uint32_t number, std::uintptr_t low, std::uintptr_t high, PythonFrames& out);

}  // namespace fragscope::interpose
