#include "collector/sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fragscope::collector {

namespace {

// Enough for the last loss report of each of some hundred processes and the end of the session.
constexpr std::uint64_t kReserveBytes = 64 * 1024;
constexpr int kMaxNumberedNames = 10000;

std::string numbered(const std::string& path, int number) {
    if (number == 1) return path;
    const std::size_t slash = path.find_last_of('/');
    const std::size_t dot = path.find_last_of('.');
    const bool has_extension = dot != std::string::npos && (slash == std::string::npos || dot > slash + 1);
    const std::size_t stem = has_extension ? dot : path.size();
    return fmt::format("{}-{}{}", path.substr(0, stem), number, path.substr(stem));
}

}  // namespace

bool MemorySink::append(std::span<const std::byte> bytes, Room room) {
    const std::uint64_t needed = size_ + bytes.size() + (room == Room::kOrdinary ? reserve_ : 0);
    if (needed > limit_) {
        problem_ = fmt::format("the {} bytes of memory for the trace are full", limit_);
        return false;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    size_ += bytes.size();
    return true;
}

FileSink::Opened FileSink::open(const std::string& path, Existing existing) {
    const auto failed = [](const std::string& name) {
        return Opened{nullptr, fmt::format("cannot write {}: {}", name, std::strerror(errno))};
    };
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        if (S_ISDIR(status.st_mode))
            return {nullptr, fmt::format("cannot write {}: it is a directory", path)};
        const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (fd < 0) return failed(path);
        return {std::unique_ptr<FileSink>(new FileSink(fd, path, false, false)), ""};
    }
    if (existing == Existing::kReplace) {
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) return failed(path);
        return {std::unique_ptr<FileSink>(new FileSink(fd, path, true, true)), ""};
    }
    for (int number = 1; number <= kMaxNumberedNames; ++number) {
        const std::string name = numbered(path, number);
        const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) return {std::unique_ptr<FileSink>(new FileSink(fd, name, true, true)), ""};
        if (errno != EEXIST) return failed(name);
        if (existing == Existing::kRefuse) break;
    }
    return {nullptr,
            fmt::format("{} exists already; choose another name with -o, or replace it with --force", path)};
}

FileSink::~FileSink() {
    if (fd_ >= 0) ::close(fd_);
}

// Makes sure that `bytes` more and the reserve after them fit. Blocks are taken beyond the end of the file,
// so its size stays true at every moment.
bool FileSink::reserve_beyond(std::uint64_t bytes) {
    struct rlimit limit {};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size_ + bytes + kReserveBytes > limit.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    if (!can_reserve_) return true;
    for (;;) {
        if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size_),
                        static_cast<off_t>(bytes + kReserveBytes)) == 0)
            return true;
        if (errno == EINTR) continue;
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return false;
        can_reserve_ = false;  // this file system cannot: the last words may then not fit on a full disk
        return true;
    }
}

bool FileSink::append(std::span<const std::byte> bytes, Room room) {
    if (regular_ && room == Room::kOrdinary && !reserve_beyond(bytes.size())) {
        problem_ = fmt::format("cannot write more to {}: {}", path_, std::strerror(errno));
        return false;
    }
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
        if (n > 0) {
            done += static_cast<std::size_t>(n);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        problem_ =
            fmt::format("cannot write more to {}: {}", path_, n < 0 ? std::strerror(errno) : "no progress");
        if (done != 0 && regular_ && ::ftruncate(fd_, static_cast<off_t>(size_)) == 0)
            (void)::lseek(fd_, static_cast<off_t>(size_), SEEK_SET);
        return false;
    }
    size_ += bytes.size();
    return true;
}

void FileSink::finish() {
    // Cutting the file at its own size gives back the blocks beyond it; on failure they are merely wasted.
    if (regular_ && ::ftruncate(fd_, static_cast<off_t>(size_)) != 0) return;
}

void FileSink::discard() {
    if (created_) ::unlink(path_.c_str());
}

}  // namespace fragscope::collector
