// Functions and lines of one file of code (an executable or a shared library), by its symbol tables and
// DWARF: its own or those of a separate file that lies in a folder of debug files, by build-id. Nothing is
// ever asked of a network.
//
// The file is named by a trace and read by elfutils, which promises nothing for damaged files: this is for a
// process that may crash or hang without harm, see symbol_process.h.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fragscope::analysis {

inline constexpr std::uint64_t kMaxCodeFileBytes = std::uint64_t{8} << 30;

// One function that an address lies in.
struct CodePlace {
    std::string function;    // demangled; empty: not known
    std::string file;        // of the source; empty: not known
    std::uint32_t line = 0;  // 0: not known
    bool inlined = false;    // into the place that follows
    std::uint64_t into = 0;  // where only a symbol is known: bytes from it to the address
    bool symbol = false;     // only a symbol is known
};

class CodeFile {
  public:
    // `debug_folder`: where separate files lie as .build-id/ab/cdef….debug.
    explicit CodeFile(std::string debug_folder) : debug_folder_(std::move(debug_folder)) {}
    ~CodeFile();
    CodeFile(const CodeFile&) = delete;
    CodeFile& operator=(const CodeFile&) = delete;

    // Opens it. `build_id`: what it must have; empty: it is not compared. Empty: done, else why not, as in "…
    // the file is gone".
    std::string open(const std::string& path, const std::string& build_id);
    // Where the file's own `address` (without bias) lies: innermost first. Empty: nothing known.
    std::vector<CodePlace> places(std::uint64_t address) const;

  private:
    static int find_debug_file(Dwfl_Module* module, void** self, const char* name, Dwarf_Addr base,
                               const char* file, const char* link, GElf_Word checksum, char** found);
    std::vector<CodePlace> by_dwarf(Dwarf_Addr address) const;

    std::string debug_folder_;
    std::string build_id_;  // of the file
    Dwfl_Callbacks callbacks_{};
    Dwfl* dwfl_ = nullptr;
    Dwfl_Module* module_ = nullptr;
    Dwarf_Addr bias_ = 0;  // of elfutils' own
};

// Opens a regular file of at most `max_bytes` for reading; never a device or anything in /proc or /sys, which
// opening alone may disturb. -1: `why` says why not.
int open_code_file(const std::string& path, std::uint64_t max_bytes, std::string& why);
std::string build_id_in_hex(const std::string& build_id);

}  // namespace fragscope::analysis
