// What can be told of a program from its file before it is started: where it is, and whether a preloaded
// library will reach it.
#pragma once

#include <string>

namespace fragscope::collector {

struct ProgramFile {
    std::string path;      // empty: not found or not executable, see `error`
    int error_status = 0;  // 127: not found; 126: found and not executable
    std::string error;     // one sentence
    std::string
        warning;  // one sentence: why the recording will see nothing of this program; empty: nothing known
};

// Looks `program` up as execvp does, with `search_path` for PATH.
ProgramFile examine_program(const std::string& program, const std::string& search_path);

// Whether the loader could preload it into 64-bit programs: a file, readable, an ELF shared object of that class.
bool is_library(const std::string& path);

}  // namespace fragscope::collector
