// Profiles in pprof's format for tests, written field by field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::test {

// One message of protobuf, as its wire format has it.
class Message {
  public:
    Message& number(std::uint32_t field, std::int64_t value);
    Message& text(std::uint32_t field, std::string_view text);
    Message& message(std::uint32_t field, const Message& inner) { return text(field, inner.bytes_); }
    Message& packed(std::uint32_t field, const std::vector<std::int64_t>& values);
    const std::string& bytes() const { return bytes_; }

  private:
    void varint(std::uint64_t value);
    std::string bytes_;
};

// A profile as JAX writes them: samples with a count and bytes, labels and Python places.
class JaxProfile {
  public:
    struct Frame {
        std::string function;
        std::string file;
        std::int64_t line = 0;
    };
    JaxProfile(std::string_view first_type = "allocations", std::string_view second_type = "space");
    // `frames`: the innermost first. Labels that are empty are left out.
    void sample(std::int64_t count, std::int64_t bytes, std::string_view kind, std::string_view device,
                const std::vector<Frame>& frames);
    Message& rest() { return rest_; }
    // The fields in the order of their numbers, as protobuf writes them.
    std::string bytes() const;

  private:
    std::int64_t text(std::string_view text);

    Message types_;
    Message samples_;
    Message locations_;
    Message functions_;
    Message rest_;
    std::vector<std::string> texts_;
    std::map<std::string, std::int64_t, std::less<>> text_ids_;
    std::int64_t places_ = 0;
};

}  // namespace fragscope::test
