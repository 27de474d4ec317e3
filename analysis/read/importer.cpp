#include "analysis/read/importer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "analysis/read/inflate.h"
#include "analysis/read/ingero_sqlite.h"
#include "analysis/read/jax_profile.h"
#include "analysis/read/nsight_sqlite.h"
#include "analysis/read/rmm_log.h"
#include "analysis/read/torch_snapshot.h"

namespace fragscope::analysis {

namespace {

constexpr std::array kImporters{&kRmmLog, &kIngeroSqlite, &kNsightSqlite, &kJaxProfile,
                                &kTorchSnapshot};

std::string kinds_in_words() {
    std::string out;
    for (const Importer* importer : kImporters)
        out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", importer->kind, importer->in_words);
    return out;
}

const Importer* recognizing(std::string_view head) {
    const auto found = std::find_if(kImporters.begin(), kImporters.end(),
                                    [&](const Importer* importer) { return importer->recognizes(head); });
    return found == kImporters.end() ? nullptr : *found;
}

// Lines and offsets of what an importer says are those of the content.
void say_decompressed(const ImportSource& source, ReadResult& result) {
    constexpr const char* kSaid = "the file is gzipped, and places in it are those of its decompressed data";
    if (!result.error.empty()) {
        if (result.error != source.problem()) result.error += fmt::format(" ({})", kSaid);
    } else if (!result.trace->end.warnings().empty()) {
        result.trace->end.add_warnings(fmt::format("Where lines or offsets are named: {}.", kSaid));
    }
}

ReadResult import_with(const Importer& importer, ImportSource& source) {
    ReadResult result;
    try {
        Trace& trace = result.trace.emplace();
        trace.path = source.path();
        trace::Provenance& provenance = *trace.session.mutable_provenance();
        provenance.set_kind(importer.kind);
        provenance.set_file(source.path());
        result.error = importer.read(source, trace);
    } catch (const std::bad_alloc&) {
        result.error = fmt::format("cannot read {}: its events do not fit into memory", source.path());
    }
    if (source.gzipped()) say_decompressed(source, result);
    if (!result.error.empty()) result.trace.reset();
    return result;
}

}  // namespace

ImportSource::ImportSource() = default;

ImportSource::~ImportSource() {
    if (fd_ >= 0) ::close(fd_);
}

std::string ImportSource::open(const std::string& path) {
    path_ = path;
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return fmt::format("cannot open {}: {}", path, std::strerror(errno));
    head_ = first_bytes();
    if (is_gzip(head())) {
        inflater_ = std::make_unique<Inflater>(
            std::move(head_), [this](std::span<char> to) { return read_file(to); }, InflateLimits{});
        head_ = first_bytes();
    }
    return problem_;
}

std::vector<char> ImportSource::first_bytes() {
    std::vector<char> out(kHeadBytes);
    std::size_t bytes = 0;
    while (bytes < kHeadBytes) {
        const std::size_t more = read_content(std::span(out).subspan(bytes));
        if (more == 0) break;
        bytes += more;
    }
    out.resize(bytes);
    return out;
}

std::size_t ImportSource::read_file(std::span<char> to) {
    ssize_t bytes = 0;
    do {
        bytes = ::read(fd_, to.data(), to.size());
    } while (bytes < 0 && errno == EINTR);
    if (bytes >= 0) return static_cast<std::size_t>(bytes);
    problem_ = fmt::format("cannot read {}: {}", path_, std::strerror(errno));
    return 0;
}

std::size_t ImportSource::read_content(std::span<char> to) {
    if (inflater_ == nullptr) return read_file(to);
    const std::size_t bytes = inflater_->read(to);
    if (problem_.empty() && !inflater_->problem().empty())
        problem_ = fmt::format("cannot read {}: {}", path_, inflater_->problem());
    return bytes;
}

std::size_t ImportSource::read(std::span<char> to) {
    if (taken_of_head_ == head_.size()) return read_content(to);
    const std::size_t bytes = std::min(to.size(), head_.size() - taken_of_head_);
    std::copy_n(head_.data() + taken_of_head_, bytes, to.data());
    taken_of_head_ += bytes;
    return bytes;
}

std::span<const Importer* const> importers() { return kImporters; }

ReadResult import_file(const std::string& path, const std::string& kind) {
    ImportSource source;
    if (std::string error = source.open(path); !error.empty()) return {std::nullopt, std::move(error)};
    if (kind.empty()) {
        if (const Importer* importer = recognizing(source.head())) return import_with(*importer, source);
        return {std::nullopt, fmt::format("{}{} is of no kind that can be imported; these can: {}",
                                          source.gzipped() ? "decompressed, " : "", path, kinds_in_words())};
    }
    for (const Importer* importer : kImporters)
        if (kind == importer->kind) return import_with(*importer, source);
    return {std::nullopt,
            fmt::format("there is no kind '{}'; these can be imported: {}", kind, kinds_in_words())};
}

ReadResult read_trace_or_import(const std::string& path) {
    ImportSource source;
    std::string error = source.open(path);
    if (error.empty()) {
        if (const Importer* importer = recognizing(source.head())) return import_with(*importer, source);
    }
    if (!source.gzipped()) return read_trace(path);
    if (error.empty())
        error =
            fmt::format("{} is gzipped, and what it holds is of no kind that can be imported; these can: {}",
                        path, kinds_in_words());
    return {std::nullopt, std::move(error)};
}

}  // namespace fragscope::analysis
