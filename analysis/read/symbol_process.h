// A process of its own that looks addresses up in files of code. The files are named by a trace and may be
// anything; what crashes, hangs or grows there ends that process and not this one. Single-threaded programs
// only (it forks).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/read/code_file.h"

namespace fragscope::analysis {

class SymbolProcess {
  public:
    explicit SymbolProcess(std::string debug_folder) : debug_folder_(std::move(debug_folder)) {}
    ~SymbolProcess() { end(); }
    SymbolProcess(const SymbolProcess&) = delete;
    SymbolProcess& operator=(const SymbolProcess&) = delete;

    struct Answer {
        std::vector<CodePlace> places;
        std::string problem;  // why the file cannot be used: do not ask about it again; empty: it can
    };
    Answer places(const std::string& path, const std::string& build_id, std::uint64_t address);

  private:
    bool begin();
    void end();

    std::string debug_folder_;
    pid_t pid_ = -1;
    int socket_ = -1;
};

}  // namespace fragscope::analysis
