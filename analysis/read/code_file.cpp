#include "analysis/read/code_file.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace fragscope::analysis {

namespace {

constexpr int kMaxScopes = 64;
constexpr std::size_t kMaxMangledBytes = 4096;

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

std::string demangled(const char* name) {
    if (name == nullptr) return "";
    if (std::strncmp(name, "_Z", 2) != 0 || ::strnlen(name, kMaxMangledBytes) == kMaxMangledBytes)
        return name;
    int status = 0;
    const std::unique_ptr<char, Free> out(abi::__cxa_demangle(name, nullptr, nullptr, &status));
    return status == 0 && out != nullptr ? std::string(out.get()) : std::string(name);
}

bool is_function(Dwarf_Die* die) {
    const int tag = dwarf_tag(die);
    return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine || tag == DW_TAG_entry_point;
}

// With the namespaces and classes that it stands in.
std::string qualified_name(Dwarf_Die* die) {
    std::string name = text_or_empty(dwarf_diename(die));
    Dwarf_Die declared = *die;
    for (int step = 0; step < kMaxScopes; ++step) {
        Dwarf_Attribute attribute;
        Dwarf_Die other;
        if ((dwarf_attr(&declared, DW_AT_abstract_origin, &attribute) == nullptr &&
             dwarf_attr(&declared, DW_AT_specification, &attribute) == nullptr) ||
            dwarf_formref_die(&attribute, &other) == nullptr)
            break;
        declared = other;
    }
    Dwarf_Die* scopes = nullptr;
    const int count = name.empty() ? 0 : dwarf_getscopes_die(&declared, &scopes);
    const std::unique_ptr<Dwarf_Die, Free> owner(scopes);
    for (int i = 1; i < std::min(count, kMaxScopes); ++i) {
        const int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_namespace && tag != DW_TAG_structure_type && tag != DW_TAG_class_type) continue;
        const char* scope = dwarf_diename(&scopes[i]);
        name = std::string(scope != nullptr ? scope : "(anonymous)") + "::" + name;
    }
    return name;
}

// The linkage name, where there is one (not of functions of one file), holds parameters too.
std::string function_name(Dwarf_Die* die) {
    for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
        Dwarf_Attribute attribute;
        if (dwarf_attr_integrate(die, name, &attribute) == nullptr) continue;
        if (const char* linkage = dwarf_formstring(&attribute)) return demangled(linkage);
    }
    return qualified_name(die);
}

std::uint32_t line_of(Dwarf_Die* die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dwarf_attr(die, name, &attribute) == nullptr || dwarf_formudata(&attribute, &value) != 0) return 0;
    return value <= INT_MAX ? static_cast<std::uint32_t>(value) : 0;
}

// Relative to the folder of its compilation, as DWARF has it, where that is known.
std::string source_path(const char* file, const char* folder) {
    if (file == nullptr) return "";
    if (file[0] == '/' || folder == nullptr || folder[0] == '\0') return file;
    return std::string(folder) + "/" + file;
}

std::string caller_file(Dwarf_Die* inlined, Dwarf_Files* files, const char* folder) {
    Dwarf_Attribute attribute;
    Dwarf_Word index = 0;
    if (files == nullptr || dwarf_attr(inlined, DW_AT_call_file, &attribute) == nullptr ||
        dwarf_formudata(&attribute, &index) != 0)
        return "";
    return source_path(dwarf_filesrc(files, index, nullptr, nullptr), folder);
}

bool is_elf_of_a_program(int fd) {
    unsigned char header[18];  // e_ident, e_type
    if (::pread(fd, header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) return false;
    if (std::memcmp(header, ELFMAG, SELFMAG) != 0 || header[EI_DATA] != ELFDATA2LSB) return false;
    const unsigned type = header[16] | (static_cast<unsigned>(header[17]) << 8);
    return type == ET_EXEC || type == ET_DYN;
}

}  // namespace

int open_code_file(const std::string& path, std::uint64_t max_bytes, std::string& why) {
    const auto refuse = [&](std::string reason) {
        why = std::move(reason);
        return -1;
    };
    // Looked at before it is opened: opening a device may do something already.
    const std::unique_ptr<char, Free> whole(::realpath(path.c_str(), nullptr));
    if (whole == nullptr) return refuse(errno == ENOENT ? "the file is gone" : std::strerror(errno));
    struct stat status {};
    if (::lstat(whole.get(), &status) != 0) return refuse("the file is gone");
    if (!S_ISREG(status.st_mode)) return refuse("it is not a regular file");
    struct statfs system {};
    if (::statfs(whole.get(), &system) == 0 &&
        (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC || system.f_type == DEBUGFS_MAGIC))
        return refuse("it is not a file on a disk");
    const int fd = ::open(whole.get(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0) return refuse(std::strerror(errno));
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(fd);
        return refuse("it is not a regular file");
    }
    if (static_cast<std::uint64_t>(status.st_size) > max_bytes) {
        ::close(fd);
        return refuse(fmt::format("it has {} bytes, more than are read", status.st_size));
    }
    return fd;
}

std::string build_id_in_hex(const std::string& build_id) {
    std::string out;
    for (const char c : build_id) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return out;
}

CodeFile::~CodeFile() {
    if (dwfl_ != nullptr) dwfl_end(dwfl_);
}

int CodeFile::find_debug_file(Dwfl_Module*, void** self, const char*, Dwarf_Addr, const char* file,
                              const char*, GElf_Word, char** found) {
    if (file == nullptr || self == nullptr || *self == nullptr)
        return -1;  // of a separate debug file's own supplement
    const auto& code = *static_cast<const CodeFile*>(*self);
    if (code.build_id_.size() < 2 || code.debug_folder_.empty()) return -1;
    const std::string id = build_id_in_hex(code.build_id_);
    const std::string path =
        fmt::format("{}/.build-id/{}/{}.debug", code.debug_folder_, id.substr(0, 2), id.substr(2));
    std::string why;
    const int fd = open_code_file(path, kMaxCodeFileBytes, why);
    if (fd < 0) return -1;
    // What lies under the name may be something else.
    Elf* elf = is_elf_of_a_program(fd) ? elf_begin(fd, ELF_C_READ_MMAP, nullptr) : nullptr;
    const void* bits = nullptr;
    const ssize_t length = elf != nullptr ? dwelf_elf_gnu_build_id(elf, &bits) : -1;
    const bool same = length > 0 && code.build_id_ == std::string(static_cast<const char*>(bits),
                                                                  static_cast<std::size_t>(length));
    elf_end(elf);
    if (!same) {
        ::close(fd);
        return -1;
    }
    *found = ::strdup(path.c_str());
    return fd;
}

std::string CodeFile::open(const std::string& path, const std::string& build_id) {
    std::string why;
    const int fd = open_code_file(path, kMaxCodeFileBytes, why);
    if (fd < 0) return why;
    if (!is_elf_of_a_program(fd)) {
        ::close(fd);
        return "it is not an ELF program or library";
    }
    elf_version(EV_CURRENT);
    callbacks_.find_elf = dwfl_build_id_find_elf;  // never called: the file is given
    callbacks_.find_debuginfo = find_debug_file;
    callbacks_.section_address = dwfl_offline_section_address;
    dwfl_ = dwfl_begin(&callbacks_);
    if (dwfl_ != nullptr) module_ = dwfl_report_offline(dwfl_, "code", path.c_str(), fd);
    if (module_ == nullptr) {
        ::close(fd);
        return "its ELF structure cannot be read";
    }
    dwfl_report_end(dwfl_, nullptr, nullptr);
    void** self = nullptr;
    dwfl_module_info(module_, &self, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    if (self != nullptr) *self = this;
    if (dwfl_module_getelf(module_, &bias_) == nullptr) return "its ELF structure cannot be read";
    const unsigned char* bits = nullptr;
    GElf_Addr where = 0;
    const int length = dwfl_module_build_id(module_, &bits, &where);
    if (length > 0) build_id_.assign(reinterpret_cast<const char*>(bits), static_cast<std::size_t>(length));
    if (!build_id.empty() && build_id != build_id_)
        return "the file was changed since the recording (another build-id)";
    return "";
}

std::vector<CodePlace> CodeFile::by_dwarf(Dwarf_Addr address) const {
    Dwarf_Addr dwarf_bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(module_, address, &dwarf_bias);
    if (unit == nullptr) return {};
    Dwarf_Die* found = nullptr;
    const int found_count = dwarf_getscopes(unit, address - dwarf_bias, &found);
    const std::unique_ptr<Dwarf_Die, Free> found_owner(found);
    if (found_count <= 0) return {};
    // Those scopes turn to where an inlined function was declared; its parents in the tree are where it was
    // inlined.
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes_die(&found[0], &scopes);
    const std::unique_ptr<Dwarf_Die, Free> owner(scopes);

    Dwarf_Attribute folder_attribute;
    const char* folder = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &folder_attribute));
    Dwarf_Files* files = nullptr;
    if (dwarf_getsrcfiles(unit, &files, nullptr) != 0) files = nullptr;

    std::string file;
    std::uint32_t line = 0;
    if (Dwarf_Line* at = dwarf_getsrc_die(unit, address - dwarf_bias)) {
        int number = 0;
        if (dwarf_lineno(at, &number) == 0 && number > 0) line = static_cast<std::uint32_t>(number);
        file = source_path(dwarf_linesrc(at, nullptr, nullptr), folder);
    }
    std::vector<CodePlace> out;
    for (int i = 0; i < count && static_cast<int>(out.size()) < kMaxScopes; ++i) {
        if (!is_function(&scopes[i])) continue;
        CodePlace place;
        place.function = function_name(&scopes[i]);
        place.file = file;
        place.line = line;
        place.inlined = dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine;
        out.push_back(std::move(place));
        if (!out.back().inlined) break;
        file = caller_file(&scopes[i], files, folder);
        line = line_of(&scopes[i], DW_AT_call_line);
    }
    return out;
}

std::vector<CodePlace> CodeFile::places(std::uint64_t address) const {
    const Dwarf_Addr moved = address + bias_;
    std::vector<CodePlace> out = by_dwarf(moved);
    if (!out.empty() && !out.back().inlined && !out.back().function.empty()) return out;
    GElf_Off into = 0;
    GElf_Sym symbol;
    const char* name = dwfl_module_addrinfo(module_, moved, &into, &symbol, nullptr, nullptr, nullptr);
    if (name == nullptr || name[0] == '\0') return out;
    if (!out.empty()) {
        // DWARF knows the line and not the function.
        if (out.back().function.empty()) out.back().function = demangled(name);
        return out;
    }
    CodePlace place;
    place.function = demangled(name);
    place.into = into;
    place.symbol = true;
    out.push_back(std::move(place));
    return out;
}

}  // namespace fragscope::analysis
