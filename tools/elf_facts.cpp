#include "tools/elf_facts.h"

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace fragscope::tools {

namespace {

constexpr std::uint64_t kMaxScannedBytes = std::uint64_t{4} << 30;

bool matches(std::string_view name, const std::string& wanted) {
    if (wanted.empty() || wanted.back() != '*') return name == wanted;
    return name.substr(0, wanted.size() - 1) == std::string_view(wanted).substr(0, wanted.size() - 1);
}

void read_symbols(Elf* elf, Elf_Scn* section, const GElf_Shdr& header, const std::vector<std::string>& wanted,
                  ElfFacts& facts) {
    Elf_Data* data = elf_getdata(section, nullptr);
    if (data == nullptr || header.sh_entsize == 0) return;
    const auto count =
        static_cast<int>(std::min<std::uint64_t>(header.sh_size / header.sh_entsize, 1u << 24));
    for (int i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (gelf_getsym(data, i, &symbol) == nullptr || symbol.st_shndx == SHN_UNDEF) continue;
        const char* name = elf_strptr(elf, header.sh_link, symbol.st_name);
        if (name == nullptr) continue;
        for (const std::string& one : wanted)
            if (matches(name, one) &&
                std::find(facts.defines.begin(), facts.defines.end(), name) == facts.defines.end())
                facts.defines.emplace_back(name);
    }
}

void read_needed(Elf* elf, Elf_Scn* section, const GElf_Shdr& header, ElfFacts& facts) {
    Elf_Data* data = elf_getdata(section, nullptr);
    if (data == nullptr || header.sh_entsize == 0) return;
    const auto count =
        static_cast<int>(std::min<std::uint64_t>(header.sh_size / header.sh_entsize, 1u << 16));
    for (int i = 0; i < count; ++i) {
        GElf_Dyn entry;
        if (gelf_getdyn(data, i, &entry) == nullptr) break;
        if (entry.d_tag != DT_NEEDED) continue;
        if (const char* name = elf_strptr(elf, header.sh_link, entry.d_un.d_val))
            facts.needed.emplace_back(name);
    }
}

// Texts in the file itself: they survive stripping.
void scan(int fd, ElfFacts& facts) {
    struct stat status {};
    if (::fstat(fd, &status) != 0 || status.st_size <= 0) return;
    const std::size_t size = std::min(static_cast<std::uint64_t>(status.st_size), kMaxScannedBytes);
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) return;
    const std::string_view text(static_cast<const char*>(memory), size);
    // The runtime names its own errors, and looks this driver function up by name.
    facts.static_cudart = text.find("cudaErrorCudartUnloading") != std::string_view::npos &&
                          text.find("cuGetProcAddress") != std::string_view::npos;
    constexpr std::string_view kRelease = "Cuda compilation tools, release ";
    if (const std::size_t at = text.find(kRelease); at != std::string_view::npos) {
        const std::string_view rest = text.substr(at + kRelease.size(), 16);
        facts.nvcc_release = rest.substr(0, rest.find_first_not_of("0123456789."));
    }
    ::munmap(memory, size);
}

}  // namespace

ElfFacts read_elf_facts(const std::string& path, const std::vector<std::string>& symbols) {
    ElfFacts facts;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return facts;
    elf_version(EV_CURRENT);
    Elf* elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
    if (elf != nullptr && elf_kind(elf) == ELF_K_ELF) {
        facts.is_elf = true;
        facts.is_64_bit = gelf_getclass(elf) == ELFCLASS64;
        std::size_t segments = 0;
        if (elf_getphdrnum(elf, &segments) == 0)
            for (std::size_t i = 0; i < segments; ++i) {
                GElf_Phdr segment;
                if (gelf_getphdr(elf, static_cast<int>(i), &segment) == nullptr ||
                    segment.p_type != PT_INTERP)
                    continue;
                char text[512] = {};
                if (::pread(fd, text, std::min<std::size_t>(segment.p_filesz, sizeof text - 1),
                            static_cast<off_t>(segment.p_offset)) > 0)
                    facts.interpreter = text;
            }
        for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
            GElf_Shdr header;
            if (gelf_getshdr(section, &header) == nullptr) continue;
            if (header.sh_type == SHT_DYNAMIC) read_needed(elf, section, header, facts);
            if (!symbols.empty() && (header.sh_type == SHT_DYNSYM || header.sh_type == SHT_SYMTAB))
                read_symbols(elf, section, header, symbols, facts);
        }
        scan(fd, facts);
    }
    if (elf != nullptr) elf_end(elf);
    ::close(fd);
    return facts;
}

}  // namespace fragscope::tools
