#include "tests/unit/import/imported.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace fragscope::test {

analysis::ReadResult import_text(std::string_view text, const std::string& kind, const std::string& name) {
    char folder[] = "/tmp/fragscope-test-XXXXXX";
    if (::mkdtemp(folder) == nullptr) throw std::runtime_error("no temporary folder");
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::ofstream(path, std::ios::binary) << text;
    analysis::ReadResult result = analysis::import_file(path.string(), kind);
    std::filesystem::remove_all(folder);
    return result;
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
