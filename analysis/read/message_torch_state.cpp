#include "analysis/read/message_torch_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/read/message_text.h"
#include "analysis/scenario_layout.h"
#include "analysis/verdict.h"

namespace fragscope::analysis {

namespace {

using Wording = TorchMessage::Wording;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSmallSegment = 2 * kMiB;   // for blocks of up to 1 MiB
constexpr std::uint64_t kLargeSegment = 20 * kMiB;  // for blocks of up to 10 MiB
constexpr std::uint64_t kUnit = 2 * kMiB;           // of larger segments
constexpr std::uint64_t kBlock = 512;

const Interval kOpen{0, std::nullopt};

// The whole units inside of an amount; nothing: there are none, so it is no number of units.
std::optional<Interval> in_units(const Interval& amount, std::uint64_t unit) {
    if (!amount.low || !amount.high) return std::nullopt;
    const std::uint64_t low = (*amount.low + unit - 1) / unit * unit;
    const std::uint64_t high = *amount.high / unit * unit;
    if (low > high) return std::nullopt;
    return Interval{low, high};
}

void put_request(const TorchMessage& message, ImportedState& out) {
    ScenarioRequest& request = out.scenario.request;
    request.kind = ScenarioRequest::Kind::kAllocator;
    request.block_rounding = kBlock;
    // Segments without a block it has given back already, and "free" was asked after that.
    request.may_release = false;
    request.gaps_refused = true;
    if (!message.tried) {
        request.bytes = kOpen;
        out.warnings.push_back("The beginning of the message is missing: how much was asked for is not known.");
        return;
    }
    request.bytes = *message.tried;
    if (message.wording == Wording::kAsync || message.wording == Wording::kMetal ||
        message.wording == Wording::kCached)
        return;
    const auto segment = in_units(*message.tried, kUnit);
    if (!segment) {
        out.not_in_source.emplace_back(
            "How its allocator rounds: the amount that it tried is no number of whole 2 MiB, as it usually is.");
        return;
    }
    request.bytes = *segment;
    const std::uint64_t low = *segment->low;
    const std::uint64_t high = *segment->high;
    // What its block would have taken in a gap.
    request.in_gap = low <= kSmallSegment   ? Interval{kBlock, std::min(high, kMiB)}
                     : low <= kLargeSegment ? Interval{kMiB + kBlock, high}
                                            : Interval{low - kUnit + kBlock, high};
    if (low <= kSmallSegment && high > kSmallSegment) request.in_gap->high = high;
    out.not_in_source.emplace_back(
        "What the program asked for: \"Tried to allocate\" is the segment that the allocator wanted from the driver "
        "for it (2 MiB for up to 1 MiB, 20 MiB for up to 10 MiB, else whole 2 MiB), by its usual settings.");
}

// What is in the allocator's segments.
void put_segments(const TorchMessage& message, ImportedState& out) {
    std::optional<Interval> unallocated = message.unallocated;
    std::optional<Interval> live = message.allocated;
    if (message.reserved && live) {
        unallocated = part_left(*message.reserved, *live);
        if (!unallocated)
            out.warnings.push_back(fmt::format(
                "The message contradicts itself: {} in blocks are more than the {} that are reserved.",
                in_words(*live), in_words(*message.reserved)));
    }
    if (message.in_private_pools && live) {
        const auto rest = part_left(*live, *message.in_private_pools);
        if (!rest)
            out.warnings.push_back(fmt::format(
                "The message contradicts itself: {} in private pools are more than the {} that are allocated in all.",
                in_words(*message.in_private_pools), in_words(*live)));
        live = rest.value_or(kOpen);
    }
    if (!live) {
        out.not_in_source.emplace_back("What the allocator of the framework holds: the message does not come to it.");
        out.scenario.segments.push_back({"segments", kOpen, "", "", true, kOpen, {}});
        return;
    }
    ScenarioSegment segment;
    segment.id = "segments";
    segment.several = true;
    segment.blocks.push_back({"live", std::nullopt, *live, std::nullopt, false});
    if (message.wording == Wording::kAsync) {
        // Its pool keeps what it likes of the rest of the device.
        const Interval most = message.total ? less(*message.total, message.device_free.value_or(kOpen)) : Interval{};
        segment.bytes = {live->low, most.high};
        if (live->low && most.high && *live->low > *most.high) {
            segment.bytes.high.reset();
            out.warnings.emplace_back("By the message more is allocated than the device has; one of the two is wrong.");
        }
        out.not_in_source.emplace_back(
            "How much the driver's pool keeps unused (cudaMemPoolAttrReservedMemCurrent): the message has what "
            "PyTorch holds of it only.");
    } else {
        segment.unused = unallocated.value_or(kOpen);
        segment.bytes = *live + *segment.unused;
    }
    out.scenario.segments.push_back(std::move(segment));
    if (message.other) {
        ScenarioSegment other;
        other.id = "other";
        other.several = true;
        other.bytes = *message.other;
        other.unused = Interval::exactly(0);
        other.blocks.push_back({"other", std::nullopt, *message.other, std::nullopt, false});
        out.scenario.segments.push_back(std::move(other));
    }
    if (!message.in_private_pools) return;
    ScenarioSegment pools;
    pools.id = "private pools";
    pools.owner = "private";
    pools.several = true;
    pools.bytes = *message.in_private_pools;
    pools.unused = *message.in_private_pools;
    out.scenario.segments.push_back(std::move(pools));
    out.not_in_source.emplace_back(
        "Whether the request itself was for a private pool, and what private pools hold in blocks: what the message "
        "calls \"allocated in private pools\" lies unused in them.");
}

Interval reserved_in(const Scenario& scenario) {
    Interval sum = Interval::exactly(0);
    for (const ScenarioSegment& segment : scenario.segments) sum = sum + segment.bytes;
    return sum;
}

// NVML's processes: which of them is this one, where the message does not say so, and what the others hold.
void put_processes(const TorchMessage& message, ImportedState& out) {
    ScenarioDevice& device = out.scenario.device;
    device.context = kOpen;
    device.other_processes = kOpen;
    if (message.processes.empty()) {
        out.not_in_source.emplace_back(
            "What other processes hold on the device, and this one outside of PyTorch's allocator: the message lists "
            "no process.");
        return;
    }
    if (!message.allocated) return;  // so which of them is this one cannot be told
    const Interval own = reserved_in(out.scenario);
    // Nobody with less than this process's own segments is this process.
    const auto may_be_this = [&](const TorchProcess& process) {
        return process.used.high.value_or(UINT64_MAX) >= own.low.value_or(0);
    };
    const TorchProcess* self = nullptr;
    std::size_t candidates = 0;
    for (const TorchProcess& process : message.processes)
        if (!process.pid) self = &process;
    if (self == nullptr) {
        for (const TorchProcess& process : message.processes) {
            if (!may_be_this(process)) continue;
            ++candidates;
            self = &process;
        }
        if (candidates != 1) self = nullptr;
    }
    Interval all = Interval::exactly(0);
    Interval listed = Interval::exactly(0);
    for (const TorchProcess& process : message.processes) {
        all = all + process.used;
        if (&process != self) listed = listed + process.used;
    }
    if (self == nullptr) {
        out.not_in_source.emplace_back(
            "Which of the processes that it lists is this one: " +
            std::string(candidates == 0 ? "none holds as much as PyTorch has reserved."
                                        : "several hold as much as PyTorch has reserved."));
        device.other_processes = candidates == 0 ? listed : Interval{0, less(all, own).high};
        return;
    }
    device.other_processes = listed;
    const auto context = part_left(self->used, own);
    if (!context) {
        out.warnings.push_back(fmt::format(
            "The message contradicts itself, or the driver keeps a part in host memory: this process has {} of the "
            "device in use, and its allocator alone has reserved {}.",
            in_words(self->used), in_words(own)));
        return;
    }
    device.context = *context;
    if (candidates == 1)
        out.not_in_source.push_back(fmt::format(
            "That process {} is this one: it is the only one listed that holds as much as PyTorch has reserved.",
            self->pid.value_or(0)));
}

void check_sums(const TorchMessage& message, ImportedState& out) {
    const ScenarioDevice& device = out.scenario.device;
    if (!message.total) return;
    const Interval own = reserved_in(out.scenario);
    const Interval listed = device.other_processes;
    const std::uint64_t least = (own + Interval{listed.low.value_or(0), std::nullopt}).low.value_or(0);
    const std::uint64_t device_free = message.device_free ? message.device_free->low.value_or(0) : 0;
    const std::uint64_t total = message.total->high.value_or(UINT64_MAX);
    if (own.low.value_or(0) > total) {
        out.warnings.push_back(fmt::format(
            "The allocator has reserved {}, and the device has {}: a part of it is not on the device (the driver's "
            "system memory fallback on Windows keeps it in host memory).",
            in_words(own), in_words(*message.total)));
    } else if (least > total || least + device_free > total) {
        out.warnings.push_back(fmt::format(
            "The numbers contradict each other: {} reserved, {} of other processes and {} of device-free memory are "
            "more than the {} of the device.",
            in_words(own), in_words(listed), in_words(message.device_free.value_or(Interval::exactly(0))),
            in_words(*message.total)));
    }
}

}  // namespace

void note_refusal(Scenario& scenario) {
    const ScenarioDevice& device = scenario.device;
    if (!device.device_free || !device.capacity.high) return;
    const std::uint64_t free = device.device_free->low.value_or(0);
    const std::uint64_t needed = scenario.request.bytes.high.value_or(UINT64_MAX);
    scenario.device.driver_refused =
        free / kRefusedTimes >= needed && free - needed >= *device.capacity.high / kRefusedShare;
}

ImportedState state_of(const TorchMessage& message, std::uint64_t line) {
    ImportedState out;
    out.kind = "torch-message";
    out.in_words = "PyTorch's out-of-memory message";
    out.line = line;
    Scenario& scenario = out.scenario;
    scenario.device_name = message.gpu ? fmt::format("GPU {}", *message.gpu) : std::string("the GPU");
    scenario.title = fmt::format("PyTorch could not get {} on {}",
                                 message.tried ? in_short(*message.tried) : std::string("a block"),
                                 scenario.device_name);
    scenario.device.capacity = message.total.value_or(Interval{});
    scenario.device.device_free = message.device_free.value_or(kOpen);
    if (!message.total) out.not_in_source.emplace_back("The capacity of the device.");
    if (!message.device_free)
        out.not_in_source.emplace_back("What of the device was held by nobody: the driver's word is not in it.");
    put_request(message, out);
    put_segments(message, out);
    put_processes(message, out);
    check_sums(message, out);
    if (message.allowed) {
        scenario.device.allocator_limit = *message.allowed;
    } else if (message.wording != Wording::kMetal) {
        // A share that was set would be printed; without one it is the driver that refused.
        note_refusal(scenario);
    }
    if (!message.whole)
        out.warnings.emplace_back("The message breaks off: the rest of it is not in the text, or is not understood.");
    out.not_in_source.emplace_back(
        "How large each unused piece is, and which pool and stream it serves: torch.cuda.memory._snapshot() tells.");
    return out;
}

}  // namespace fragscope::analysis
