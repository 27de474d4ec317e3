// Reads JAX's device memory profile: a profile of pprof's whose samples are the arrays and compiled programs
// that the client holds at one moment. Each sample has two values, "allocations" (a count) and "space" (bytes
// of all of them together), the Python call stack that made them, and labels: "kind" is "buffer" or
// "executable", and of a buffer "device" is the device in XLA's words. Of an executable the size is that of
// its code; where XLA does not know it, it is written as -1 each.
//
// There are no addresses, no times of allocation and no calls, so nothing of it becomes an event.
#include "analysis/read/jax_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "analysis/read/clean_text.h"
#include "analysis/read/pprof_profile.h"
#include "proto/chunk.h"

namespace fragscope::analysis {

namespace {

class Profile {
  public:
    Profile(const PprofProfile& profile, Trace& trace) : profile_(profile), trace_(trace) {}

    // Empty: read; else what is wrong.
    std::string read() {
        const auto count = type_index("allocations");
        const auto space = type_index("space");
        if (!count || !space)
            return fmt::format("its samples count {}, expected \"allocations\" and \"space\", as JAX's do",
                               types_in_words());
        trace_.processes.emplace_back().set_index(0);
        trace_.losses.emplace_back().set_process(0);
        trace_.events.emplace_back();
        trace_.names.emplace_back();
        for (std::size_t i = 0; i < profile_.samples().size(); ++i)
            if (std::string wrong = take(i, *count, *space); !wrong.empty()) return wrong;
        for (auto& [key, held] : held_) *trace_.processes[0].add_held() = std::move(held);
        finish();
        return "";
    }

  private:
    using Key = std::tuple<std::string, std::string, std::uint32_t>;  // what, device, stack

    std::optional<std::size_t> type_index(std::string_view name) const {
        for (std::size_t i = 0; i < profile_.types().size(); ++i)
            if (profile_.types()[i].type == name) return i;
        return std::nullopt;
    }

    std::string types_in_words() const {
        std::string out;
        for (const PprofProfile::ValueType& type : profile_.types())
            out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", clean_text(type.type, 40));
        return out;
    }

    std::string take(std::size_t number, std::size_t count_at, std::size_t space_at) {
        const PprofProfile::Sample& sample = profile_.samples()[number];
        const std::int64_t count = profile_.value(sample, count_at);
        const std::int64_t space = profile_.value(sample, space_at);
        std::string what = "allocation";
        std::string device;
        for (std::size_t i = 0; i < sample.labels.count; ++i) {
            const PprofProfile::Label& label = profile_.label(sample, i);
            if (label.key == "kind") what = clean_text(label.text, 100);
            if (label.key == "device") device = clean_text(label.text, 100);
        }
        if (count < 0)
            return fmt::format(
                "sample {} counts {} allocations: it is the difference of two profiles, expected one profile",
                number + 1, count);
        if (count == 0 && space == 0) return "";
        constexpr std::int64_t kMost = std::int64_t{1} << 52;  // no machine has more
        if (count == 0 || space > kMost || (space < 0 && what != "executable")) {
            if (bad_++ == 0)
                first_bad_ = fmt::format("sample {}: {} {}s of {} bytes, expected a size that they can have",
                                         number + 1, count, what, space);
            return "";
        }
        const std::uint32_t stack = stack_of(sample);
        trace::Held& held = held_[{what, device, stack}];
        if (held_.size() > kMaxJaxPlaces)
            return fmt::format("more than {} kinds, devices and call stacks differ, expected fewer",
                               kMaxJaxPlaces);
        held.set_what(what);
        held.set_device(device);
        held.set_stack(stack);
        held.set_count(held.count() + static_cast<std::uint64_t>(count));
        if (space < 0)
            held.set_sizes_not_told(held.sizes_not_told() + static_cast<std::uint64_t>(count));
        else
            held.set_bytes(held.bytes() + static_cast<std::uint64_t>(space));
        return "";
    }

    // By the places that it goes through.
    std::uint32_t stack_of(const PprofProfile::Sample& sample) {
        if (sample.places.count == 0) return 0;
        std::vector<std::uint64_t> frames;
        bool cut = false;
        for (std::size_t i = 0; i < sample.places.count && !cut; ++i) {
            std::uint64_t address = 0;
            const std::vector<PprofProfile::Line> lines = profile_.lines(profile_.place(sample, i), address);
            if (lines.empty()) frames.push_back(wire::address_frame(address));
            for (const PprofProfile::Line& line : lines) frames.push_back(frame_of(line));
            cut = frames.size() > wire::kMaxFrames;
        }
        if (cut) frames.resize(wire::kMaxFrames);
        const auto number = static_cast<std::uint32_t>(stacks_.size() + 1);
        const auto [found, added] = stacks_.try_emplace(std::move(frames), number);
        if (added) {
            trace::Stack& stack = trace_.names[0].stacks[number];
            stack.set_id(number);
            stack.set_cut(cut);
            for (const std::uint64_t frame : found->first) stack.add_frames(frame);
        }
        return found->second;
    }

    std::uint64_t frame_of(const PprofProfile::Line& line) {
        constexpr std::size_t kMostBytes = 1024;
        std::string text = clean_text(line.function, kMostBytes) + "\n" + clean_text(line.file, kMostBytes);
        const auto number = static_cast<std::uint32_t>(texts_.size() + 1);
        if (number + 1 >= trace::kMaxTexts && !texts_.contains(text)) return wire::address_frame(0);
        const auto [found, added] = texts_.try_emplace(std::move(text), number);
        if (added) trace_.names[0].texts[number] = found->first;
        const auto at = static_cast<std::uint32_t>(std::clamp<std::int64_t>(line.line, 0, 0xffffff));
        return wire::python_frame(found->second, at);
    }

    void finish() {
        trace::Loss& loss = trace_.losses[0];
        loss.set_acquisitions(0);
        loss.set_releases(0);
        loss.set_others(0);
        loss.set_records_refused(bad_);
        if (profile_.time_ns() > 0)
            trace_.session.set_start_unix_ns(static_cast<std::uint64_t>(profile_.time_ns()));
        trace_.end.set_reason("imported");
        trace_.end.set_events(0);
        trace_.end.set_processes(1);
        if (bad_ != 0)
            trace_.end.add_warnings(
                fmt::format("{} of the profile's samples make no sense. The first is {}.", bad_, first_bad_));
        if (profile_.samples().empty())
            trace_.end.add_warnings(
                "The profile holds no samples: nothing was alive, or nothing was counted.");
        trace::Provenance& provenance = *trace_.session.mutable_provenance();
        for (const char* text : {"Everything before and after the one moment that the profile was taken at.",
                                 "Addresses: how what was alive lay in memory, and what lay between.",
                                 "Whether any request failed.",
                                 "What XLA's allocator held beyond it: memory that it had taken for its "
                                 "pool, and temporary memory of programs "
                                 "that were running.",
                                 "The capacity of the devices, and what was free on them.",
                                 "The program, its process and when it was."})
            provenance.add_unknown(text);
    }

    const PprofProfile& profile_;
    Trace& trace_;
    std::map<Key, trace::Held> held_;
    std::map<std::vector<std::uint64_t>, std::uint32_t> stacks_;
    std::map<std::string, std::uint32_t> texts_;
    std::uint64_t bad_ = 0;
    std::string first_bad_;
};

std::string read(ImportSource& source, Trace& trace) {
    std::string bytes;
    std::vector<char> buffer(std::size_t{1} << 16);
    while (const std::size_t more = source.read(buffer)) {
        if (bytes.size() + more > kMaxJaxProfileBytes)
            return fmt::format(
                "cannot read {} as JAX's memory profile: it has more than {} bytes, expected fewer",
                source.path(), kMaxJaxProfileBytes);
        bytes.append(buffer.data(), more);
    }
    if (!source.problem().empty()) return source.problem();
    PprofProfile profile;
    std::string wrong = profile.read(bytes);
    if (wrong.empty()) wrong = Profile(profile, trace).read();
    return wrong.empty() ? ""
                         : fmt::format("cannot read {} as JAX's memory profile: {}", source.path(), wrong);
}

}  // namespace

const Importer kJaxProfile{"jax-profile", "JAX's device memory profile", is_pprof, read};

}  // namespace fragscope::analysis
