// A file that is read at whatever place, for as long as the object lives. It may change or shrink meanwhile:
// then a read fails or gives other bytes, and never more than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fragscope::analysis {

class FileBytes {
  public:
    FileBytes() = default;
    ~FileBytes();
    FileBytes(const FileBytes&) = delete;
    FileBytes& operator=(const FileBytes&) = delete;

    // Empty: open; else the reason, in one sentence without its full stop. Only regular files.
    std::string open(const std::string& path);
    // Empty: all bytes were read; else why not.
    std::string read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
    std::uint64_t size() const { return size_; }  // when it was opened
    const std::string& path() const { return path_; }

  private:
    std::string path_;
    int fd_ = -1;
    std::uint64_t size_ = 0;
};

}  // namespace fragscope::analysis
