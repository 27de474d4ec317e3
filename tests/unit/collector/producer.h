// Stands in for the shim: claims a process slot and rings in a session and writes records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/ring_host.h"
#include "proto/ring.h"

namespace fragscope::test {

struct Producer {
    // Claims a process slot for this process, or for whatever `pid` and `start_time` say.
    explicit Producer(collector::RingHost& host, std::int32_t pid = 0, std::uint64_t start_time = 0);

    // Claims a ring; `thread` as its owner's number, 0: this one's.
    wire::RingWriter ring(std::int32_t thread = 0);
    void give_back(wire::RingWriter& ring);

    collector::RingHost& host;
    std::uint32_t slot = 0;
};

// A plausible record that happened just now.
wire::Record record_of(std::uint64_t sequence, wire::Kind kind = wire::Kind::kLinearAcquired);
void put(wire::RingWriter& ring, const wire::Record& record);
void put_text(wire::RingWriter& ring, wire::TextKind kind, std::uint16_t subject, const std::string& text,
              std::uint32_t id = 0);
// Payloads of the texts that name loaded files and call stacks.
std::string module_text(std::uint64_t begin, std::uint64_t end, std::uint64_t bias,
                        const std::string& build_id, const std::string& path);
std::string stack_text(std::uint32_t origin, std::uint16_t flags, const std::vector<std::uint64_t>& frames);

}  // namespace fragscope::test
