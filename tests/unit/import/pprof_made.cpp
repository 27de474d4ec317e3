#include "tests/unit/import/pprof_made.h"

namespace fragscope::test {

void Message::varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(static_cast<unsigned char>(value | 0x80));
    bytes_ += static_cast<char>(value);
}

Message& Message::number(std::uint32_t field, std::int64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(static_cast<std::uint64_t>(value));
    return *this;
}

Message& Message::text(std::uint32_t field, std::string_view text) {
    varint(std::uint64_t{field} << 3 | 2);
    varint(text.size());
    bytes_ += text;
    return *this;
}

Message& Message::packed(std::uint32_t field, const std::vector<std::int64_t>& values) {
    Message inner;
    for (const std::int64_t value : values) inner.varint(static_cast<std::uint64_t>(value));
    return text(field, inner.bytes_);
}

JaxProfile::JaxProfile(std::string_view first_type, std::string_view second_type) {
    text("");
    types_.message(1, Message().number(1, text(first_type)).number(2, text("count")));
    types_.message(1, Message().number(1, text(second_type)).number(2, text("bytes")));
}

std::int64_t JaxProfile::text(std::string_view text) {
    const auto [found, added] =
        text_ids_.try_emplace(std::string(text), static_cast<std::int64_t>(texts_.size()));
    if (added) texts_.emplace_back(text);
    return found->second;
}

void JaxProfile::sample(std::int64_t count, std::int64_t bytes, std::string_view kind,
                        std::string_view device, const std::vector<Frame>& frames) {
    std::vector<std::int64_t> places;
    for (const Frame& frame : frames) {
        const std::int64_t id = ++places_;
        places.push_back(id);
        functions_.message(
            5, Message().number(1, id).number(2, text(frame.function)).number(4, text(frame.file)));
        locations_.message(4,
                           Message().number(1, id).message(4, Message().number(1, id).number(2, frame.line)));
    }
    Message sample;
    sample.packed(1, places).packed(2, {count, bytes});
    if (!kind.empty()) sample.message(3, Message().number(1, text("kind")).number(2, text(kind)));
    if (!device.empty()) sample.message(3, Message().number(1, text("device")).number(2, text(device)));
    samples_.message(2, sample);
}

std::string JaxProfile::bytes() const {
    Message texts;
    for (const std::string& text : texts_) texts.text(6, text);
    return types_.bytes() + samples_.bytes() + locations_.bytes() + functions_.bytes() + texts.bytes() +
           rest_.bytes();
}

}  // namespace fragscope::test
