#include "analysis/read/line_reader.h"

#include <algorithm>

namespace fragscope::analysis {

bool LineReader::fill() {
    if (at_ < filled_) return true;
    at_ = 0;
    filled_ = source_.read(buffer_);
    return filled_ != 0;
}

bool LineReader::next() {
    line_.clear();
    cut_ = false;
    ended_ = false;
    if (endless_ || !fill()) return false;
    ++number_;
    std::size_t taken = 0;
    while (!ended_ && !endless_ && fill()) {
        const char* begin = buffer_.data() + at_;
        const char* end = buffer_.data() + filled_;
        const char* found = std::find(begin, end, '\n');
        ended_ = found != end;
        const auto bytes = static_cast<std::size_t>(found - begin);
        const std::size_t kept = std::min(bytes, most_ - line_.size());
        line_.append(begin, kept);
        cut_ = cut_ || kept != bytes;
        at_ += bytes + (ended_ ? 1 : 0);
        taken += bytes;
        endless_ = !ended_ && taken > kMaxSkippedBytes;
    }
    if (ended_ && !cut_ && !line_.empty() && line_.back() == '\r') line_.pop_back();
    return true;
}

std::string quoted_text(std::string_view text) {
    constexpr std::size_t kShown = 60;
    std::string out = "'";
    for (const char c : text.substr(0, kShown)) out += c >= ' ' && c <= '~' ? c : '?';
    return out + (text.size() > kShown ? "…'" : "'");
}

}  // namespace fragscope::analysis
