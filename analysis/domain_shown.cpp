#include "analysis/domain_shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "analysis/losses.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

// Free extents of one kind, as they are found.
class Extents {
  public:
    void add(const Range& range) {
        if (range.size() == 0) return;
        found_.push_back(range);
        sum_ += range.size();
        largest_ = std::max(largest_, range.size());
    }
    bool empty() const { return found_.empty(); }

    enum class Known {
        kSurely,
        kAtMost,  // any of them may be taken, and there are no others
        kNot,     // records are missing: any of them may be taken, and others may be there
    };

    void show(report::DomainExtents& out, const std::string& what, Definition definition, const Scope& scope,
              Known known, const std::string& reason) const {
        report::FreeExtents& shown = *out.add_eligible_free();
        shown.set_what(what);
        shown.set_count(found_.size());
        const auto quantity = [&](std::uint64_t bytes) {
            if (known == Known::kSurely) return Quantity::derived(definition, bytes, scope, reason).message();
            const auto most = known == Known::kAtMost ? std::optional(bytes) : std::nullopt;
            return Quantity::bounded(definition, {0, most}, scope, reason).message();
        };
        *shown.mutable_sum() = quantity(sum_);
        *shown.mutable_largest() = quantity(largest_);
        for (const Range& range : found_) {
            report::DomainExtent& extent = *shown.add_extents();
            extent.set_address(range.begin);
            extent.set_bytes(range.size());
        }
    }

  private:
    std::vector<Range> found_;
    std::uint64_t sum_ = 0;
    std::uint64_t largest_ = 0;
};

void hold(report::DomainExtents& out, const Range& range, const std::string& what) {
    report::DomainExtent& shown = *out.add_held();
    shown.set_address(range.begin);
    shown.set_bytes(range.size());
    shown.set_what(what);
}

void sort_by_address(report::DomainExtents& out) {
    std::stable_sort(out.mutable_held()->begin(), out.mutable_held()->end(),
                     [](const auto& a, const auto& b) { return a.address() < b.address(); });
}

const char* linear_in_words(Kind kind) {
    return kind == Kind::kManagedAcquired ? "managed" : kind == Kind::kPitchAcquired ? "pitch" : "linear";
}

// Whether releases and acquisitions of this layer are all in the records.
bool complete(const Trace& trace, ProcessIndex process, const ProcessState& state, Layer layer) {
    return !with_contradictions(narrowed(losses_of(trace, process), layer), state.contradictions()).any();
}

void show_virtual(const ProcessState& state, const Trace& trace, ProcessIndex process, const Scope& scope,
                  report::DomainExtents& out) {
    ExtentSet before = state.ever_reserved();
    Extents unmapped;
    const auto taken = [&](const Range& range, const std::string& what) {
        hold(out, range, what);
        before.remove(range);
    };
    state.reservations().for_each([&](const Range& range, const Reservation&) {
        before.remove(range);
        std::uint64_t mapped = 0;
        state.mappings().for_each_in(range, [&](const Range& part, const Mapping&) {
            mapped += std::min(part.end, range.end) - std::max(part.begin, range.begin);
        });
        hold(out, range, fmt::format("reservation, {} of it mapped", in_words(mapped)));
        state.mappings().for_each_gap(range, [&](const Range& gap) { unmapped.add(gap); });
    });
    state.linear().for_each(
        [&](const Range& range, const LinearBlock& block) { taken(range, linear_in_words(block.kind)); });
    state.pool_blocks().for_each([&](const Range& range, const PoolBlock& block) {
        taken(range, fmt::format("of pool {:#x}", block.pool.value));
    });
    sort_by_address(out);
    const bool sure = complete(trace, process, state, Layer::kAddresses);
    const char* weak = "; records are missing: any of it may be taken, and more may be there";
    const auto known = sure ? Extents::Known::kSurely : Extents::Known::kNot;
    unmapped.show(out, "reserved, and mapped to nothing: a mapping of this process may go there",
                  report::Quantity::eligible_free, scope.in_domain("virtual, inside reservations"), known,
                  std::string("reservations less mappings") + (sure ? "" : weak));
    Extents free;
    before.for_each([&](const Range& range) { free.add(range); });
    free.show(out, "reserved before and not now: a reservation may go there again",
              report::Quantity::eligible_free, scope.in_domain("virtual, outside of reservations"), known,
              std::string("whatever cuMemAddressReserve gave out and got back") + (sure ? "" : weak));
    out.add_not_known(
        "how much address space the driver has that it never gave to this process: no call tells");
}

void show_framework(const FrameworkState& framework, const Trace& trace, ProcessIndex process,
                    const Scope& scope, report::DomainExtents& out) {
    using Class = std::tuple<int, bool, std::optional<std::uint64_t>>;
    std::map<Class, Extents> gaps;
    framework.for_each_segment([&](const Range& segment, const SegmentFacts& facts) {
        Extents& here = gaps[{facts.device, facts.large,
                              facts.stream ? std::optional(facts.stream->value) : std::nullopt}];
        framework.for_each_piece(segment, [&](const Range& piece, const FrameworkBlock* block) {
            if (block == nullptr)
                here.add(piece);
            else
                hold(out, piece, block->waits_for == 0 ? "live block" : "freed, waiting for other streams");
        });
    });
    const bool sure = !with_contradictions(narrowed(losses_of(trace, process), Layer::kFramework),
                                           framework.contradictions())
                           .any();
    for (const auto& [what, extents] : gaps) {
        const auto& [device, large, stream] = what;
        std::string words = fmt::format("gaps in {} segments", large ? "large" : "small");
        if (stream)
            words += *stream == 0 ? " of the default stream" : fmt::format(" of stream {:#x}", *stream);
        if (device != kNoDevice) words += fmt::format(" on device {}", device);
        Scope here = scope.in_domain("framework's allocator");
        if (device != kNoDevice) here.device = device_uuid(trace, process, device);
        extents.show(out, words, report::Quantity::cached, here,
                     sure ? Extents::Known::kSurely : Extents::Known::kNot,
                     sure ? "its segments less its blocks"
                          : "its segments less its blocks; records are missing: any of it may be taken, and "
                            "more may be there");
    }
    out.add_not_known("which private pool (a CUDA graph's, a MemPool) a segment or a gap belongs to");
}

}  // namespace

std::optional<DomainName> domain_in(const std::string& asked) {
    if (asked == "physical") return DomainName{DomainKind::kPhysical, {}};
    if (asked == "virtual") return DomainName{DomainKind::kVirtual, {}};
    if (asked == "framework") return DomainName{DomainKind::kFramework, {}};
    if (asked == "host") return DomainName{DomainKind::kHost, {}};
    constexpr std::string_view kPool = "pool:0x";
    if (asked.rfind(kPool, 0) != 0) return std::nullopt;
    DomainName out{DomainKind::kPool, {}};
    const char* begin = asked.data() + kPool.size();
    const char* end = asked.data() + asked.size();
    const auto [rest, error] = std::from_chars(begin, end, out.pool.value, 16);
    if (begin == end || rest != end || error != std::errc()) return std::nullopt;
    return out;
}

void DomainWatch::add(const ProcessState& after, const Event& event) {
    if (event.failed()) return;
    if (event.kind == Kind::kDeviceMemory) {
        words_[event.device] = {event.address.value, event.sequence, event.start};
    } else if (event.kind == Kind::kPoolAcquired && name_.kind == DomainKind::kPool) {
        const auto block = after.pool_blocks().find(event.address.value);
        if (block && block->value.pool == name_.pool) ever_in_pool_.add(block->range);
    }
}

std::optional<report::DomainExtents> DomainWatch::shown(const ProcessState& state,
                                                        const FrameworkState& framework, const Trace& trace,
                                                        ProcessIndex process, const Scope& scope) const {
    report::DomainExtents out;
    switch (name_.kind) {
        case DomainKind::kVirtual:
            out.set_name("virtual");
            show_virtual(state, trace, process, scope, out);
            return out;
        case DomainKind::kFramework:
            out.set_name("framework");
            show_framework(framework, trace, process, scope, out);
            return out;
        case DomainKind::kHost:
            out.set_name("host");
            for (const auto& [address, block] : state.host())
                hold(out, range_of(address, block.bytes),
                     block.registered ? "registered pages" : "page-locked allocation");
            out.add_not_known(
                "how much more host memory may be page-locked: the operating system decides, and no call "
                "tells");
            return out;
        case DomainKind::kPhysical:
            break;
        case DomainKind::kPool: {
            const auto pool = state.pools().find(name_.pool);
            if (pool == state.pools().end()) return std::nullopt;
            out.set_name(fmt::format("pool:{:#x}", name_.pool.value));
            // Between the records and now a stream may have got further: no more than that, if none is missing.
            const auto known = complete(trace, process, state, Layer::kPools) ? Extents::Known::kAtMost
                                                                              : Extents::Known::kNot;
            ExtentSet before = ever_in_pool_;
            state.pool_blocks().for_each([&](const Range& range, const PoolBlock& block) {
                before.remove(range);
                if (block.pool == name_.pool) hold(out, range, "live");
            });
            Extents pending;
            state.pending_frees().for_each([&](const Range& range, const PendingFree& free) {
                before.remove(range);
                if (free.pool == name_.pool) pending.add(range);
            });
            const Scope here = scope.in_domain(out.name());
            pending.show(out, "freed by the program, and its stream's word is missing",
                         report::Quantity::pending_free, here, known,
                         "a stream goes on without a call: its pool may give it out again by now, or not yet");
            Extents free;
            before.for_each([&](const Range& range) { free.add(range); });
            free.show(out, "given out before and in no block now", report::Quantity::eligible_free, here,
                      known, "whether the pool still has the memory behind it only the driver knows");
            if (pool->second.said) {
                const Pool::Word& said = *pool->second.said;
                report::FreeExtents& cached = *out.add_eligible_free();
                cached.set_what("cached, as the driver said");
                Scope then = here;
                then.snapshot = said.sequence.value;
                then.time_ns.reset();
                *cached.mutable_sum() =
                    Quantity::measured(report::Quantity::cached,
                                       said.reserved - std::min(said.used, said.reserved), then,
                                       "reserved less used, when the driver was asked")
                        .message();
                *cached.mutable_largest() =
                    Quantity::unknown(report::Quantity::cached, then, "the driver tells no extents")
                        .message();
            }
            out.add_not_known("where the pool's own chunks begin and end: gaps of two chunks do not join");
            return out;
        }
    }
    out.set_name("physical");
    state.physical().for_each_numbered([&](PhysicalId number, const Physical& physical) {
        if (!physical.on_device) return;
        report::DomainExtent& shown = *out.add_held();
        shown.set_bytes(physical.bytes);
        shown.set_what(fmt::format("physical allocation {} on device {}", number, physical.device));
    });
    state.linear().for_each([&](const Range& range, const LinearBlock& block) {
        if (block.kind != Kind::kManagedAcquired)
            hold(out, range, fmt::format("{} on device {}", linear_in_words(block.kind), block.device));
    });
    for (const auto& [ordinal, word] : words_) {
        report::FreeExtents& free = *out.add_eligible_free();
        free.set_what(fmt::format("device-free memory of device {}, as the driver said", ordinal));
        Scope then = scope.in_domain("physical");
        then.device = device_uuid(trace, process, ordinal);
        then.snapshot = word.sequence.value;
        then.time_ns = since_start(trace, word.time);
        *free.mutable_sum() =
            Quantity::measured(report::Quantity::device_free, word.free, then, "cuMemGetInfo").message();
        *free.mutable_largest() =
            Quantity::unknown(report::Quantity::largest_allocatable, then,
                              "where a device's physical memory is not taken no call tells")
                .message();
    }
    out.add_not_known(
        "the extents of physical memory: neither where allocations lie nor what lies between them");
    return out;
}

}  // namespace fragscope::analysis
