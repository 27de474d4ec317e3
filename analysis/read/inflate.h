// Decompresses gzip (RFC 1952): one member or several, as gzip, pigz and Python's gzip write them. zlib
// checks each member's checksum and length. Input comes in pieces and output goes out in pieces: no more than
// a few buffers are held whatever the file says, and limits end a file that unpacks without end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct z_stream_s;

namespace fragscope::analysis {

struct InflateLimits {
    std::uint64_t most_bytes = std::uint64_t{1} << 40;  // decompressed, altogether
    // Beyond the first `any_ratio_bytes` of output: so many bytes for each compressed one. Deflate itself
    // ends at 1032; logs and snapshots lie between 5 and 100.
    std::uint64_t most_ratio = 400;
    std::uint64_t any_ratio_bytes = std::uint64_t{1} << 26;
};

class Inflater {
  public:
    // As many bytes as are there, at least one; 0 at the end.
    using Input = std::function<std::size_t(std::span<char>)>;

    // `begun`: what has been read of the input already.
    Inflater(std::vector<char> begun, Input more, const InflateLimits& limits);
    ~Inflater();
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;

    // So many bytes as are there, at least one; 0 at the end of the last member, or where problem() says why
    // there is no more. Bytes that were given out before a problem are not checked by a checksum.
    std::size_t read(std::span<char> to);
    // Empty, or what is wrong and at which offset of the compressed file, without a full stop.
    const std::string& problem() const { return problem_; }

  private:
    struct End {
        void operator()(z_stream_s* stream) const;
    };
    bool fill();
    bool next_member();
    std::uint64_t offset() const;
    std::size_t fail(std::string why);

    std::unique_ptr<z_stream_s, End> stream_;
    std::vector<char> buffer_;
    Input more_;
    InflateLimits limits_;
    std::uint64_t taken_ = 0;  // bytes of the input that were in the buffer so far
    std::uint64_t given_ = 0;
    std::uint64_t member_at_ = 0;  // where the member that is being read begins
    bool ended_ = false;
    std::string problem_;
};

// Whether a file that begins so is gzip.
bool is_gzip(std::string_view head);

}  // namespace fragscope::analysis
