#include "analysis/read/torch_snapshot_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/read/pickle.h"
#include "analysis/read/torch_snapshot_values.h"

namespace fragscope::analysis {

namespace {

// What segments and blocks have to be if they are to be those of one allocator.
class Check {
  public:
    explicit Check(SnapshotFile& file) : file_(file) {}

    void segments(const std::vector<SnapshotSegment>& segments) {
        const SnapshotSegment* before = nullptr;
        for (const SnapshotSegment& segment : segments) {
            if (before != nullptr && before->address + before->bytes > segment.address)
                say(overlaps_, fmt::format("The segments at {:#x} and {:#x} overlap.", before->address,
                                           segment.address));
            before = &segment;
            blocks(segment);
        }
        finish("segments overlap", overlaps_);
        finish("segments are not filled by their blocks", gaps_);
    }

  private:
    struct Found {
        std::uint64_t count = 0;
        std::string first;
    };

    static void say(Found& found, std::string what) {
        if (found.count++ == 0) found.first = std::move(what);
    }
    void blocks(const SnapshotSegment& segment) {
        std::uint64_t at = segment.address;
        for (const SnapshotBlock& block : segment.blocks) {
            if (block.address != at) break;
            at += block.bytes;
        }
        if (at != segment.address + segment.bytes)
            say(gaps_, fmt::format("The blocks of the segment at {:#x} come up to {:#x}, and it ends at {:#x}.",
                                   segment.address, at, segment.address + segment.bytes));
    }
    void finish(const char* what, const Found& found) {
        if (found.count == 0) return;
        file_.contradictions.push_back(
            found.count == 1 ? found.first : fmt::format("{} {}. {}", found.count, what, found.first));
    }

    SnapshotFile& file_;
    Found overlaps_;
    Found gaps_;
};

}  // namespace

bool looks_like_snapshot(std::string_view head) {
    if (head.empty()) return false;
    // PROTO, or a container of the protocols before it.
    const bool binary = head[0] == '\x80' && head.size() > 1 && head[1] >= 2 && head[1] <= 5;
    if (binary) return true;
    if (head[0] != '(' && head[0] != '}' && head[0] != ']') return false;
    return head.find("segment_type") != std::string_view::npos || head.find("total_size") != std::string_view::npos ||
           head.find("device_traces") != std::string_view::npos;
}

std::string read_snapshot_file(ImportSource& source, SnapshotFile& file) {
    SnapshotValues values(file);
    PickleReader reader([&](std::span<char> to) { return source.read(to); }, values);
    values.prepare(reader);
    const auto whole = reader.read();
    if (!source.problem().empty()) return source.problem();
    if (!whole) return fmt::format("cannot read {} as a pickle of PyTorch's: {}", source.path(), reader.problem());
    file.pickle_bytes = reader.offset();
    try {
        values.finish(reader, *whole);
    } catch (const PickleMismatch& wrong) {
        return fmt::format("{} is a pickle, but no memory snapshot of PyTorch: {}", source.path(), wrong.what());
    }
    if (reader.more_follows())
        file.contradictions.push_back(
            fmt::format("The file goes on behind the pickle, which ends at offset {}: that was not read.",
                        file.pickle_bytes));
    Check(file).segments(file.segments);
    Check(file).segments(file.host_segments);
    return "";
}

}  // namespace fragscope::analysis
