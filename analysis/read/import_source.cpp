#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "analysis/read/importer.h"
#include "analysis/read/inflate.h"

namespace fragscope::analysis {

ImportSource::ImportSource() = default;

ImportSource::~ImportSource() {
    if (fd_ >= 0) ::close(fd_);
}

std::string ImportSource::open(const std::string& path) {
    input_ = path == "-";
    path_ = input_ ? "standard input" : path;
    fd_ = input_ ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return fmt::format("cannot open {}: {}", path_, std::strerror(errno));
    struct stat about {};
    if (::fstat(fd_, &about) == 0 && S_ISDIR(about.st_mode))
        return fmt::format("cannot read {}: it is a directory", path_);
    head_ = first_bytes();
    if (is_gzip(head())) {
        inflater_ = std::make_unique<Inflater>(
            std::move(head_), [this](std::span<char> to) { return read_file(to); }, InflateLimits{});
        head_ = first_bytes();
    }
    return problem_;
}

std::vector<char> ImportSource::first_bytes() {
    std::vector<char> out(kHeadBytes);
    std::size_t bytes = 0;
    while (bytes < kHeadBytes) {
        const std::size_t more = read_content(std::span(out).subspan(bytes));
        if (more == 0) break;
        bytes += more;
    }
    out.resize(bytes);
    return out;
}

std::size_t ImportSource::read_file(std::span<char> to) {
    ssize_t bytes = 0;
    do {
        bytes = ::read(fd_, to.data(), to.size());
    } while (bytes < 0 && errno == EINTR);
    if (bytes >= 0) return static_cast<std::size_t>(bytes);
    problem_ = fmt::format("cannot read {}: {}", path_, std::strerror(errno));
    return 0;
}

std::size_t ImportSource::read_content(std::span<char> to) {
    if (inflater_ == nullptr) return read_file(to);
    const std::size_t bytes = inflater_->read(to);
    if (problem_.empty() && !inflater_->problem().empty())
        problem_ = fmt::format("cannot read {}: {}", path_, inflater_->problem());
    return bytes;
}

std::size_t ImportSource::read(std::span<char> to) {
    if (taken_of_head_ == head_.size()) return read_content(to);
    const std::size_t bytes = std::min(to.size(), head_.size() - taken_of_head_);
    std::copy_n(head_.data() + taken_of_head_, bytes, to.data());
    taken_of_head_ += bytes;
    return bytes;
}

}  // namespace fragscope::analysis
