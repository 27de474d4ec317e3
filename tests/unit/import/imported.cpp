#include "tests/unit/import/imported.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace fragscope::test {

namespace {

template <typename Read>
auto with_file(std::string_view text, const std::string& name, Read read) {
    char folder[] = "/tmp/fragscope-test-XXXXXX";
    if (::mkdtemp(folder) == nullptr) throw std::runtime_error("no temporary folder");
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::ofstream(path, std::ios::binary) << text;
    auto result = read(path.string());
    std::filesystem::remove_all(folder);
    return result;
}

}  // namespace

analysis::ReadResult import_text(std::string_view text, const std::string& kind, const std::string& name) {
    return with_file(text, name, [&](const std::string& path) { return analysis::import_file(path, kind); });
}

analysis::InputResult read_text(std::string_view text, const std::string& kind, const std::string& name) {
    return with_file(text, name, [&](const std::string& path) { return analysis::read_input(path, kind); });
}

std::string gzipped(std::string_view text) {
    z_stream stream{};
    if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::runtime_error("zlib does not start");
    std::string out(deflateBound(&stream, text.size()) + 32, '\0');
    std::string in(text);
    stream.next_in = reinterpret_cast<Bytef*>(in.data());
    stream.avail_in = static_cast<uInt>(in.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    const int result = deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    if (result != Z_STREAM_END) throw std::runtime_error("zlib does not end");
    return out;
}

std::string events_in_words(const analysis::Trace& trace) {
    std::string out;
    for (const analysis::Event& event : trace.events.at(0)) {
        switch (event.kind) {
            case wire::Kind::kBlockAcquired:
                out += fmt::format("allocate {:x} {}", event.address.value, event.bytes.value);
                break;
            case wire::Kind::kBlockReleased:
                out += fmt::format("free {:x} {}", event.address.value, event.bytes.value);
                break;
            case wire::Kind::kBlockRefused:
                out += fmt::format("refused {}", event.bytes.value);
                break;
            case wire::Kind::kBlockStream:
                out += fmt::format("stream {:x}", event.object.value);
                break;
            default:
                throw std::runtime_error("an event of a kind that no log of RMM holds");
        }
        out += fmt::format(" @{} +{}\n", event.thread, event.start.value - trace.session.start_ns());
    }
    return out;
}

std::string warnings_of(const analysis::Trace& trace) {
    std::string out;
    for (const std::string& warning : trace.end.warnings()) out += warning + "\n";
    return out;
}

}  // namespace fragscope::test
