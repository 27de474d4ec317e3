#include "analysis/leaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "analysis/losses.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using report::LeakClass;
using wire::Kind;

constexpr std::size_t kSites = 3;
constexpr std::size_t kThings = 3;

struct Thing {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> handles;
    std::optional<std::uint32_t> exporter;
};

// Whatever falls into one class.
struct Gathered {
    struct Site {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::map<std::uint32_t, Site> sites;  // by call stack
    std::vector<Thing> largest;

    void add(std::uint32_t stack, Thing thing, std::uint64_t how_many = 1) {
        count += how_many;
        bytes += thing.bytes;
        Site& site = sites[stack];
        site.count += how_many;
        site.bytes += thing.bytes;
        const auto behind = std::find_if(largest.begin(), largest.end(),
                                         [&](const Thing& other) { return other.bytes < thing.bytes; });
        if (behind == largest.end() && largest.size() == kThings) return;
        largest.insert(behind, std::move(thing));
        if (largest.size() > kThings) largest.pop_back();
    }
};

// Whether records of these kinds may be missing.
bool may_miss(const Losses& losses, std::initializer_list<Kind> kinds) {
    if (losses.by_kind.empty()) return losses.any();
    return std::any_of(kinds.begin(), kinds.end(), [&](Kind kind) { return losses.by_kind.contains(kind); });
}

// What a class is, beside what is in it.
struct About {
    LeakClass::Kind kind = LeakClass::kind_unspecified;
    const char* what = "";
    Definition definition = report::Quantity::charged;
    const char* shows = "";
    // A missing record of these would take something out of the class, or bring something in.
    std::initializer_list<Kind> takes_out;
    std::initializer_list<Kind> brings_in;
    std::vector<std::string> also;  // further sentences that weaken it
    bool low_unknown = false;       // for a reason that is in `also`
};

class Classes {
  public:
    Classes(const LeakMoment& moment, const StackWords& words)
        : moment_(moment), words_(words), losses_(losses_of(*moment.trace, moment.process)) {}

    void add(const About& about, int device, const Gathered& things) {
        if (things.count == 0) return;
        LeakClass& out = begin(about, device, things.count);
        const Scope scope = scope_of(out.device());
        bool less = about.low_unknown, more = false;
        if (may_miss(losses_, about.takes_out)) {
            less = true;
            out.add_weakened_by("Records of releases may be missing: some of it may have been given back.");
        }
        const Contradictions& odd = moment_.state->contradictions();
        if (odd.overlapping_acquisitions != 0) {
            less = true;
            out.add_weakened_by(
                fmt::format("{} came to addresses or handles that were still taken: releases have no record.",
                            odd.overlapping_acquisitions == 1
                                ? std::string("1 acquisition")
                                : fmt::format("{} acquisitions", odd.overlapping_acquisitions)));
        }
        if (may_miss(losses_, about.brings_in)) {
            more = true;
            out.add_weakened_by("Records of acquisitions may be missing: there may be more of it.");
        }
        for (const std::string& why : about.also) out.add_weakened_by(why);
        const Interval interval{less ? 0 : things.bytes, more ? std::nullopt : std::optional(things.bytes)};
        *out.mutable_bytes() =
            (interval.exact()
                 ? Quantity::derived(about.definition, things.bytes, scope, "sum over its records")
                 : Quantity::bounded(about.definition, interval, scope,
                                     "sum over its records, weakened by what is said beside it"))
                .message();
        add_sites(about, things, interval, scope, out);
        for (const Thing& thing : things.largest) {
            report::LeakedThing& shown = *out.add_largest();
            shown.set_address(thing.address);
            shown.set_bytes(thing.bytes);
            for (const std::uint64_t handle : thing.handles) shown.add_handles(handle);
            if (thing.exporter) shown.set_exporter(*thing.exporter);
        }
    }

    // Of things whose bytes no record says.
    LeakClass& add_unknown(const About& about, int device, std::uint64_t count, const std::string& why) {
        LeakClass& out = begin(about, device, count);
        *out.mutable_bytes() = Quantity::unknown(about.definition, scope_of(out.device()), why).message();
        for (const std::string& also : about.also) out.add_weakened_by(also);
        return out;
    }

    std::vector<LeakClass> take() { return std::move(classes_); }

  private:
    LeakClass& begin(const About& about, int device, std::uint64_t count) {
        LeakClass& out = classes_.emplace_back();
        out.set_kind(about.kind);
        out.set_process(moment_.process.value);
        if (device != kNoDevice) {
            const std::string uuid = device_uuid(*moment_.trace, moment_.process, device);
            out.set_device(uuid.empty() ? fmt::format("device {}", device) : uuid);
        }
        out.set_what(about.what);
        out.set_shows(about.shows);
        out.set_count(count);
        return out;
    }

    Scope scope_of(const std::string& device) const {
        Scope scope;
        scope.process = moment_.process.value;
        scope.device = device;
        scope.snapshot = moment_.sequence;
        scope.time_ns = since_start(*moment_.trace, {moment_.clock_ns});
        return scope;
    }

    void add_sites(const About& about, const Gathered& things, const Interval& all, const Scope& scope,
                   LeakClass& out) {
        std::vector<std::pair<std::uint32_t, Gathered::Site>> sites;
        for (const auto& [stack, site] : things.sites) {
            if (stack == 0)
                out.set_without_stack(site.count);
            else
                sites.emplace_back(stack, site);
        }
        std::stable_sort(sites.begin(), sites.end(),
                         [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
        for (std::size_t i = 0; i < std::min(kSites, sites.size()); ++i) {
            const Gathered::Site& held = sites[i].second;
            report::LeakSite& site = *out.add_sites();
            site.set_count(held.count);
            *site.mutable_bytes() =
                (all.exact() ? Quantity::derived(about.definition, held.bytes, scope, "sum over its records")
                             : Quantity::bounded(about.definition,
                                                 {all.low == 0 ? 0 : held.bytes,
                                                  all.high ? std::optional(held.bytes) : std::nullopt},
                                                 scope, "as weak as the whole"))
                    .message();
            *site.mutable_stack() =
                call_stack_of(*moment_.trace, moment_.process, sites[i].first, words_).value();
        }
        out.set_other_sites(sites.size() - std::min(kSites, sites.size()));
    }

    const LeakMoment& moment_;
    const StackWords& words_;
    Losses losses_;
    std::vector<LeakClass> classes_;
};

using ByDevice = std::map<int, Gathered>;

std::map<PhysicalId, std::vector<std::uint64_t>> handles_by_physical(const ProcessState& state) {
    std::map<PhysicalId, std::vector<std::uint64_t>> out;
    state.handles().for_each(
        [&](const HandleTable::Named& named) { out[named.physical].push_back(named.handle.value); });
    for (auto& [id, handles] : out) std::sort(handles.begin(), handles.end());
    return out;
}

// Physical memory: nothing leads to it; or only its mapping keeps it.
void add_physical(const ProcessState& state, Classes& out) {
    const auto names = handles_by_physical(state);
    ByDevice unmapped, of_host, released;
    std::uint64_t exported = 0, imports = 0;
    state.physical().for_each_numbered([&](PhysicalId id, const Physical& physical) {
        if (physical.maybe_gone || physical.multicast) return;
        const auto found = names.find(id);
        Thing thing{0, physical.bytes, found == names.end() ? std::vector<std::uint64_t>() : found->second,
                    std::nullopt};
        if (physical.mapped_bytes != 0) {
            if (physical.references == 0 && physical.on_device)
                released[physical.device].add(physical.stack, std::move(thing));
            return;
        }
        // Behind an array, or bound to a multicast object: something may lead to it.
        if (physical.arrays != 0 || physical.maybe_held != 0) return;
        if (physical.imported) {
            ++imports;
            return;
        }
        if (physical.exported) ++exported;
        (physical.on_device ? unmapped : of_host)[physical.device].add(physical.stack, std::move(thing));
    });
    About about{LeakClass::handle_without_mapping,
                "physical allocation",
                report::Quantity::charged,
                "A handle holds it, and no address of this process leads to it.",
                {Kind::kHandleReleased, Kind::kMapped},
                {Kind::kHandleCreated, Kind::kHandleRetained, Kind::kUnmapped},
                {},
                false};
    if (exported != 0) {
        about.also.push_back(fmt::format("{} of them {} exported: another process may have mapped {}.",
                                         exported, exported == 1 ? "was" : "were",
                                         exported == 1 ? "it" : "them"));
    }
    for (const auto& [device, things] : unmapped) out.add(about, device, things);
    about.what = "physical allocation in host memory, or of a place that is not known";
    for (const auto& [device, things] : of_host) out.add(about, device, things);
    if (imports != 0) {
        about.what = "imported physical allocation";
        about.also = {"It keeps its owner's memory alive."};
        out.add_unknown(about, kNoDevice, imports, "an import says no size");
    }
    const About kept{LeakClass::released_handle_still_mapped,
                     "physical allocation",
                     report::Quantity::charged,
                     "Every handle to it was released, and a mapping keeps it until it is unmapped.",
                     {Kind::kUnmapped, Kind::kHandleRetained},
                     {Kind::kMapped, Kind::kHandleReleased},
                     {"Programs do this on purpose: a handle is not needed once its memory is mapped."},
                     false};
    for (const auto& [device, things] : released) out.add(kept, device, things);
}

// Address space: mapped and closed to everybody, or reserved and empty.
void add_addresses(const ProcessState& state, Classes& out) {
    ByDevice closed;
    state.mappings().for_each([&](const Range& range, const Mapping& mapping) {
        ExtentSet open;
        state.for_each_access(range, [&](std::uint64_t, const Range& part, std::uint64_t protection) {
            if (protection != 0) open.add(part);
        });
        const std::uint64_t bytes = range.size() - open.sum();
        if (bytes == 0) return;
        const Physical* physical = state.physical().find(mapping.physical);
        closed[physical != nullptr && physical->on_device ? physical->device : kNoDevice].add(
            mapping.stack, {range.begin, bytes, {}, std::nullopt});
    });
    for (const auto& [device, things] : closed) {
        out.add({LeakClass::mapping_without_access,
                 "mapped address space",
                 report::Quantity::mapped,
                 "It is mapped, and cuMemSetAccess has granted no device or host a right to it since.",
                 {Kind::kAccessSet, Kind::kUnmapped},
                 {Kind::kMapped},
                 {},
                 false},
                device, things);
    }
    Gathered empty;
    state.reservations().for_each([&](const Range& range, const Reservation& reservation) {
        if (!state.mappings().overlaps(range))
            empty.add(reservation.stack, {range.begin, range.size(), {}, std::nullopt});
    });
    out.add({LeakClass::reservation_without_mapping,
             "address reservation",
             report::Quantity::address_reserved,
             "Nothing is mapped anywhere in it: it holds address space and no memory.",
             {Kind::kReservationFreed, Kind::kMapped},
             {Kind::kReserved, Kind::kUnmapped},
             {},
             false},
            kNoDevice, empty);
}

void add_pending(const ProcessState& state, Classes& out) {
    ByDevice pending;
    state.pending_frees().for_each([&](const Range& range, const PendingFree& free) {
        pending[free.device].add(free.stack, {range.begin, free.requested, {}, std::nullopt});
    });
    for (const auto& [device, things] : pending) {
        out.add({LeakClass::freed_pending_on_stream,
                 "stream-ordered",
                 report::Quantity::pending_free,
                 "The program freed it in the order of a stream, and no synchronisation of that stream is in "
                 "the records since.",
                 {Kind::kSynchronized, Kind::kPoolAcquired},
                 {Kind::kPoolReleased},
                 {"A stream goes on without a call: it may have got there at any time since."},
                 true},
                device, things);
    }
}

void add_died(const ProcessState& state, Classes& out) {
    ByDevice died;
    for (const auto& [where, sum] : state.died_with_contexts())
        died[where.first].add(where.second, {0, sum.bytes, {}, std::nullopt}, sum.count);
    for (auto& [device, things] : died) {
        things.largest.clear();  // sums of a place, no allocations
        out.add({LeakClass::died_with_context,
                 device == kNoDevice ? "page-locked host memory" : "linear, pitched, managed and array",
                 report::Quantity::requested,
                 "It was live when its context was destroyed or reset, which gave it back.",
                 {Kind::kLinearReleased, Kind::kHostReleased, Kind::kArrayReleased},
                 {Kind::kContextDestroyed, Kind::kPrimaryReleased, Kind::kPrimaryReset},
                 {},
                 false},
                device, things);
    }
}

// Why something may have been given back after the last record, though none says so. Empty: nothing can.
std::vector<std::string> after_the_end(const LeakMoment& moment) {
    const Trace& trace = *moment.trace;
    if (trace.file.cut_off) return {"The recording is cut off: what came after it may have given it back."};
    if (moment.process.value >= trace.processes.size()) return {};
    const trace::Process& process = trace.processes[moment.process.value];
    if (process.ended_how() == "still running")
        return {"The process was still running when the recording ended, and may have given it back later."};
    if (process.ended_how().starts_with("signal") || process.ended_how() == "unknown")
        return {"How the process ended leaves room for a last call without a record."};
    return {};
}

void add_never_freed(const LeakMoment& moment, Classes& out) {
    const ProcessState& state = *moment.state;
    About about{LeakClass::never_freed,
                "",
                report::Quantity::requested,
                "Its owner never gave it back in this recording.",
                {},
                {},
                after_the_end(moment),
                false};
    about.low_unknown = !about.also.empty();
    const auto each = [&](const char* what, Definition definition, std::initializer_list<Kind> given_back,
                          std::initializer_list<Kind> taken, const ByDevice& by_device) {
        about.what = what;
        about.definition = definition;
        about.takes_out = given_back;
        about.brings_in = taken;
        for (const auto& [device, things] : by_device) out.add(about, device, things);
    };
    ByDevice linear, managed, pools, physical, arrays, host;
    state.linear().for_each([&](const Range& range, const LinearBlock& block) {
        (block.kind == Kind::kManagedAcquired ? managed : linear)[block.device].add(
            block.stack, {range.begin, block.requested, {}, std::nullopt});
    });
    state.pool_blocks().for_each([&](const Range& range, const PoolBlock& block) {
        pools[block.device].add(block.stack, {range.begin, block.requested, {}, std::nullopt});
    });
    const auto names = handles_by_physical(state);
    state.physical().for_each_numbered([&](PhysicalId id, const Physical& one) {
        if (!one.on_device || one.maybe_gone) return;
        const auto found = names.find(id);
        physical[one.device].add(
            one.stack, {0, one.bytes, found == names.end() ? std::vector<std::uint64_t>() : found->second,
                        std::nullopt});
    });
    for (const auto& [handle, array] : state.arrays().all()) {
        if (array.owns_memory)
            arrays[array.device].add(array.stack, {0, array.texel_bytes, {handle.value}, std::nullopt});
    }
    for (const auto& [address, block] : state.host())
        host[kNoDevice].add(0, {address, block.bytes, {}, std::nullopt});
    constexpr Definition kAsked = report::Quantity::requested;
    each("linear", kAsked, {Kind::kLinearReleased, Kind::kContextDestroyed, Kind::kPrimaryReset},
         {Kind::kLinearAcquired, Kind::kPitchAcquired}, linear);
    each("managed", kAsked, {Kind::kLinearReleased, Kind::kContextDestroyed, Kind::kPrimaryReset},
         {Kind::kManagedAcquired}, managed);
    each("stream-ordered", kAsked, {Kind::kPoolReleased, Kind::kLinearReleased}, {Kind::kPoolAcquired},
         pools);
    each("physical allocation", report::Quantity::charged,
         {Kind::kHandleReleased, Kind::kUnmapped, Kind::kArrayReleased, Kind::kArrayMapped},
         {Kind::kHandleCreated, Kind::kHandleRetained, Kind::kMapped}, physical);
    each("array", kAsked, {Kind::kArrayReleased, Kind::kContextDestroyed, Kind::kPrimaryReset},
         {Kind::kArrayCreated}, arrays);
    each("page-locked host memory", kAsked, {Kind::kHostReleased, Kind::kHostUnregistered},
         {Kind::kHostAcquired, Kind::kHostRegistered}, host);
}

// Memory of others that this process still holds although they have given it up.
void add_imports(const LeakMoment& moment, const Sharing& sharing, Classes& out) {
    std::map<int, Gathered> kept;
    std::uint64_t without_size = 0;
    const std::uint64_t now = moment.clock_ns;
    for (const SharedMemory& memory : sharing.memory()) {
        if (memory.held.at(now)) continue;
        for (const SharedImport& import : memory.imports) {
            if (import.process != moment.process || !import.held.at(now)) continue;
            if (memory.range.size() == 0) {
                ++without_size;
                continue;
            }
            const std::string uuid = device_uuid(*moment.trace, memory.exporter, memory.device);
            kept[ordinal_of(*moment.trace, moment.process, uuid)].add(
                0, {import.address, memory.range.size(), {}, memory.exporter.value});
        }
    }
    About about{LeakClass::import_outlives_exporter,
                "memory of another process, opened",
                report::Quantity::charged,
                "Whoever exported it has freed it or ended, and this process still has it open.",
                {Kind::kIpcClosed, Kind::kLinearReleased, Kind::kPoolReleased},
                {Kind::kIpcOpened, Kind::kPoolPointerImported},
                {"Freeing exported memory before every importer has closed it is undefined in CUDA's "
                 "documentation: whether its bytes are still held is not known."},
                true};
    for (const auto& [device, things] : kept) out.add(about, device, things);
    if (without_size != 0)
        out.add_unknown(about, kNoDevice, without_size, "its allocation is not in the exporter's records");

    // Descriptions of physical handles carry no identity.
    if (moment.state->imported_handles() == 0) return;
    bool ever = false, still = false;
    for (std::uint32_t other = 0; other < moment.trace->events.size(); ++other) {
        if (other == moment.process.value) continue;
        for (const Held& held : sharing.handles({other}).exported) {
            ever = ever || held.from_ns <= now;
            still = still || held.at(now);
        }
    }
    if (!ever || still) return;
    about.what = "imported physical allocation";
    about.shows =
        "Every process of this trace that exported physical memory has given all of it up, and this "
        "one still holds what it imported.";
    about.also = {
        "Which export an import belongs to has no record: its owner may be a process that was not "
        "recorded."};
    out.add_unknown(about, kNoDevice, moment.state->imported_handles(), "an import says no size");
}

}  // namespace

std::vector<report::LeakClass> leaks_at(const LeakMoment& moment, const Sharing& sharing,
                                        const StackWords& words) {
    Classes out(moment, words);
    add_physical(*moment.state, out);
    add_addresses(*moment.state, out);
    if (sharing.used()) add_imports(moment, sharing, out);
    add_pending(*moment.state, out);
    if (moment.at_the_end) add_never_freed(moment, out);
    add_died(*moment.state, out);
    return out.take();
}

}  // namespace fragscope::analysis
