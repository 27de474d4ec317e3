#include "analysis/read/torch_snapshot_values.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <limits>

#include "analysis/read/clean_text.h"
#include "analysis/read/line_reader.h"

namespace fragscope::analysis {

using Kind = PickleValue::Kind;

// The members that are read; of the pickle's strings they are the first, so that their numbers are these.
enum class SnapshotValues::Key : std::uint8_t {
    kSegments,
    kDeviceTraces,
    kHostSegments,
    kHostTraces,
    kAllocatorSettings,
    kExternalAnnotations,
    kDevice,
    kAddress,
    kTotalSize,
    kStream,
    kSegmentType,
    kSegmentPoolId,
    kIsExpandable,
    kFrames,
    kBlocks,
    kSize,
    kRequestedSize,
    kState,
    kHistory,
    kRealSize,
    kAddr,
    kAction,
    kDeviceFree,
    kTimeUs,
    kUserMetadata,
    kPoolId,
    kFilename,
    kLine,
    kName,
    kStage,
    kOther,
};

namespace {

constexpr std::array<std::string_view, 30> kKeyNames{
    "segments",     "device_traces",   "host_segments", "host_traces", "allocator_settings", "external_annotations",
    "device",       "address",         "total_size",    "stream",      "segment_type",       "segment_pool_id",
    "is_expandable", "frames",         "blocks",        "size",        "requested_size",     "state",
    "history",      "real_size",       "addr",          "action",      "device_free",        "time_us",
    "user_metadata", "pool_id",        "filename",      "line",        "name",               "stage"};

struct NamedAction {
    std::string_view name;
    SnapshotAction action;
};
constexpr std::array<NamedAction, 11> kActions{{{"alloc", SnapshotAction::kAlloc},
                                                {"free_requested", SnapshotAction::kFreeRequested},
                                                {"free_completed", SnapshotAction::kFreeCompleted},
                                                {"segment_alloc", SnapshotAction::kSegmentAlloc},
                                                {"segment_free", SnapshotAction::kSegmentFree},
                                                {"segment_map", SnapshotAction::kSegmentMap},
                                                {"segment_unmap", SnapshotAction::kSegmentUnmap},
                                                {"snapshot", SnapshotAction::kSnapshot},
                                                {"oom", SnapshotAction::kOom},
                                                {"annotate", SnapshotAction::kAnnotate},
                                                {"user_defined", SnapshotAction::kUserDefined}}};

SnapshotAction action_named(std::string_view name) {
    const auto* const found = std::find_if(kActions.begin(), kActions.end(),
                                           [&](const NamedAction& known) { return known.name == name; });
    return found == kActions.end() ? SnapshotAction::kOther : found->action;
}

// The number of equal content among those that are held, by its hash.
template <typename Equal>
std::uint32_t find_equal(const std::unordered_map<std::uint64_t, std::vector<std::uint32_t>>& by_hash,
                         std::uint64_t hash, std::uint32_t none, Equal&& equal) {
    const auto found = by_hash.find(hash);
    if (found == by_hash.end()) return none;
    for (const std::uint32_t each : found->second)
        if (equal(each)) return each;
    return none;
}

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kNoAddress = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void SnapshotValues::prepare(PickleReader& reader) {
    for (const std::string_view name : kKeyNames) reader.string(name);
}

SnapshotValues::Key SnapshotValues::key_of(PickleValue key) const {
    if (!key.is(Kind::kString) || key.number() >= kKeyNames.size()) return Key::kOther;
    return static_cast<Key>(key.number());
}

void SnapshotValues::mismatch(const PickleReader& reader, PickleValue key, PickleValue value,
                              const char* expected) const {
    throw PickleMismatch(fmt::format("{} is {}: expected {}", quoted_text(reader.text(key)),
                                     value.is(Kind::kString) ? quoted_text(reader.text(value))
                                                             : std::string(kind_in_words(value.kind())),
                                     expected));
}

std::uint64_t SnapshotValues::number(const PickleReader& reader, PickleValue key, PickleValue value) const {
    if (const auto number = reader.unsigned_number(value)) return *number;
    // PyTorch writes some pointers as signed numbers.
    if (const auto number = reader.signed_number(value)) return static_cast<std::uint64_t>(*number);
    mismatch(reader, key, value, "a whole number of at most 64 bits");
}

std::uint64_t SnapshotValues::bytes(const PickleReader& reader, PickleValue key, PickleValue value) const {
    const auto number = reader.unsigned_number(value);
    if (!number) mismatch(reader, key, value, "a whole number");
    if (*number > kMaxSnapshotBytes)
        throw PickleMismatch(fmt::format("{} is {}: expected at most {}", quoted_text(reader.text(key)), *number,
                                         kMaxSnapshotBytes));
    return *number;
}

int SnapshotValues::device(const PickleReader& reader, PickleValue key, PickleValue value) const {
    constexpr std::int64_t kMost = 127;
    const auto number = reader.signed_number(value);
    if (!number || *number < -1 || *number > kMost) mismatch(reader, key, value, "the number of a device, up to 127");
    return static_cast<int>(*number);
}

std::uint32_t SnapshotValues::text_of(PickleReader& reader, PickleValue string) {
    const std::string_view text = reader.text(string);
    if (text.empty()) return 0;
    const std::uint64_t number = string.number();
    if (number >= texts_.size()) texts_.resize(number + 1);
    if (texts_[number] == 0) {
        file_.texts.push_back(clean_text(text));
        texts_[number] = static_cast<std::uint32_t>(file_.texts.size() - 1);
    }
    return texts_[number];
}

std::uint32_t SnapshotValues::stack_under(PickleValue value) const {
    return value.is_made(kStack) ? static_cast<std::uint32_t>(value.made_number()) : 0;
}

// ------------------------------------------------------------------------------------------------ while it is read

PickleValue SnapshotValues::under(PickleReader& reader, PickleValue key, PickleValue value) {
    switch (key_of(key)) {
        case Key::kFrames:
            return stack_of(reader, value);
        case Key::kHistory: {
            // The latest first.
            const auto items = reader.items(value);
            return !items.empty() && items[0].is_made(kHistory) ? items[0] : PickleValue();
        }
        case Key::kSegmentPoolId:
        case Key::kPoolId:
            return pool_of(reader, value);
        default:
            return value;
    }
}

PickleValue SnapshotValues::filled(PickleReader& reader, PickleValue dict) {
    const auto items = reader.items(dict);
    bool name = false, file = false, state = false, size = false, blocks = false, action = false, real = false;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const Key key = key_of(items[i]);
        name = name || key == Key::kName;
        file = file || key == Key::kFilename;
        state = state || key == Key::kState;
        size = size || key == Key::kSize;
        blocks = blocks || key == Key::kBlocks;
        action = action || key == Key::kAction;
        real = real || key == Key::kRealSize;
    }
    if (name && file) return make_frame(reader, items);
    if (action) return make_entry(reader, items);
    if (state && size) return make_block(reader, items);
    if (real) return make_history(reader, items);
    if (blocks) return make_segment(reader, items);
    return dict;
}

PickleValue SnapshotValues::make_frame(PickleReader& reader, std::span<const PickleValue> items) {
    SnapshotFrame frame;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        switch (key_of(items[i])) {
            case Key::kFilename:
                frame.file = text_of(reader, items[i + 1]);
                break;
            case Key::kName:
                frame.name = text_of(reader, items[i + 1]);
                break;
            case Key::kLine:
                frame.line = static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(reader.unsigned_number(items[i + 1]).value_or(0), kNone));
                break;
            default:
                break;
        }
    }
    const std::array<std::uint32_t, 3> content{frame.name, frame.file, frame.line};
    const std::uint64_t hash = XXH3_64bits(content.data(), sizeof content);
    const std::uint32_t known = find_equal(frames_by_hash_, hash, kNone,
                                           [&](std::uint32_t each) { return file_.frames[each] == frame; });
    if (known != kNone) return PickleValue::made(kFrame, known);
    file_.frames.push_back(frame);
    frames_by_hash_[hash].push_back(static_cast<std::uint32_t>(file_.frames.size() - 1));
    return PickleValue::made(kFrame, file_.frames.size() - 1);
}

PickleValue SnapshotValues::stack_of(PickleReader& reader, PickleValue list) {
    if (!list.is(Kind::kList)) return list;
    std::vector<std::uint32_t> frames;
    for (const PickleValue item : reader.items(list))
        if (item.is_made(kFrame)) frames.push_back(static_cast<std::uint32_t>(item.made_number()));
    if (frames.empty()) return PickleValue::made(kStack, 0);
    const std::uint64_t hash = XXH3_64bits(frames.data(), frames.size() * sizeof frames[0]);
    const std::uint32_t known = find_equal(stacks_by_hash_, hash, kNone,
                                           [&](std::uint32_t each) { return file_.stacks[each] == frames; });
    if (known != kNone) return PickleValue::made(kStack, known);
    file_.stacks.push_back(std::move(frames));
    stacks_by_hash_[hash].push_back(static_cast<std::uint32_t>(file_.stacks.size() - 1));
    return PickleValue::made(kStack, file_.stacks.size() - 1);
}

PickleValue SnapshotValues::pool_of(PickleReader& reader, PickleValue tuple) {
    const auto items = reader.items(tuple);
    if (items.size() != 2) return tuple;
    const auto first = reader.unsigned_number(items[0]);
    const auto second = reader.unsigned_number(items[1]);
    if (!first || !second) return tuple;
    const std::pair<std::uint64_t, std::uint64_t> pool{*first, *second};
    const auto known = std::find(file_.pools.begin(), file_.pools.end(), pool);
    if (known == file_.pools.end()) {
        constexpr std::size_t kMostPools = 65535;
        if (file_.pools.size() > kMostPools) throw PickleMismatch("more than 65,535 private pools: expected fewer");
        file_.pools.push_back(pool);
        return PickleValue::made(kPool, file_.pools.size() - 1);
    }
    return PickleValue::made(kPool, static_cast<std::uint64_t>(known - file_.pools.begin()));
}

PickleValue SnapshotValues::make_history(PickleReader& reader, std::span<const PickleValue> items) {
    History history;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const Key key = key_of(items[i]);
        if (key == Key::kRealSize) history.requested = bytes(reader, items[i], items[i + 1]);
        if (key == Key::kFrames) history.stack = stack_under(items[i + 1]);
    }
    histories_.push_back(history);
    return PickleValue::made(kHistory, histories_.size() - 1);
}

PickleValue SnapshotValues::make_block(PickleReader& reader, std::span<const PickleValue> items) {
    SnapshotBlock block;
    block.address = kNoAddress;
    std::optional<History> history;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const PickleValue key = items[i];
        const PickleValue value = items[i + 1];
        switch (key_of(key)) {
            case Key::kAddress:
                block.address = bytes(reader, key, value);
                break;
            case Key::kSize:
                block.bytes = bytes(reader, key, value);
                break;
            case Key::kRequestedSize:
                block.requested = bytes(reader, key, value);
                break;
            case Key::kFrames:
                block.stack = stack_under(value);
                break;
            case Key::kHistory:
                if (value.is_made(kHistory)) history = histories_[value.made_number()];
                break;
            case Key::kState: {
                const std::string_view state = reader.text(value);
                if (state == "active_allocated") {
                    block.state = SnapshotBlockState::kAllocated;
                } else if (state == "active_pending_free" || state == "active_awaiting_free") {
                    block.state = SnapshotBlockState::kPendingFree;
                } else if (state != "inactive") {
                    mismatch(reader, key, value, "active_allocated, active_pending_free or inactive");
                }
                break;
            }
            default:
                break;
        }
    }
    if (history) {
        if (block.stack == 0) block.stack = history->stack;
        if (!block.requested) block.requested = history->requested;
    }
    blocks_.push_back(block);
    return PickleValue::made(kBlock, blocks_.size() - 1);
}

PickleValue SnapshotValues::make_entry(PickleReader& reader, std::span<const PickleValue> items) {
    SnapshotEntry entry;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const PickleValue key = items[i];
        const PickleValue value = items[i + 1];
        switch (key_of(key)) {
            case Key::kAction: {
                if (!value.is(Kind::kString)) mismatch(reader, key, value, "the name of an action");
                entry.action = action_named(reader.text(value));
                if (entry.action != SnapshotAction::kOther) break;
                entry.text = text_of(reader, value);
                ++file_.other_actions[clean_text(reader.text(value))];
                break;
            }
            case Key::kAddr:
            case Key::kDeviceFree:
                entry.address = number(reader, key, value);
                break;
            case Key::kSize:
                entry.bytes = bytes(reader, key, value);
                break;
            case Key::kStream:
                entry.stream = number(reader, key, value);
                break;
            case Key::kTimeUs:
                entry.time_us = bytes(reader, key, value);
                break;
            case Key::kFrames:
                entry.stack = stack_under(value);
                break;
            case Key::kUserMetadata:
                if (entry.action != SnapshotAction::kOther) entry.text = text_of(reader, value);
                break;
            case Key::kPoolId:
                if (value.is_made(kPool)) entry.pool = static_cast<std::uint32_t>(value.made_number());
                break;
            default:
                break;
        }
    }
    entries_.push_back(entry);
    return PickleValue::made(kEntry, entries_.size() - 1);
}

PickleValue SnapshotValues::make_segment(PickleReader& reader, std::span<const PickleValue> items) {
    SnapshotSegment segment;
    bool device_told = false, pool_told = false, address_told = false, bytes_told = false;
    std::span<const PickleValue> blocks;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const PickleValue key = items[i];
        const PickleValue value = items[i + 1];
        switch (key_of(key)) {
            case Key::kDevice:
                segment.device = device(reader, key, value);
                device_told = true;
                break;
            case Key::kAddress:
                segment.address = bytes(reader, key, value);
                address_told = true;
                break;
            case Key::kTotalSize:
                segment.bytes = bytes(reader, key, value);
                bytes_told = true;
                break;
            case Key::kStream:
                segment.stream = number(reader, key, value);
                break;
            case Key::kSegmentType:
                if (reader.text(value) != "large" && reader.text(value) != "small")
                    mismatch(reader, key, value, "large or small");
                segment.large = reader.text(value) == "large";
                break;
            case Key::kSegmentPoolId:
                if (!value.is_made(kPool)) mismatch(reader, key, value, "two numbers");
                segment.pool = static_cast<std::uint32_t>(value.made_number());
                pool_told = true;
                break;
            case Key::kIsExpandable:
                segment.expandable = reader.unsigned_number(value).value_or(0) != 0;
                break;
            case Key::kFrames:
                segment.stack = stack_under(value);
                break;
            case Key::kBlocks:
                if (!value.is(Kind::kList)) mismatch(reader, key, value, "a list of blocks");
                blocks = reader.items(value);
                break;
            default:
                break;
        }
    }
    if (!address_told || !bytes_told)
        throw PickleMismatch(fmt::format("a segment without its '{}': expected one",
                                         address_told ? "total_size" : "address"));
    file_.devices_told = file_.devices_told && device_told;
    file_.pools_told = file_.pools_told && pool_told;
    segment.blocks.reserve(blocks.size());
    std::uint64_t at = segment.address;
    for (const PickleValue value : blocks) {
        if (!value.is_made(kBlock))
            throw PickleMismatch(fmt::format("a segment's block is {}: expected a dictionary with its size and state",
                                             kind_in_words(value.kind())));
        SnapshotBlock block = blocks_[value.made_number()];
        // Without addresses they lie side by side from the segment's beginning on.
        if (block.address == kNoAddress) block.address = at;
        at = block.address + block.bytes;
        if (block.state != SnapshotBlockState::kInactive && !block.requested) file_.requested_told = false;
        segment.blocks.push_back(block);
    }
    segments_.push_back(std::move(segment));
    return PickleValue::made(kSegment, segments_.size() - 1);
}

// ----------------------------------------------------------------------------------------------------- at the end

void SnapshotValues::take_segments(PickleReader& reader, PickleValue list, const char* name,
                                   std::vector<SnapshotSegment>& to) {
    if (!list.is(Kind::kList))
        throw PickleMismatch(fmt::format("'{}' is {}: expected a list", name, kind_in_words(list.kind())));
    std::vector<bool> taken(segments_.size());
    for (const PickleValue value : reader.items(list)) {
        if (!value.is_made(kSegment))
            throw PickleMismatch(
                fmt::format("'{}' holds {}: expected segments, dictionaries with their address, total_size and blocks",
                            name, kind_in_words(value.kind())));
        if (taken[value.made_number()]) throw PickleMismatch(fmt::format("'{}' holds one segment twice", name));
        taken[value.made_number()] = true;
        to.push_back(std::move(segments_[value.made_number()]));
    }
    std::stable_sort(to.begin(), to.end(), [](const SnapshotSegment& a, const SnapshotSegment& b) {
        return a.address < b.address;
    });
}

void SnapshotValues::take_entries(PickleReader& reader, PickleValue list, std::vector<SnapshotEntry>& to) {
    if (!list.is(Kind::kList))
        throw PickleMismatch(
            fmt::format("a trace is {}: expected a list of entries", kind_in_words(list.kind())));
    const auto items = reader.items(list);
    // Most files have one list, of all entries in their order.
    bool all = items.size() == entries_.size();
    for (std::size_t i = 0; all && i < items.size(); ++i) all = items[i] == PickleValue::made(kEntry, i);
    if (all) {
        to = std::move(entries_);
        for (const SnapshotEntry& each : to) file_.times_told = file_.times_told && each.time_us != 0;
        return;
    }
    to.reserve(items.size());
    for (const PickleValue value : items) {
        if (!value.is_made(kEntry))
            throw PickleMismatch(fmt::format("a trace holds {}: expected entries, dictionaries with their action",
                                             kind_in_words(value.kind())));
        if (value.made_number() >= entries_.size())
            throw PickleMismatch("two traces hold the same entry: expected each in one");
        to.push_back(entries_[value.made_number()]);
        file_.times_told = file_.times_told && to.back().time_us != 0;
    }
}

void SnapshotValues::take_traces(PickleReader& reader, PickleValue list) {
    if (!list.is(Kind::kList))
        throw PickleMismatch(
            fmt::format("'device_traces' is {}: expected a list", kind_in_words(list.kind())));
    constexpr std::size_t kMostDevices = 128;
    const auto traces = reader.items(list);
    if (traces.size() > kMostDevices)
        throw PickleMismatch(fmt::format("'device_traces' holds {} lists: expected one for each device, {} at most",
                                         traces.size(), kMostDevices));
    file_.traces_told = true;
    for (const PickleValue trace : traces) take_entries(reader, trace, file_.traces.emplace_back());
}

void SnapshotValues::take_settings(PickleReader& reader, PickleValue dict) {
    const auto items = reader.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        if (!items[i].is(Kind::kString)) continue;
        std::string said;
        const PickleValue value = items[i + 1];
        if (value.is(Kind::kString)) {
            said = clean_text(reader.text(value));
        } else if (value.is(Kind::kBool)) {
            said = value.number() != 0 ? "true" : "false";
        } else if (const auto number = reader.signed_number(value)) {
            said = std::to_string(*number);
        } else if (const auto real = reader.real_number(value)) {
            said = fmt::format("{}", *real);
        } else if (value.is(Kind::kDict)) {
            // By size classes: what matters is whether any is set.
            const auto classes = reader.items(value);
            said = "0";
            for (std::size_t c = 1; c < classes.size(); c += 2)
                if (reader.unsigned_number(classes[c]).value_or(0) > 1) said = "some";
        } else {
            continue;
        }
        file_.settings.emplace_back(clean_text(reader.text(items[i])), said);
    }
}

void SnapshotValues::take_annotations(PickleReader& reader, PickleValue list) {
    for (const PickleValue each : reader.items(list)) {
        SnapshotAnnotation annotation;
        const auto items = each.is(Kind::kDict) ? reader.items(each) : std::span<const PickleValue>();
        for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
            switch (key_of(items[i])) {
                case Key::kName:
                    annotation.name = text_of(reader, items[i + 1]);
                    break;
                case Key::kStage:
                    annotation.stage = text_of(reader, items[i + 1]);
                    break;
                case Key::kDevice:
                    annotation.device = device(reader, items[i], items[i + 1]);
                    break;
                case Key::kTimeUs:
                    annotation.time_us = bytes(reader, items[i], items[i + 1]);
                    break;
                default:
                    break;
            }
        }
        if (annotation.name != 0) file_.annotations.push_back(annotation);
    }
}

void SnapshotValues::finish(PickleReader& reader, PickleValue whole) {
    if (whole.is(Kind::kList)) return take_segments(reader, whole, "the list", file_.segments);
    if (!whole.is(Kind::kDict))
        throw PickleMismatch(
            fmt::format("the pickle is {}: expected a dictionary with 'segments', or the list of them",
                        kind_in_words(whole.kind())));
    const auto items = reader.items(whole);
    bool segments = false;
    std::string names;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const PickleValue value = items[i + 1];
        switch (key_of(items[i])) {
            case Key::kSegments:
                take_segments(reader, value, "segments", file_.segments);
                segments = true;
                break;
            case Key::kHostSegments:
                take_segments(reader, value, "host_segments", file_.host_segments);
                break;
            case Key::kDeviceTraces:
                take_traces(reader, value);
                break;
            case Key::kHostTraces:
                take_entries(reader, value, file_.host_trace);
                break;
            case Key::kAllocatorSettings:
                take_settings(reader, value);
                break;
            case Key::kExternalAnnotations:
                take_annotations(reader, value);
                break;
            default:
                if (names.size() < 100)
                    names += fmt::format("{}{}", names.empty() ? "" : ", ", quoted_text(reader.text(items[i])));
                break;
        }
    }
    if (!segments)
        throw PickleMismatch(fmt::format("the dictionary has no 'segments'{}: expected a memory snapshot of PyTorch",
                                         names.empty() ? "" : ", but " + names));
}

}  // namespace fragscope::analysis
