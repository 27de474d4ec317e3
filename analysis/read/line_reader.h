// Lines of a text file that may be anything: each of bounded length, numbered from 1. For importers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/importer.h"

namespace fragscope::analysis {

class LineReader {
  public:
    static constexpr std::size_t kMaxLineBytes = 4096;

    static constexpr std::size_t kMaxSkippedBytes = std::size_t{64}
                                                    << 20;  // a line without an end is no text

    // Of a line longer than `most` only so much is kept.
    explicit LineReader(ImportSource& source, std::size_t most = kMaxLineBytes)
        : source_(source), most_(most), buffer_(1 << 16) {}

    // False: there are no more lines, or the file cannot be read (ImportSource::problem).
    bool next();
    std::string_view line() const {
        return line_;
    }  // without its end (LF or CR LF); until the next call of next()
    std::uint64_t number() const { return number_; }
    bool cut() const { return cut_; }  // the line is longer
    // The last line was given up after kMaxSkippedBytes, and what follows is not read.
    bool endless() const { return endless_; }
    bool ended() const { return ended_; }  // a line end follows; else the file ends inside or behind the line

  private:
    bool fill();

    ImportSource& source_;
    std::size_t most_;
    std::vector<char> buffer_;
    std::size_t at_ = 0;
    std::size_t filled_ = 0;
    std::string line_;
    std::uint64_t number_ = 0;
    bool cut_ = false;
    bool ended_ = false;
    bool endless_ = false;
};

// What a message quotes of a stranger's file: printable, and short.
std::string quoted_text(std::string_view text);

}  // namespace fragscope::analysis
