// What an ELF file says of itself, as far as it decides whether and how a program can be recorded. Reads the
// file through elfutils; for files that the user names, not for those that a trace names (see
// analysis/read/code_file.h).
#pragma once

#include <string>
#include <vector>

namespace fragscope::tools {

struct ElfFacts {
    bool is_elf = false;
    bool is_64_bit = false;
    std::string interpreter;          // empty: statically linked
    std::vector<std::string> needed;  // DT_NEEDED
    // Of the dynamic and the ordinary symbol table: those that the file defines and that were asked about.
    std::vector<std::string> defines;
    bool static_cudart = false;  // it carries NVIDIA's runtime, by texts that are in every copy of it
    std::string nvcc_release;    // "13.0", where the compiler left it
};

// `symbols`: names to look for; one that ends in '*' stands for all that begin so.
ElfFacts read_elf_facts(const std::string& path, const std::vector<std::string>& symbols);

}  // namespace fragscope::tools
