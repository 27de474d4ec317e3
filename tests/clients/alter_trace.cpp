// Spoils a trace on purpose, so that a comparison can be seen to find it.
//
// Usage: alter_trace IN OUT drop SEQUENCE          leaves the records with this number out
//        alter_trace IN OUT shift SEQUENCE BYTES   adds to their address
//        alter_trace IN OUT resize SEQUENCE BYTES  adds to their bytes
// Of the first process. The file stays a correct one: nothing but that record is another.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "analysis/read/chunk_reader.h"
#include "tests/unit/trace/trace_file.h"

namespace {

using fragscope::analysis::ChunkReader;
using fragscope::trace::EventBatch;

struct Change {
    std::string what;
    std::uint64_t sequence = 0;
    std::int64_t bytes = 0;
};

template <typename Column>
void erase(Column& column, int at) {
    if (!column.empty()) column.erase(column.begin() + at);
}

// In a column of differences the next entry takes over what the erased one added.
template <typename Column>
void erase_difference(Column& column, int at) {
    if (column.empty()) return;
    if (at + 1 < column.size()) column.Set(at + 1, column.Get(at + 1) + column.Get(at));
    erase(column, at);
}

template <typename Column>
void add(Column& column, int count, int at, std::int64_t amount) {
    if (column.empty()) column.Resize(count, 0);
    column.Set(at, column.Get(at) + amount);
    if (at + 1 < count) column.Set(at + 1, column.Get(at + 1) - amount);
}

void drop(EventBatch& batch, int at) {
    for (auto* column : {batch.mutable_sequence(), batch.mutable_start_ns(), batch.mutable_address(),
                         batch.mutable_bytes(), batch.mutable_object(), batch.mutable_extra()})
        erase_difference(*column, at);
    erase(*batch.mutable_duration_ns(), at);
    for (auto* column :
         {batch.mutable_kind(), batch.mutable_function(), batch.mutable_thread(), batch.mutable_result(),
          batch.mutable_device(), batch.mutable_flags(), batch.mutable_stack()})
        erase(*column, at);
    batch.set_count(batch.count() - 1);
}

// How many records it changed.
int apply(EventBatch& batch, const Change& change) {
    int changed = 0;
    std::int64_t sequence = 0;
    for (int i = 0; i < batch.sequence_size(); ++i) {
        sequence += batch.sequence(i);
        if (static_cast<std::uint64_t>(sequence) != change.sequence) continue;
        ++changed;
        const int count = static_cast<int>(batch.count());
        if (change.what == "shift") add(*batch.mutable_address(), count, i, change.bytes);
        if (change.what == "resize") add(*batch.mutable_bytes(), count, i, change.bytes);
        if (change.what != "drop") continue;
        sequence -= batch.sequence(i);  // which the next entry takes over
        drop(batch, i--);
    }
    return changed;
}

int complain(const std::string& what) {
    fmt::print(stderr, "alter_trace: {}\n", what);
    return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 3 ? argv[3] : "";
    if (argc != (what == "drop" ? 5 : 6) || (what != "drop" && what != "shift" && what != "resize"))
        return complain("wrong arguments; see the top of its source");
    const Change change{what, std::strtoull(argv[4], nullptr, 10),
                        argc > 5 ? std::strtoll(argv[5], nullptr, 10) : 0};
    ChunkReader reader;
    if (const std::string why = reader.open(argv[1]); !why.empty()) return complain(why);
    fragscope::test::HandMade out;
    int changed = 0;
    for (ChunkReader::Next next = reader.next(); next != ChunkReader::Next::kAtEnd; next = reader.next()) {
        if (next == ChunkReader::Next::kProblem) return complain(reader.problem());
        fragscope::trace::Chunk chunk = reader.chunk();
        if (chunk.has_events() && chunk.events().process() == 0) {
            changed += apply(*chunk.mutable_events(), change);
            if (chunk.events().count() == 0) continue;
        }
        out.chunk(chunk);
    }
    if (changed == 0) return complain(fmt::format("no record has the number {}", change.sequence));
    std::ofstream file(argv[2], std::ios::binary);
    file.write(reinterpret_cast<const char*>(out.bytes().data()), static_cast<std::streamsize>(out.bytes().size()));
    return file.flush() ? EXIT_SUCCESS : complain(fmt::format("cannot write {}", argv[2]));
}
