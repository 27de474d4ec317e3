#include "tests/soak/ledger.h"

#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace fragscope::soak {

namespace {

constexpr std::string_view kNames[] = {
#define OPERATION(name) #name,
#include "tests/soak/operations.def"
};

const std::unordered_map<std::string_view, Operation>& by_name() {
    static const auto* const all = [] {
        auto* made = new std::unordered_map<std::string_view, Operation>;
        for (std::size_t i = 0; i < std::size(kNames); ++i)
            made->emplace(kNames[i], static_cast<Operation>(i));
        return made;
    }();
    return *all;
}

// Takes one field off the front of the line.
std::string_view field(std::string_view& rest) {
    const std::size_t end = rest.find('\t');
    const std::string_view taken = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return taken;
}

template <typename Number>
bool number(std::string_view text, Number& out) {
    const int base = text.starts_with("0x") ? 16 : 10;
    if (base == 16) text.remove_prefix(2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
    return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

const char* name_of(Operation operation) { return kNames[static_cast<std::size_t>(operation)].data(); }

std::string read_ledger(const std::string& path, std::vector<Line>& lines) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
    if (file == nullptr) return "there is no ledger at " + path;
    char text[1024];
    while (std::fgets(text, sizeof text, file.get()) != nullptr) {
        std::string_view rest = text;
        const auto where = [&] { return path + ", line " + std::to_string(lines.size() + 1); };
        if (!rest.ends_with('\n')) return where() + ": breaks off";
        rest.remove_suffix(1);
        Line line;
        std::uint64_t free_after = 0;
        const bool first = number(field(rest), line.time_ns) && number(field(rest), line.pid) &&
                           number(field(rest), line.thread);
        const auto found = by_name().find(field(rest));
        if (!first || found == by_name().end()) return where() + ": an unknown operation: " + text;
        line.operation = found->second;
        if (!number(field(rest), line.object) || !number(field(rest), line.bytes) ||
            !number(field(rest), line.charged) || !number(field(rest), line.device) ||
            !number(field(rest), free_after) || !number(field(rest), line.other) || !rest.empty())
            return where() + ": not ten fields: " + text;
        lines.push_back(line);
    }
    return "";
}

}  // namespace fragscope::soak
