#include "backing.h"

#include <algorithm>
#include <cstring>

namespace fragscope::sim {
namespace {

void paint(unsigned char* to, std::uint64_t phase, std::uint32_t pattern, std::uint64_t bytes) {
    unsigned char unit[4];
    std::memcpy(unit, &pattern, sizeof unit);
    for (std::uint64_t i = 0; i < bytes; ++i) to[i] = unit[(phase + i) % 4];
}

}  // namespace

unsigned char* Backing::materialise(std::uint64_t index) {
    Chunk& chunk = chunks_[index];
    if (!chunk.bytes) {
        chunk.bytes = std::make_unique<unsigned char[]>(kChunk);
        if (chunk.pattern != 0) paint(chunk.bytes.get(), 0, chunk.pattern, kChunk);
    }
    return chunk.bytes.get();
}

void Backing::write(std::uint64_t offset, const void* from, std::uint64_t bytes) {
    const auto* source = static_cast<const unsigned char*>(from);
    while (bytes > 0) {
        const std::uint64_t inside = offset % kChunk;
        const std::uint64_t part = std::min(bytes, kChunk - inside);
        std::memcpy(materialise(offset / kChunk) + inside, source, part);
        source += part;
        offset += part;
        bytes -= part;
    }
}

void Backing::read(std::uint64_t offset, void* to, std::uint64_t bytes) const {
    auto* target = static_cast<unsigned char*>(to);
    while (bytes > 0) {
        const std::uint64_t inside = offset % kChunk;
        const std::uint64_t part = std::min(bytes, kChunk - inside);
        const auto found = chunks_.find(offset / kChunk);
        if (found == chunks_.end()) {
            std::memset(target, 0, part);
        } else if (found->second.bytes) {
            std::memcpy(target, found->second.bytes.get() + inside, part);
        } else {
            paint(target, inside, found->second.pattern, part);
        }
        target += part;
        offset += part;
        bytes -= part;
    }
}

void Backing::fill(std::uint64_t offset, std::uint32_t pattern, std::uint64_t bytes) {
    while (bytes > 0) {
        const std::uint64_t inside = offset % kChunk;
        const std::uint64_t part = std::min(bytes, kChunk - inside);
        if (part == kChunk && pattern == 0) {
            chunks_.erase(offset / kChunk);
        } else if (part == kChunk) {
            Chunk& chunk = chunks_[offset / kChunk];
            chunk.bytes.reset();
            chunk.pattern = pattern;
        } else {
            paint(materialise(offset / kChunk) + inside, inside, pattern, part);
        }
        offset += part;
        bytes -= part;
    }
}

}  // namespace fragscope::sim
