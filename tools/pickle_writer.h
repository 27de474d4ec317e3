// Writes a pickle of plain data for Python: protocol 2, which every reader knows, also those in a browser. Equal strings
// are written once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace fragscope::tools {

class PickleWriter {
  public:
    // Takes bytes of the pickle; false: they cannot be written, and nothing more is wanted.
    using Sink = std::function<bool(std::string_view)>;
    explicit PickleWriter(Sink sink);

    // Values stand where they are called: items of the list that is open, keys and values of the dictionary in turn.
    void begin_dict();
    void end_dict();
    void begin_list();
    void end_list();
    // A list that may be written again by its number. Ended with end_list().
    std::uint32_t begin_shared_list();
    void shared(std::uint32_t number);
    void text(std::string_view text);
    void number(std::uint64_t value);
    void truth(bool value);
    void pair(std::uint64_t first, std::uint64_t second);
    // A key and what stands under it.
    void entry(std::string_view key, std::uint64_t value) {
        text(key);
        number(value);
    }
    void entry(std::string_view key, std::string_view value) {
        text(key);
        text(value);
    }

    // The end of the pickle. False: not all of it could be written.
    bool finish();

  private:
    void put(char byte);
    void put(std::string_view bytes);
    void put_little(std::uint64_t value, unsigned bytes);
    std::uint32_t memoize();
    void flush();

    Sink sink_;
    std::string buffer_;
    std::unordered_map<std::string, std::uint32_t> texts_;
    std::uint32_t memoized_ = 0;
    bool written_ = true;
};

}  // namespace fragscope::tools
