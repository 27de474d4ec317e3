#include "tests/unit/trace/trace_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <stdexcept>

namespace fragscope::test {

TemporaryFile::TemporaryFile(const Bytes& bytes) {
    char name[] = "/tmp/fragscope-test-XXXXXX";
    const int fd = ::mkstemp(name);
    if (fd < 0) throw std::runtime_error("no temporary file");
    path_ = name;
    const bool written =
        bytes.empty() || ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    ::close(fd);
    if (!written) throw std::runtime_error("temporary file not written");
}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

analysis::ReadResult read_bytes(const Bytes& bytes) {
    const TemporaryFile file(bytes);
    return analysis::read_trace(file.path());
}

std::vector<collector::EventRow> random_rows(std::size_t count, unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<collector::EventRow> rows(count);
    std::uint64_t time = 1'000'000;
    for (std::size_t i = 0; i < count; ++i) {
        collector::EventRow& row = rows[i];
        row.sequence = i + 1;
        row.start_ns = time += random() % 5000;
        row.duration_ns = random() % 100'000;
        row.address = random();
        row.bytes = random() >> (random() % 64);
        row.object = random() >> (random() % 64);
        row.extra = random() >> (random() % 64);
        row.thread = static_cast<std::int32_t>(random() % 7) - 2;
        row.stack = static_cast<std::uint32_t>(random());
        row.function = static_cast<std::uint16_t>(random() % 90);
        row.result = static_cast<std::uint16_t>(random() % 5 == 0 ? random() % 1000 : 0);
        row.flags = static_cast<std::uint16_t>(random() % 512);
        row.kind = static_cast<wire::Kind>(1 + i % static_cast<std::size_t>(wire::kLastKind));
        row.device = static_cast<std::uint8_t>(random());
    }
    return rows;
}

Bytes small_trace() {
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    trace::Session session;
    session.set_host_name("here");
    session.set_start_ns(1'000'000);
    writer.begin(session);
    for (std::uint32_t p = 0; p < 2; ++p) {
        trace::Process process;
        process.set_index(p);
        process.set_pid(100 + p);
        writer.process(process);
        writer.name_function(p, 0, "cuMemAlloc_v2");
        trace::Names names;
        names.add_texts()->set_id(1);
        names.mutable_texts(0)->set_text("cudaMalloc");
        names.add_modules()->set_id(1);
        names.mutable_modules(0)->set_path("/bin/true");
        names.add_stacks()->set_id(1);
        names.mutable_stacks(0)->set_origin(1);
        names.mutable_stacks(0)->add_frames(0x40);
        writer.names(p, names);
        for (const collector::EventRow& row : random_rows(6, p)) writer.event(p, row);
        writer.flush(p);
        trace::Loss loss;
        loss.set_process(p);
        loss.set_others(p);
        writer.loss(loss);
    }
    for (collector::EventRow row : random_rows(3, 9)) {
        row.sequence += 6;
        writer.event(1, row);
    }
    trace::SessionEnd end;
    end.set_reason("finished");
    end.set_processes(2);
    writer.end(end);
    return sink.bytes();
}

HandMade::HandMade() {
    trace::FileHeader header{};
    std::memcpy(header.magic, trace::kFileMagic, sizeof header.magic);
    header.version = trace::kFormatVersion;
    header.header_bytes = sizeof header;
    header.checksum = trace::file_checksum(header);
    const auto* bytes = reinterpret_cast<const std::byte*>(&header);
    bytes_.assign(bytes, bytes + sizeof header);
}

void HandMade::put(trace::ChunkHeader header, const std::string& stored) {
    header.checksum = trace::chunk_checksum(header, std::as_bytes(std::span(stored)));
    const auto* bytes = reinterpret_cast<const std::byte*>(&header);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof header);
    const auto* content = reinterpret_cast<const std::byte*>(stored.data());
    bytes_.insert(bytes_.end(), content, content + stored.size());
}

HandMade& HandMade::chunk(const trace::Chunk& content,
                          const std::function<void(trace::ChunkHeader&)>& change) {
    const std::string stored = content.SerializeAsString();
    trace::ChunkHeader header{};
    header.magic = trace::kChunkMagic;
    header.version = static_cast<std::uint16_t>(trace::kFormatVersion);
    header.kind = static_cast<trace::ChunkKind>(content.body_case());
    header.stored_bytes = header.raw_bytes = static_cast<std::uint32_t>(stored.size());
    header.number = number_++;
    change(header);
    put(header, stored);
    return *this;
}

HandMade& HandMade::raw(trace::ChunkKind kind, const std::string& content, std::uint32_t raw_bytes) {
    trace::ChunkHeader header{};
    header.magic = trace::kChunkMagic;
    header.version = static_cast<std::uint16_t>(trace::kFormatVersion);
    header.kind = kind;
    header.stored_bytes = static_cast<std::uint32_t>(content.size());
    header.raw_bytes = raw_bytes;
    header.number = number_++;
    put(header, content);
    return *this;
}

HandMade& HandMade::session() {
    trace::Chunk content;
    content.mutable_session()->set_host_name("here");
    return chunk(content);
}

HandMade& HandMade::end() {
    trace::Chunk content;
    content.mutable_end()->set_reason("finished");
    return chunk(content);
}

}  // namespace fragscope::test
