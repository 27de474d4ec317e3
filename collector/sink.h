// Where the trace's bytes go. A sink either takes a whole piece or leaves no trace of it, so that what is
// there always ends at a whole piece; and it keeps some room back, so that a recording on a full disk can
// still say how it ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fragscope::collector {

enum class Room {
    kOrdinary,  // leave the reserve alone
    kReserve,   // the last words: use it
};

class Sink {
  public:
    virtual ~Sink() = default;
    // False: nothing of `bytes` is there, and problem() says why.
    virtual bool append(std::span<const std::byte> bytes, Room room) = 0;
    // Gives back what was reserved and not used. Call once, at the end.
    virtual void finish() {}
    virtual std::string problem() const = 0;
    std::uint64_t size() const { return size_; }

  protected:
    std::uint64_t size_ = 0;
};

// For tests and measurements; `limit` bytes fit, of which `reserve` are kept for the last words.
class MemorySink final : public Sink {
  public:
    explicit MemorySink(std::uint64_t limit = UINT64_MAX, std::uint64_t reserve = 0)
        : limit_(limit), reserve_(reserve) {}
    bool append(std::span<const std::byte> bytes, Room room) override;
    std::string problem() const override { return problem_; }
    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    std::uint64_t limit_;
    std::uint64_t reserve_;
    std::vector<std::byte> bytes_;
    std::string problem_;
};

enum class Existing {
    kRefuse,
    kReplace,
    kNumber,  // trace.fst, trace-2.fst, …: the first name that is free
};

class FileSink final : public Sink {
  public:
    struct Opened {
        std::unique_ptr<FileSink> sink;  // null: `error` says why, in one sentence
        std::string error;
    };
    static Opened open(const std::string& path, Existing existing);
    ~FileSink() override;
    FileSink(const FileSink&) = delete;
    FileSink& operator=(const FileSink&) = delete;

    bool append(std::span<const std::byte> bytes, Room room) override;
    void finish() override;
    std::string problem() const override { return problem_; }
    const std::string& path() const { return path_; }
    // Takes the file away again: the recording never started.
    void discard();

  private:
    FileSink(int fd, std::string path, bool regular, bool created)
        : fd_(fd), path_(std::move(path)), regular_(regular), created_(created) {}
    bool reserve_beyond(std::uint64_t bytes);

    int fd_;
    std::string path_;
    bool regular_;             // else a device or a pipe: no reserve, no going back
    bool created_;             // by us
    bool can_reserve_ = true;  // the file system knows fallocate
    std::string problem_;
};

}  // namespace fragscope::collector
