#include "analysis/read/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fragscope::analysis {

FileBytes::~FileBytes() {
    if (fd_ >= 0) ::close(fd_);
}

std::string FileBytes::open(const std::string& path) {
    path_ = path;
    // O_NONBLOCK: opening a pipe that nobody writes to must not wait for ever.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) return fmt::format("cannot read {}: {}", path, std::strerror(errno));
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return fmt::format("cannot read {}: {}", path, std::strerror(errno));
    if (S_ISDIR(status.st_mode))
        return fmt::format("cannot read {}: it is a directory, not a trace file", path);
    if (!S_ISREG(status.st_mode)) return fmt::format("cannot read {}: it is not a regular file", path);
    size_ = static_cast<std::uint64_t>(status.st_size);
    return "";
}

std::string FileBytes::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
    char* position = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t n = ::pread(fd_, position, bytes, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::strerror(errno);
        if (n == 0) return "the file became shorter while it was read";
        position += n;
        offset += static_cast<std::uint64_t>(n);
        bytes -= static_cast<std::size_t>(n);
    }
    return "";
}

}  // namespace fragscope::analysis
