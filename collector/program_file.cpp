#include "collector/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fragscope::collector {

namespace {

// Only a few hundred bytes are ever read; more program headers than this is no ordinary executable.
constexpr unsigned kMaxProgramHeaders = 256;

bool read_at(int fd, void* to, std::size_t bytes, std::uint64_t offset) {
    return ::pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string loader_warning(int fd, const std::string& path) {
    Elf64_Ehdr header{};
    if (!read_at(fd, &header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return "";  // a script, perhaps: its interpreter decides
    if (header.e_ident[EI_CLASS] != ELFCLASS64)
        return fmt::format("{} is a 32-bit program: the recorder cannot be loaded into it", path);
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMaxProgramHeaders) return "";
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment{};
        if (!read_at(fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment)) return "";
        if (segment.p_type == PT_INTERP) return "";
    }
    return fmt::format(
        "{} is statically linked: nothing can be preloaded into it, so nothing of it can be recorded", path);
}

std::string privilege_warning(int fd, const struct stat& status, const std::string& path) {
    const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid();
    const bool other_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != ::getgid();
    const bool capabilities = ::geteuid() != 0 && ::fgetxattr(fd, "security.capability", nullptr, 0) > 0;
    if (!other_user && !other_group && !capabilities) return "";
    return fmt::format(
        "{} runs with the rights of another user or group (setuid, setgid or file capabilities): the loader "
        "ignores preloaded libraries there, so nothing of it can be recorded",
        path);
}

}  // namespace

ProgramFile examine_program(const std::string& program, const std::string& search_path) {
    ProgramFile result;
    const auto try_path = [&](const std::string& path) {
        struct stat status {};
        if (::stat(path.c_str(), &status) != 0) {
            if (errno != ENOENT && errno != ENOTDIR && result.error_status == 0) {
                result.error_status = 126;
                result.error = fmt::format("cannot start {}: {}", path, std::strerror(errno));
            }
            return false;
        }
        if (!S_ISREG(status.st_mode) || ::access(path.c_str(), X_OK) != 0) {
            result.error_status = 126;
            result.error = S_ISDIR(status.st_mode)
                               ? fmt::format("cannot start {}: it is a directory", path)
                               : fmt::format("cannot start {}: it is not executable", path);
            return false;
        }
        result.path = path;
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return true;  // may be executed, not read: nothing to say
        result.warning = privilege_warning(fd, status, path);
        if (result.warning.empty()) result.warning = loader_warning(fd, path);
        ::close(fd);
        return true;
    };
    bool found = false;
    if (program.find('/') != std::string::npos) {
        found = try_path(program);
    } else {
        for (std::size_t begin = 0; !program.empty() && begin <= search_path.size() && !found;) {
            const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
            const std::string folder = search_path.substr(begin, end - begin);
            found = try_path(folder.empty() ? program : folder + "/" + program);
            begin = end + 1;
        }
    }
    if (found) {
        result.error_status = 0;
        result.error.clear();
    } else if (result.error_status == 0) {
        result.error_status = 127;
        result.error = fmt::format("cannot start {}: there is no such program", program);
    }
    return result;
}

bool is_library(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    Elf64_Ehdr header{};
    const bool library = read_at(fd, &header, sizeof header, 0) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_DYN;
    ::close(fd);
    return library;
}

}  // namespace fragscope::collector
