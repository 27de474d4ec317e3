// Finds the messages of all kinds in a text: one pass, and no more is held of it than the pieces of messages
// that are not complete yet and the failures found.
#include "analysis/read/message_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <vector>

#include "analysis/read/bfc_dump.h"
#include "analysis/read/message_cuda.h"
#include "analysis/read/message_reader.h"
#include "analysis/read/message_rows.h"
#include "analysis/read/message_text.h"
#include "analysis/read/message_torch.h"
#include "analysis/read/message_torch_summary.h"
#include "analysis/read/text_lines.h"

namespace fragscope::analysis {

namespace {

constexpr std::array<const MessageKind*, 5> kKinds = {&kTorchMessage, &kTorchSummary, &kBfcDump, &kAllocatorMessage, &kCudaError};

// What stands so near to each other may be of one failure.
constexpr std::uint64_t kNearLines = 60;

using Found = FoundStates::Found;

bool near(const Found& a, const Found& b) {
    return a.state.line <= b.last_line + kNearLines && b.state.line <= a.last_line + kNearLines;
}

// Whether `less` says of the failure of `more` again what is said there better.
bool is_echo(const Found& less, const Found& more) {
    if (&less == &more || !near(less, more)) return false;
    if (less.says == FoundStates::Says::kError) {
        // Of several in a row the first stands for all.
        return more.says != FoundStates::Says::kError || more.state.line < less.state.line;
    }
    if (less.says == FoundStates::Says::kState) return false;
    const Interval& a = less.state.scenario.request.bytes;
    const Interval& b = more.state.scenario.request.bytes;
    if (!both(a, b)) return false;
    if (more.says == FoundStates::Says::kState) return true;
    if (less.wording == more.wording) return false;
    // Of two that say as much the exact one, or the first.
    return more.says == FoundStates::Says::kRequest &&
           (more.state.scenario.request.bytes.exact() != a.exact() ? !a.exact() : more.state.line < less.state.line);
}

std::vector<Found> without_echoes(std::deque<Found>& all) {
    std::stable_sort(all.begin(), all.end(),
                     [](const Found& a, const Found& b) { return a.state.line < b.state.line; });
    std::vector<bool> echo(all.size(), false);
    for (std::size_t i = 0; i < all.size(); ++i) {
        // They are in order of their lines, and no message is longer than a few hundred.
        constexpr std::size_t kNeighbours = 64;
        const std::size_t from = i - std::min(i, kNeighbours);
        const std::size_t to = std::min(all.size(), i + kNeighbours);
        for (std::size_t j = from; j < to && !echo[i]; ++j) echo[i] = !echo[j] && is_echo(all[i], all[j]);
    }
    std::vector<Found> out;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (!echo[i]) out.push_back(std::move(all[i]));
    return out;
}

std::string looked_for() {
    std::string out;
    for (const MessageKind* kind : kKinds)
        out += fmt::format("{}{} ({})", out.empty() ? "" : "; ", kind->in_words, kind->looked_for);
    return out;
}

std::string read(ImportSource& source, ImportedStates& states) {
    TextLines lines(source);
    FoundStates found;
    std::vector<std::unique_ptr<MessageReader>> readers;
    for (const MessageKind* kind : kKinds) readers.push_back(kind->reader(found));
    while (lines.next()) {
        for (const auto& reader : readers) reader->line({lines.text(), lines.number(), lines.begins()});
    }
    if (!source.problem().empty()) return source.problem();
    for (const auto& reader : readers) reader->end();
    for (Found& each : without_echoes(found.all())) states.states.push_back(std::move(each.state));
    states.before_them = found.not_kept();
    if (states.states.empty()) {
        return fmt::format("{} is not a Fragscope trace, and its {} line{} tell of no failed request for GPU memory. "
                           "Looked for: {}",
                           source.path(), lines.lines(), lines.lines() == 1 ? "" : "s", looked_for());
    }
    return "";
}

bool recognizes(std::string_view head) { return !head.empty() && looks_like_text(head); }

}  // namespace

void FoundStates::add(Found found) {
    found_.push_back(std::move(found));
    if (found_.size() <= kMost) return;
    found_.pop_front();
    ++not_kept_;
}

constinit const Importer kMessages{
    "message", "an error message, or a log or an allocator's dump with such messages in it", recognizes, nullptr,
    read};

}  // namespace fragscope::analysis
