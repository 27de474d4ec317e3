#include "analysis/read/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace fragscope::analysis {

namespace {

constexpr std::size_t kBufferBytes = 65536;
constexpr int kGzipOnly = 15 + 16;  // as inflateInit2 wants it: the largest window, and gzip's header

uInt in_zlib(std::size_t bytes) {
    return static_cast<uInt>(std::min<std::size_t>(bytes, std::numeric_limits<uInt>::max()));
}

}  // namespace

bool is_gzip(std::string_view head) { return head.starts_with("\x1f\x8b"); }

void Inflater::End::operator()(z_stream_s* stream) const {
    inflateEnd(stream);
    delete stream;
}

Inflater::Inflater(std::vector<char> begun, Input more, const InflateLimits& limits)
    : stream_(new z_stream_s{}), buffer_(std::move(begun)), more_(std::move(more)), limits_(limits) {
    if (inflateInit2(stream_.get(), kGzipOnly) != Z_OK) throw std::bad_alloc();
    taken_ = buffer_.size();
    stream_->next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_->avail_in = in_zlib(buffer_.size());
}

Inflater::~Inflater() = default;

std::uint64_t Inflater::offset() const { return taken_ - stream_->avail_in; }

std::size_t Inflater::fail(std::string why) {
    problem_ = std::move(why);
    return 0;
}

// Whether there is input.
bool Inflater::fill() {
    if (stream_->avail_in != 0) return true;
    buffer_.resize(kBufferBytes);
    const std::size_t bytes = more_(buffer_);
    taken_ += bytes;
    stream_->next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_->avail_in = in_zlib(bytes);
    return bytes != 0;
}

// Behind a member: another one, or zeros up to the end, as tapes and block devices have them.
bool Inflater::next_member() {
    member_at_ = offset();
    if (!fill()) {
        ended_ = true;
        return false;
    }
    bool zeros = false;
    while (*stream_->next_in == 0) {
        zeros = true;
        ++stream_->next_in;
        --stream_->avail_in;
        if (fill()) continue;
        ended_ = true;
        return false;
    }
    if (*stream_->next_in != 0x1f || zeros) {
        fail(fmt::format("behind its gzip data, at offset {}, there are other bytes, expected its end",
                         offset()));
        return false;
    }
    if (inflateReset(stream_.get()) != Z_OK) throw std::bad_alloc();
    return true;
}

std::size_t Inflater::read(std::span<char> to) {
    if (ended_ || !problem_.empty() || to.empty()) return 0;
    // One byte more than may be there, to tell whether it is.
    const uInt wanted = in_zlib(std::min<std::uint64_t>(to.size(), limits_.most_bytes - given_ + 1));
    for (;;) {
        const bool more = fill();
        stream_->next_out = reinterpret_cast<Bytef*>(to.data());
        stream_->avail_out = wanted;
        const int result = inflate(stream_.get(), Z_NO_FLUSH);
        const std::size_t bytes = wanted - stream_->avail_out;
        given_ += bytes;
        if (result == Z_MEM_ERROR) throw std::bad_alloc();
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return fail(fmt::format("its gzip data is damaged at offset {} ({})", offset(),
                                    stream_->msg != nullptr ? stream_->msg : "no reason is given"));
        if (given_ > limits_.most_bytes)
            return fail(
                fmt::format("it unpacks to more than {} bytes, the most that is taken", limits_.most_bytes));
        if (given_ > limits_.any_ratio_bytes && given_ / limits_.most_ratio > offset())
            return fail(
                fmt::format("it unpacks to more than {} times its size by offset {}, expected less of a file "
                            "that a program wrote",
                            limits_.most_ratio, offset()));
        if (result == Z_STREAM_END) {
            if (!next_member()) return bytes;
        } else if (bytes == 0 && !more) {
            return fail(fmt::format(
                "its gzip data breaks off at offset {}, inside the member that begins at offset {}", offset(),
                member_at_));
        }
        if (bytes != 0) return bytes;
    }
}

}  // namespace fragscope::analysis
