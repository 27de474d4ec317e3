#include "interpose/intern.h"

#include <atomic>
#include <cstring>

#include "interpose/emit.h"
#include "interpose/session.h"

namespace fragscope::interpose {

namespace {

// Where a text of the table lies, and part of its hash, in one word, so that it is entered by one exchange:
// its first byte (24 bits), its length (16), hash (24). Never 0, as no text is empty.
constinit std::atomic<std::uint64_t> entries[kMaxStrings];
constinit std::atomic<std::uint32_t>
    told_by[kMaxStrings];  // attachment that sent the text; as long as entries
// Zero-initialised and therefore without memory behind them until used.
constinit char bytes_of_texts[kStringMemory];
constinit std::atomic<std::uint32_t> bytes_used{0};

static_assert(kStringMemory <= 1u << 24 && wire::kMaxTextBytes < 1u << 16);
static_assert((kMaxStrings & (kMaxStrings - 1)) == 0);

// A text that finds no place this near to its own has none: a bound for the time of a look-up.
constexpr std::uint32_t kNeighbours = 64;

std::uint32_t begin_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry >> 40); }
std::uint32_t length_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry >> 24) & 0xffffu; }

bool same(std::uint64_t entry, std::uint64_t hash_bits, const char* text, std::size_t bytes) {
    return (entry & 0xffffffu) == hash_bits && length_of(entry) == bytes &&
           std::memcmp(bytes_of_texts + begin_of(entry), text, bytes) == 0;
}

// Room for `bytes`; kStringMemory: there is not so much left.
std::size_t take_bytes(std::size_t bytes) {
    std::uint32_t used = bytes_used.load(std::memory_order_relaxed);
    do {
        if (bytes > kStringMemory - used) return kStringMemory;
    } while (!bytes_used.compare_exchange_weak(used, used + static_cast<std::uint32_t>(bytes),
                                               std::memory_order_relaxed));
    return used;
}

}  // namespace

std::uint32_t intern(const char* text, std::size_t bytes) {
    if (text == nullptr || bytes == 0) return 0;
    if (bytes > wire::kMaxTextBytes) bytes = wire::kMaxTextBytes;
    const std::uint64_t hash = wire::identity_of(reinterpret_cast<const unsigned char*>(text), bytes);
    const std::uint64_t hash_bits = hash & 0xffffffu;
    // Texts that differ in their last letter only have hashes that are alike in the middle.
    const auto first = static_cast<std::uint32_t>(((hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15u) >> 40);
    std::size_t place = kStringMemory;
    for (std::uint32_t step = 0; step < kNeighbours; ++step) {
        const std::uint32_t at = (first + step) % kMaxStrings;
        std::uint64_t entry = entries[at].load(std::memory_order_acquire);
        if (entry == 0) {
            if (place == kStringMemory) {
                place = take_bytes(bytes);
                if (place == kStringMemory) return 0;
                std::memcpy(bytes_of_texts + place, text, bytes);
            }
            const std::uint64_t mine =
                (std::uint64_t{place} << 40) | (std::uint64_t{bytes} << 24) | hash_bits;
            if (entries[at].compare_exchange_strong(entry, mine, std::memory_order_acq_rel)) return at + 1;
        }
        if (same(entry, hash_bits, text, bytes)) return at + 1;
    }
    return 0;
}

StringText string_text(std::uint32_t id) {
    if (id == 0 || id > kMaxStrings) return {};
    const std::uint64_t entry = entries[id - 1].load(std::memory_order_acquire);
    if (entry == 0) return {};
    return {bytes_of_texts + begin_of(entry), length_of(entry)};
}

void tell_string(std::uint32_t id) {
    const StringText known = string_text(id);
    if (known.bytes == 0 || !attached()) return;
    const std::uint32_t attachment = generation();
    // Until it is out every thread sends it, so that no record can be ahead of it.
    if (told_by[id - 1].load(std::memory_order_relaxed) == attachment) return;
    if (emit_text(wire::TextKind::kString, 0, known.text, known.bytes, id))
        told_by[id - 1].store(attachment, std::memory_order_relaxed);
}

std::uint32_t told_string(const char* text, std::size_t bytes) {
    if (bytes == 0 || !attached()) return 0;
    const std::uint32_t id = intern(text, bytes);
    if (id != 0)
        tell_string(id);
    else
        session.slot->lost_kinds[static_cast<std::uint32_t>(wire::Kind::kText)].fetch_add(
            1, std::memory_order_relaxed);
    return id;
}

}  // namespace fragscope::interpose
