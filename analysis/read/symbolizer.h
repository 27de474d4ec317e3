// Call stacks in words: what a trace holds of them (files, build-ids, addresses) to functions, source files
// and lines, from the files of code as they lie on this machine now. A file that is not the one that was
// recorded is not used.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/read/symbol_process.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

enum class NameForm {
    kSource,   // by debug information: function, and file and line where known
    kSymbol,   // by the file's nearest symbol before it: `function` may be its neighbour
    kModule,   // the file of code and the offset in it, no more; `why`
    kAddress,  // code without a file: `offset` is its address
    kPython,   // function, file, line of Python
};

struct FrameName {
    NameForm form = NameForm::kModule;
    std::string function;      // demangled; empty: not known
    std::string file;          // of the source
    std::uint32_t line = 0;    // 0: not known
    bool inlined = false;      // the compiler put it into the function that follows
    std::string module;        // path of the file of code, as the program saw it
    std::uint64_t offset = 0;  // of the instruction after the call, in the module's own addresses
    std::uint64_t into = 0;    // kSymbol: bytes from the symbol to it
    std::string why;           // kModule: why no more is known
};

class Symbolizer {
  public:
    explicit Symbolizer(std::string debug_folder = "/usr/lib/debug") : process_(std::move(debug_folder)) {}

    // Innermost first. One frame of the stack may be several names, where functions were inlined.
    std::vector<FrameName> frames(const ProcessNames& names, const trace::Stack& stack);

  private:
    struct File {
        std::string problem;
        std::unordered_map<std::uint64_t, std::vector<FrameName>> known;  // by offset
    };
    void module_frame(const ProcessNames& names, std::uint64_t frame, std::vector<FrameName>& out);
    std::vector<FrameName> look_up(const trace::CodeModule& module, std::uint64_t offset, File& file);

    SymbolProcess process_;
    std::unordered_map<std::string, File> files_;  // by build-id and path
    std::size_t remembered_ = 0;
};

}  // namespace fragscope::analysis
