// The dictionaries of a snapshot's pickle, each made into a record as soon as it is filled: so the pickle's
// reader never holds a trace as dictionaries, and equal call stacks are held once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/read/pickle.h"
#include "analysis/read/torch_snapshot_file.h"

namespace fragscope::analysis {

class SnapshotValues : public PickleClient {
  public:
    explicit SnapshotValues(SnapshotFile& file) : file_(file) {}

    // Before the reader reads: members are told apart by the numbers of their names.
    void prepare(PickleReader& reader);
    PickleValue filled(PickleReader& reader, PickleValue dict) override;
    PickleValue under(PickleReader& reader, PickleValue key, PickleValue value) override;
    // Takes in what the whole pickle is. Throws PickleMismatch.
    void finish(PickleReader& reader, PickleValue whole);

  private:
    enum Tag : std::uint8_t { kFrame = 1, kStack, kEntry, kBlock, kPool, kSegment, kHistory };
    enum class Key : std::uint8_t;
    struct History {
        std::uint64_t requested = 0;
        std::uint32_t stack = 0;
    };

    Key key_of(PickleValue key) const;
    PickleValue make_frame(PickleReader& reader, std::span<const PickleValue> items);
    PickleValue make_entry(PickleReader& reader, std::span<const PickleValue> items);
    PickleValue make_block(PickleReader& reader, std::span<const PickleValue> items);
    PickleValue make_history(PickleReader& reader, std::span<const PickleValue> items);
    PickleValue make_segment(PickleReader& reader, std::span<const PickleValue> items);
    PickleValue stack_of(PickleReader& reader, PickleValue list);
    PickleValue pool_of(PickleReader& reader, PickleValue tuple);
    std::uint32_t text_of(PickleReader& reader, PickleValue string);
    std::uint32_t stack_under(PickleValue value) const;

    std::uint64_t number(const PickleReader& reader, PickleValue key, PickleValue value) const;
    std::uint64_t bytes(const PickleReader& reader, PickleValue key, PickleValue value) const;
    int device(const PickleReader& reader, PickleValue key, PickleValue value) const;
    [[noreturn]] void mismatch(const PickleReader& reader, PickleValue key, PickleValue value,
                               const char* expected) const;

    void take_segments(PickleReader& reader, PickleValue list, const char* name,
                       std::vector<SnapshotSegment>& to);
    void take_entries(PickleReader& reader, PickleValue list, std::vector<SnapshotEntry>& to);
    void take_traces(PickleReader& reader, PickleValue list);
    void take_settings(PickleReader& reader, PickleValue dict);
    void take_annotations(PickleReader& reader, PickleValue list);

    SnapshotFile& file_;
    std::vector<std::uint32_t> texts_;  // by the number of the pickle's string; 0: not yet taken over
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> frames_by_hash_;
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> stacks_by_hash_;
    std::vector<SnapshotEntry> entries_;
    std::vector<SnapshotBlock> blocks_;
    std::vector<SnapshotSegment> segments_;
    std::vector<History> histories_;
};

}  // namespace fragscope::analysis
