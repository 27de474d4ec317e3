#include "analysis/read/message_torch_clauses.h"

#include <algorithm>
#include <array>

#include "analysis/read/message_text.h"

namespace fragscope::analysis {

namespace {

// By what a message is known; what stands before it names the platform.
constexpr std::array<std::string_view, 4> kBeginnings = {
    "outofmemory.Triedtoallocate", "wouldexceedallowedmemory.(outofmemory)", "backendoutofmemory(MPSallocated:",
    "hasatotalcapac"};

// Between two clauses stands no more than this, whatever a logger has put there.
constexpr std::size_t kMostBetween = 240;
constexpr std::size_t kMostProcesses = 512;

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// Each clause: true: it stands at the cursor, is passed, and its numbers are taken.
using Clause = bool (*)(Cursor& at, TorchMessage& out);

bool take(Cursor& at, std::optional<Interval>& out, Units units = Units::kBinary) {
    Interval amount;
    if (!at.amount(amount, units)) return false;
    out = amount;
    return true;
}

bool tried(Cursor& at, TorchMessage& out) {
    return at.literal("outofmemory.Triedtoallocate") && take(at, out.tried);
}

bool capacity(Cursor& at, TorchMessage& out) {
    if (!at.literal("GPU")) return false;
    std::uint64_t gpu = 0;
    const bool numbered = at.number(gpu);
    // "capacty" from 2.1 to 2.3.
    if (!at.literal("hasatotalcapacityof") && !at.literal("hasatotalcapactyof")) return false;
    if (!take(at, out.total)) return false;
    if (numbered) out.gpu = gpu;
    out.capacity_end = at.position();
    std::optional<Interval> device_free;
    const std::size_t before = at.position();
    if (at.literal("ofwhich") && take(at, device_free) && at.literal("isfree")) {
        out.device_free = device_free;
    } else {
        at.back_to(before);
    }
    return true;
}

bool process(Cursor& at, TorchMessage& out) {
    TorchProcess each;
    std::uint64_t pid = 0;
    std::optional<Interval> used;
    if (at.literal("Includingnon-PyTorchmemory,thisprocesshas")) {
        if (!take(at, used) || !at.literal("memoryinuse")) return false;
    } else {
        if (!at.literal("Process") || !at.number(pid) || !at.literal("has") || !take(at, used) ||
            !at.literal("memoryinuse"))
            return false;
        each.pid = pid;
    }
    each.used = *used;
    if (out.processes.size() < kMostProcesses) out.processes.push_back(each);
    return true;
}

bool allocated(Cursor& at, TorchMessage& out) {
    return at.literal("Oftheallocatedmemory") && take(at, out.allocated) && at.literal("isallocatedbyPyTorch");
}

bool private_pools(Cursor& at, TorchMessage& out) {
    std::optional<Interval> amount;
    if (!at.literal("with") || !take(at, amount) || !at.literal("allocatedinprivatepools")) return false;
    out.in_private_pools = amount;
    return true;
}

bool unallocated(Cursor& at, TorchMessage& out) {
    std::optional<Interval> amount;
    if (!at.literal("and") || !take(at, amount) || !at.literal("isreservedbyPyTorchbutunallocated")) return false;
    out.unallocated = amount;
    out.whole = true;
    return true;
}

// "(GPU 0; X total capacity; " and its like of other platforms
bool parenthesis(Cursor& at, TorchMessage& out) {
    if (!at.literal("(")) return false;
    std::size_t letters = 0;
    while (letters < at.rest().size() && letters < 8 && is_letter(at.rest()[letters]) &&
           (at.rest()[letters] < '0' || at.rest()[letters] > '9'))
        ++letters;
    at.skip(letters);
    std::uint64_t gpu = 0;
    if (letters == 0 || !at.number(gpu) || !at.literal(";") || !take(at, out.total) || !at.literal("totalcapacity;"))
        return false;
    out.gpu = gpu;
    out.wording = TorchMessage::Wording::kReserved;
    return true;
}

// The amounts behind it, each with its word.
bool item(Cursor& at, TorchMessage& out) {
    if (out.wording != TorchMessage::Wording::kReserved && out.wording != TorchMessage::Wording::kSentences) return false;
    std::optional<Interval> amount;
    if (!take(at, amount)) return false;
    if (at.literal("allowed;")) {
        out.allowed = amount;
        return true;
    }
    if (out.wording != TorchMessage::Wording::kReserved) return false;
    if (at.literal("alreadyallocated;")) {
        out.allocated = amount;
    } else if (at.literal("currentactive;")) {
        out.active = amount;
    } else if (at.literal("free;")) {
        out.device_free = amount;
    } else if (at.literal("reservedintotalbyPyTorch")) {
        out.reserved = amount;
        out.whole = true;
    } else if (at.literal("cached)")) {
        out.wording = TorchMessage::Wording::kCached;
        out.unallocated = amount;
        out.whole = true;
    } else {
        return false;
    }
    return true;
}

bool async_begin(Cursor& at, TorchMessage& out) {
    if (!at.literal("wouldexceedallowedmemory.(outofmemory)")) return false;
    out.wording = TorchMessage::Wording::kAsync;
    return true;
}

bool async_item(Cursor& at, TorchMessage& out) {
    if (out.wording != TorchMessage::Wording::kAsync) return false;
    if (at.literal("Currentlyallocated:")) return take(at, out.allocated);
    if (at.literal("Requested:")) return take(at, out.tried);
    if (at.literal("Devicelimit:")) return take(at, out.total);
    if (at.literal("Free(accordingtoCUDA):")) return take(at, out.device_free);
    if (!at.literal("PyTorchlimit(setbyuser-suppliedmemoryfraction):")) return false;
    out.whole = true;
    // 2^64 bytes, in GiB: none is set.
    if (at.literal("17179869184.00GiB")) {
        out.without_limit = true;
        return true;
    }
    return take(at, out.allowed);
}

bool metal(Cursor& at, TorchMessage& out) {
    // What it calls GB is 1024³ bytes.
    if (at.literal("backendoutofmemory(MPSallocated:")) {
        out.wording = TorchMessage::Wording::kMetal;
        return take(at, out.allocated);
    }
    if (out.wording != TorchMessage::Wording::kMetal) return false;
    if (at.literal("otherallocations:")) return take(at, out.other);
    if (at.literal("maxallowed:")) return take(at, out.allowed);
    if (!at.literal("Triedtoallocate") || !take(at, out.tried)) return false;
    out.whole = true;
    return true;
}

constexpr std::array<Clause, 11> kClauses = {tried, capacity,    process,     allocated,  private_pools, unallocated,
                                             parenthesis, item, async_begin, async_item, metal};

// "CUDA" of "RuntimeError:CUDAoutofmemory": no platform has a name with small letters in it.
std::size_t platform_before(std::string_view text, std::size_t at) {
    std::size_t begin = at;
    while (begin > 0 && at - begin < 5 && text[begin - 1] >= 'A' && text[begin - 1] <= 'Z') --begin;
    return begin;
}

}  // namespace

std::size_t torch_message_at(std::string_view squeezed, std::size_t from) {
    std::size_t first = std::string_view::npos;
    for (const std::string_view beginning : kBeginnings) {
        const std::size_t at = squeezed.find(beginning, from);
        if (at == std::string_view::npos || at >= first) continue;
        first = at;
        if (beginning == kBeginnings[3]) {
            // "GPU 0" stands before it.
            while (first > from && first > 0 && squeezed[first - 1] >= '0' && squeezed[first - 1] <= '9') --first;
            first -= std::min<std::size_t>(first - std::min(from, first), 3);
        } else if (beginning == kBeginnings[1]) {
            const std::size_t allocation = squeezed.substr(0, at).rfind("Allocationondevice");
            if (allocation != std::string_view::npos && allocation >= from && at - allocation < 24) first = allocation;
        } else {
            first = std::max(platform_before(squeezed, at), from);
        }
    }
    return first;
}

TorchMessage torch_message_in(std::string_view squeezed) {
    TorchMessage out;
    Cursor at(squeezed);
    const std::size_t platform = std::min(squeezed.find("outofmemory"), squeezed.find("backendoutofmemory"));
    if (platform != std::string_view::npos && platform <= 5) out.platform = squeezed.substr(0, platform);
    if (at.literal("Allocationondevice")) {
        std::uint64_t gpu = 0;
        if (at.number(gpu)) out.gpu = gpu;
    }
    while (!at.at_end() && at.position() - out.used_bytes <= kMostBetween) {
        const std::size_t before = at.position();
        bool taken = false;
        for (const Clause clause : kClauses) {
            at.back_to(before);
            taken = clause(at, out);
            if (taken) break;
        }
        if (taken) {
            out.used_bytes = at.position();
            if (out.whole) break;
            continue;
        }
        at.back_to(before);
        at.skip(1);
    }
    return out;
}

}  // namespace fragscope::analysis
