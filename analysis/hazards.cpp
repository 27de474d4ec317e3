#include "analysis/hazards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/losses.h"
#include "analysis/session.h"
#include "analysis/situation.h"
#include "analysis/state_books.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr std::size_t kExamples = 3;

// The largest few, the largest first.
void keep(std::vector<report::HazardExample>& largest, report::HazardExample example) {
    const auto behind = std::find_if(largest.begin(), largest.end(), [&](const report::HazardExample& other) {
        return other.bytes() < example.bytes();
    });
    if (behind == largest.end() && largest.size() == kExamples) return;
    largest.insert(behind, std::move(example));
    if (largest.size() > kExamples) largest.pop_back();
}

bool is_touch_recorded(const Trace& trace) {
    return trace.session.has_recording() && trace.session.recording().touches();
}

std::string context_in_words(ObjectId context) { return fmt::format("context {:#x}", context.value); }

// What writes and reads the trace cannot show, for hazards that rest on contents.
void add_unseen(const Trace& trace, ProcessIndex process, report::Hazard& out) {
    if (process.value < trace.losses.size()) {
        const trace::Loss& loss = trace.losses[process.value];
        if (!loss.has_kernel_launches()) {
            out.add_not_shown(
                "Whether kernels wrote to it: the trace does not say whether any were launched.");
        } else if (loss.kernel_launches() != 0) {
            out.add_not_shown(fmt::format(
                "Whether kernels wrote to it: {} were launched, and what they write has no record.",
                loss.kernel_launches()));
        }
        if (loss.opaque_writes() != 0) {
            out.add_not_shown(fmt::format(
                "Whether one of {} copies wrote to it whose extent was not recorded.", loss.opaque_writes()));
        }
    }
    if (narrowed(losses_of(trace, process), Layer::kPayload).any())
        out.add_not_shown("Whether a write to it is among the records that were lost.");
    out.add_not_shown("Whether anybody read it.");
}

}  // namespace

// --------------------------------------------------------------------------------------- over the run

HazardWatch::HazardWatch(const Trace& trace, ProcessIndex process) : trace_(trace), process_(process) {
    if (is_touch_recorded(trace)) find_out_what_is_needed();
}

void HazardWatch::find_out_what_is_needed() {
    std::map<int, std::set<ObjectId>> contexts;
    std::set<std::uint64_t> locations;
    for (const Event& event : trace_.events[process_.value]) {
        if (event.failed()) continue;
        if (event.kind == Kind::kLinearAcquired || event.kind == Kind::kPitchAcquired) {
            if (event.object.value != 0) contexts[event.device].insert(event.object);
        } else if (event.kind == Kind::kStreamCreated && event.extra != 0) {
            contexts[event.device].insert(ObjectId{event.extra});
        } else if (event.kind == Kind::kAccessSet && event.extra != 0) {
            locations.insert(event.object.value);
        }
    }
    several_contexts_ = std::any_of(contexts.begin(), contexts.end(),
                                    [](const auto& on_device) { return on_device.second.size() > 1; });
    several_locations_ = locations.size() > 1;
}

void HazardWatch::add(const ProcessState& after, const Event& event) {
    if ((!several_contexts_ && !several_locations_) || event.failed()) return;
    switch (event.kind) {
        case Kind::kStreamCreated:
            context_of_[event.object] = ObjectId{event.extra};
            return;
        case Kind::kStreamDestroyed:
            context_of_.erase(event.object);
            return;
        case Kind::kLinearAcquired:
            return acquired(event, event.object, event.bytes.value);
        case Kind::kPitchAcquired:
            return acquired(event, event.object, std::max(event.bytes.value, event.extra));
        case Kind::kPoolAcquired: {
            if (event.has(wire::kCaptured)) return;
            const auto found = context_of_.find(ObjectId{event.extra});
            return acquired(event, found == context_of_.end() ? ObjectId{} : found->second,
                            event.bytes.value);
        }
        case Kind::kLinearReleased:
        case Kind::kPoolReleased:
            return released(event);
        case Kind::kMapped:
            return mapped(after, event);
        case Kind::kAccessSet:
            return granted(after, event);
        case Kind::kTouched:
            return touched(after, event);
        default:
            return;
    }
}

report::HazardExample HazardWatch::example_of(const Event& event, std::uint64_t address) const {
    report::HazardExample out;
    out.set_address(address);
    out.set_sequence(event.sequence.value);
    out.set_time_ns(since_start(trace_, event.start));
    return out;
}

void HazardWatch::Sum::add(const PassedOn& passed) {
    if (passed.unwritten.sum() == 0) return;
    ++count;
    bytes += passed.unwritten.sum();
    report::HazardExample example = passed.example;
    example.set_bytes(passed.unwritten.sum());
    keep(largest, std::move(example));
}

void HazardWatch::acquired(const Event& event, ObjectId context, std::uint64_t bytes) {
    if (!several_contexts_) return;
    const Range range = range_of(event.address.value, bytes);
    released(event);
    PassedOn passed;
    for (auto& [device, by_context] : used_) {
        for (auto& [owner, addresses] : by_context) {
            if (owner == context && device == event.device) continue;
            // What lay on another device is other memory. Whose stream a block is for is not always known.
            if (device == event.device && owner.value != 0 && context.value != 0 &&
                addresses.overlap(range) != 0) {
                addresses.for_each_in(range, [&](const Range& part) { passed.unwritten.add(part); });
                passed.example = example_of(event, range.begin);
                passed.example.set_before(context_in_words(owner));
                passed.example.set_after(context_in_words(context));
            }
            addresses.remove(range);
        }
    }
    used_[event.device][context].add(range);
    if (!passed.unwritten.empty()) open_.emplace(range.begin, std::move(passed));
}

void HazardWatch::released(const Event& event) {
    const auto found = open_.find(event.address.value);
    if (found == open_.end()) return;
    contexts_.add(found->second);
    open_.erase(found);
}

void HazardWatch::mapped(const ProcessState& after, const Event& event) {
    if (!several_locations_) return;
    const auto mapping = after.mappings().find(event.address.value);
    if (!mapping) return;
    const Physical* physical = after.physical().find(mapping->value.physical);
    if (physical == nullptr) return;
    if (reached_.size() > 2 * after.physical().size() + 64) forget_gone(after);
    Reached& reached = reached_[mapping->value.physical];
    // Beside an older mapping it is the same tenancy.
    if (physical->mapped_bytes != mapping->range.size()) return;
    for (const PassedOn& passed : reached.passed_on) locations_.add(passed);
    reached.passed_on.clear();
    if (!reached.now.empty()) reached.before = std::move(reached.now);
    reached.now.clear();
}

void HazardWatch::forget_gone(const ProcessState& after) {
    for (auto at = reached_.begin(); at != reached_.end();) {
        if (after.physical().find(at->first) != nullptr) {
            ++at;
            continue;
        }
        for (const PassedOn& passed : at->second.passed_on) locations_.add(passed);
        at = reached_.erase(at);
    }
}

void HazardWatch::granted(const ProcessState& after, const Event& event) {
    if (!several_locations_ || event.extra == 0) return;
    const Range range = range_of(event.address.value, event.bytes.value);
    const std::uint64_t location = event.object.value;
    after.mappings().for_each_in(range, [&](const Range& part, const Mapping& mapping) {
        const auto found = reached_.find(mapping.physical);
        const Physical* physical = after.physical().find(mapping.physical);
        if (found == reached_.end() || physical == nullptr) return;
        Reached& reached = found->second;
        const bool fresh = reached.now.insert(location).second;
        if (!fresh || reached.before.empty() || reached.before.contains(location)) return;
        const std::uint64_t begin = std::max(part.begin, range.begin);
        const std::uint64_t end = std::min(part.end, range.end);
        PassedOn passed;
        passed.unwritten.add(range_of(begin - mapping.begin + mapping.offset, end - begin));
        passed.example = example_of(event, begin);
        std::string before;
        for (const std::uint64_t one : reached.before)
            before += (before.empty() ? "" : ", ") + location_in_words(one);
        passed.example.set_before(before);
        passed.example.set_after(location_in_words(location));
        reached.passed_on.push_back(std::move(passed));
    });
}

void HazardWatch::touched(const ProcessState& after, const Event& event) {
    const Range written = range_of(event.address.value, event.bytes.value);
    if (!open_.empty()) {
        auto at = open_.upper_bound(written.begin);
        if (at != open_.begin()) --at;
        for (; at != open_.end() && at->first < written.end; ++at) at->second.unwritten.remove(written);
    }
    if (!several_locations_) return;
    after.mappings().for_each_in(written, [&](const Range& part, const Mapping& mapping) {
        const auto found = reached_.find(mapping.physical);
        if (found == reached_.end()) return;
        const std::uint64_t begin = std::max(part.begin, written.begin);
        const std::uint64_t end = std::min(part.end, written.end);
        for (PassedOn& passed : found->second.passed_on)
            passed.unwritten.remove(range_of(begin - mapping.begin + mapping.offset, end - begin));
    });
}

report::Hazard HazardWatch::message_of(const Sum& sum, const std::string& device, const char* what) const {
    report::Hazard out;
    out.set_kind(report::Hazard::recycled_unwritten);
    out.set_process(process_.value);
    out.set_device(device);
    out.set_count(sum.count);
    out.set_by_records(false);
    out.set_what(what);
    Scope scope;
    scope.process = process_.value;
    scope.device = device;
    *out.mutable_bytes() =
        Quantity::bounded(report::Quantity::live, {0, sum.bytes}, scope,
                          "no copy and no memset to it is in the records since; what kernels wrote has none")
            .message();
    for (const report::HazardExample& example : sum.largest) *out.add_examples() = example;
    return out;
}

std::vector<report::Hazard> HazardWatch::found() const {
    std::vector<report::Hazard> out;
    Sum contexts = contexts_, locations = locations_;
    for (const auto& [address, passed] : open_) contexts.add(passed);
    for (const auto& [physical, reached] : reached_) {
        for (const PassedOn& passed : reached.passed_on) locations.add(passed);
    }
    if (contexts.count != 0) {
        report::Hazard hazard = message_of(
            contexts, "",
            "Addresses of one context's memory came to another context of the same device without a recorded "
            "write in between: it may have seen what the first one left there.");
        hazard.add_shown(
            "The first context had freed memory at these addresses, and the other one got them.");
        hazard.add_not_shown(
            "Whether the same physical memory lies there again, and whether the driver cleared it.");
        add_unseen(trace_, process_, hazard);
        out.push_back(std::move(hazard));
    }
    if (locations.count != 0) {
        report::Hazard hazard = message_of(
            locations, "",
            "Physical memory was unmapped and mapped again for a device or host that could not reach it "
            "before, without a recorded write in between: its contents of before may be seen there.");
        hazard.add_shown(
            "It is the same physical allocation, and its memory was never given back meanwhile.");
        add_unseen(trace_, process_, hazard);
        out.push_back(std::move(hazard));
    }
    return out;
}

// --------------------------------------------------------------------------------------- at a moment

namespace {

class AtMoment {
  public:
    AtMoment(const LeakMoment& moment, const Sharing& sharing, const FrameworkState* framework)
        : moment_(moment),
          trace_(*moment.trace),
          state_(*moment.state),
          sharing_(sharing),
          framework_(framework) {}

    std::vector<report::Hazard> operator()() {
        aliases();
        after_release();
        after_owner();
        exported_whole();
        return std::move(out_);
    }

  private:
    struct Sum {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::uint64_t without_size = 0;  // of `count`: how large they are no record says
        bool maybe_gone = false;         // nothing says that its bytes are still held
        std::vector<report::HazardExample> largest;
        void add(std::uint64_t more, report::HazardExample example) {
            ++count;
            bytes += more;
            if (more == 0) ++without_size;
            example.set_bytes(more);
            keep(largest, std::move(example));
        }
    };

    report::Hazard& begin(report::Hazard::Kind kind, int device, const Sum& sum, Definition definition,
                          const char* what, bool by_records = true) {
        report::Hazard& out = out_.emplace_back();
        out.set_kind(kind);
        out.set_process(moment_.process.value);
        if (device != kNoDevice) {
            const std::string uuid = device_uuid(trace_, moment_.process, device);
            out.set_device(uuid.empty() ? fmt::format("device {}", device) : uuid);
        }
        out.set_count(sum.count);
        out.set_by_records(by_records);
        out.set_what(what);
        Scope scope;
        scope.process = moment_.process.value;
        scope.device = out.device();
        scope.snapshot = moment_.sequence;
        scope.time_ns = since_start(trace_, {moment_.clock_ns});
        // A lost release would make it less.
        const bool sure = !losses_of(trace_, moment_.process).any() && state_.contradictions()() == 0;
        *out.mutable_bytes() =
            (!sure ? Quantity::bounded(
                         definition, {0, std::nullopt}, scope,
                         fmt::format("{} by the records, and some of them are missing", in_words(sum.bytes)))
             : sum.without_size != 0
                 ? Quantity::bounded(definition, {sum.maybe_gone ? 0 : sum.bytes, std::nullopt}, scope,
                                     fmt::format("how large {} of them are is not in the records",
                                                 sum.without_size))
             : sum.maybe_gone
                 ? Quantity::bounded(definition, {0, sum.bytes}, scope,
                                     "their sizes when they were exported; whether the bytes are still held "
                                     "is not known")
                 : Quantity::derived(definition, sum.bytes, scope, "sum over its records"))
                .message();
        for (const report::HazardExample& example : sum.largest) *out.add_examples() = example;
        return out;
    }

    int device_of_physical(PhysicalId id) const {
        const Physical* physical = state_.physical().find(id);
        return physical != nullptr && physical->on_device ? physical->device : kNoDevice;
    }

    // Physical bytes that two addresses lead to.
    void aliases() {
        struct Part {
            Range offsets;
            std::uint64_t address;
        };
        std::map<PhysicalId, std::vector<Part>> parts;
        state_.mappings().for_each([&](const Range& range, const Mapping& mapping) {
            const Physical* physical = state_.physical().find(mapping.physical);
            if (physical == nullptr || physical->multicast || physical->mapped_bytes == range.size()) return;
            const std::uint64_t offset = mapping.offset + (range.begin - mapping.begin);
            parts[mapping.physical].push_back({range_of(offset, range.size()), range.begin});
        });
        std::map<int, Sum> sums;
        for (auto& [id, all] : parts) {
            std::sort(all.begin(), all.end(), [](const Part& a, const Part& b) {
                return std::pair(a.offsets.begin, a.address) < std::pair(b.offsets.begin, b.address);
            });
            // In order of offsets, whatever begins before the furthest end so far is there already.
            std::uint64_t covered = 0, twice_up_to = 0, bytes = 0;
            std::uint64_t holder = 0;  // the address that reaches furthest
            report::HazardExample example;
            for (const Part& part : all) {
                const std::uint64_t from = std::max(part.offsets.begin, twice_up_to);
                const std::uint64_t to = std::min(part.offsets.end, covered);
                if (from < to) {
                    if (bytes == 0) {
                        example.set_address(holder);
                        example.set_other_address(part.address);
                    }
                    bytes += to - from;
                    twice_up_to = to;
                }
                if (part.offsets.end > covered) {
                    covered = part.offsets.end;
                    holder = part.address;
                }
            }
            if (bytes != 0) sums[device_of_physical(id)].add(bytes, std::move(example));
        }
        for (const auto& [device, sum] : sums) {
            report::Hazard& out = begin(
                report::Hazard::alias, device, sum, report::Quantity::mapped,
                "The same physical bytes can be reached at two addresses at once: unmapping one of them "
                "leaves the other valid.");
            out.add_shown("Two mappings of one physical allocation that overlap in it.");
            out.add_not_shown(
                "Whether it is meant: ring buffers and memory that two users share are made so on purpose.");
        }
    }

    bool anybody_may_reach(const Range& range) const {
        bool any = false;
        state_.for_each_access(range, [&](std::uint64_t, const Range&, std::uint64_t protection) {
            any = any || protection != 0;
        });
        return any;
    }

    // The handle is gone, and a mapping with access is left.
    void after_release() {
        std::map<int, Sum> sums;
        state_.mappings().for_each([&](const Range& range, const Mapping& mapping) {
            const Physical* physical = state_.physical().find(mapping.physical);
            if (physical == nullptr || physical->references != 0 || !anybody_may_reach(range)) return;
            report::HazardExample example;
            example.set_address(range.begin);
            sums[device_of_physical(mapping.physical)].add(range.size(), std::move(example));
        });
        for (const auto& [device, sum] : sums) {
            report::Hazard& out = begin(
                report::Hazard::reachable_after_release, device, sum, report::Quantity::mapped,
                "Every handle to this memory was released, and it can still be reached by its mappings.");
            out.add_shown("Mappings with access, of physical allocations without a handle.");
            out.add_not_shown(
                "Whether it is meant: a handle is not needed once its memory is mapped, and many programs "
                "release it then.");
        }
    }

    // Another process's memory that it has given up, and that this one still reaches.
    void after_owner() {
        const std::uint64_t now = moment_.clock_ns;
        Sum sum, again;
        sum.maybe_gone = again.maybe_gone = true;
        for (const SharedMemory& memory : sharing_.memory()) {
            if (memory.held.at(now)) continue;
            for (const SharedImport& import : memory.imports) {
                if (import.process != moment_.process || !import.held.at(now)) continue;
                report::HazardExample example;
                example.set_address(import.address);
                example.set_other_address(memory.range.begin);
                example.set_other_process(memory.exporter.value);
                if (memory.held.until_ns) example.set_time_ns(since_start(trace_, {*memory.held.until_ns}));
                example.set_before(memory.given_up_by);
                sum.add(memory.range.size(), example);
                if (memory.given_out_again == 0 || memory.given_out_again_ns > now) continue;
                example.set_sequence(memory.given_out_again);
                again.add(memory.range.size(), std::move(example));
            }
        }
        if (sum.count != 0) {
            report::Hazard& out =
                begin(report::Hazard::reachable_after_owner, kNoDevice, sum, report::Quantity::charged,
                      "Another process has given this memory up, and this process still has it open.", true);
            out.add_shown("By the identity of what was exported, and by the clock.");
            out.add_not_shown(
                "What lies there now: CUDA's documentation calls freeing exported memory before its "
                "importers have closed it undefined.");
        }
        if (again.count != 0) {
            report::Hazard& out = begin(
                report::Hazard::recycled_unwritten, kNoDevice, again, report::Quantity::charged,
                "The process that exported this memory freed it and got the same addresses again, while "
                "this process still had it open: it may see what is written there now.",
                false);
            out.add_shown("The exporter's new allocation overlaps the one that this process opened.");
            out.add_not_shown("Whether the same physical memory lies there again.");
            out.add_not_shown("Whether anybody read it.");
        }
        // Descriptions of physical handles carry no identity: who keeps whose, no record says.
        if (state_.imported_handles() == 0) return;
        bool ever = false, still = false;
        for (std::uint32_t other = 0; other < trace_.events.size(); ++other) {
            if (other == moment_.process.value) continue;
            for (const Held& held : sharing_.handles({other}).exported) {
                ever = ever || held.from_ns <= now;
                still = still || held.at(now);
            }
        }
        if (!ever || still) return;
        Sum imported;
        state_.mappings().for_each([&](const Range& range, const Mapping& mapping) {
            const Physical* physical = state_.physical().find(mapping.physical);
            if (physical == nullptr || !physical->imported || !anybody_may_reach(range)) return;
            report::HazardExample example;
            example.set_address(range.begin);
            imported.add(range.size(), std::move(example));
        });
        if (imported.count == 0) return;
        report::Hazard& out =
            begin(report::Hazard::reachable_after_owner, kNoDevice, imported, report::Quantity::mapped,
                  "Every process of this trace that exported physical memory has given it up, and this one "
                  "still has access to what it imported.",
                  false);
        out.add_shown("Mappings with access, of imported physical allocations.");
        out.add_not_shown(
            "Which export an import belongs to: its owner may be a process that was not recorded.");
    }

    // Exported as a whole, and a framework's allocator has cut it into blocks.
    void exported_whole() {
        if (framework_ == nullptr || !framework_->used()) return;
        std::map<int, Sum> sums;
        std::map<int, std::uint64_t> blocks;
        framework_->for_each_segment([&](const Range& segment, const SegmentFacts& facts) {
            bool exported = false;
            if (const auto linear = state_.linear().find(segment.begin)) exported = linear->value.exported;
            state_.mappings().for_each_in(segment, [&](const Range&, const Mapping& mapping) {
                const Physical* physical = state_.physical().find(mapping.physical);
                exported = exported || (physical != nullptr && physical->exported);
            });
            if (!exported) return;
            std::uint64_t live = 0;
            framework_->for_each_piece(segment, [&](const Range&, const FrameworkBlock* block) {
                if (block != nullptr) ++live;
            });
            if (live < 2) return;
            blocks[facts.device] += live;
            report::HazardExample example;
            example.set_address(segment.begin);
            example.set_before(fmt::format("{} blocks", live));
            sums[facts.device].add(segment.size(), std::move(example));
        });
        for (const auto& [device, sum] : sums) {
            report::Hazard& out =
                begin(report::Hazard::exported_whole, device, sum, report::Quantity::charged,
                      "A framework's allocator has cut exported memory into several blocks: whoever opens it "
                      "can reach all of them, not only the one that it was exported for.");
            out.add_shown(fmt::format("{} blocks lie in exported memory.", blocks[device]));
            out.add_not_shown("Which of them were meant to be shared.");
        }
    }

    const LeakMoment& moment_;
    const Trace& trace_;
    const ProcessState& state_;
    const Sharing& sharing_;
    const FrameworkState* framework_;
    std::vector<report::Hazard> out_;
};

}  // namespace

std::vector<report::Hazard> hazards_at(const LeakMoment& moment, const Sharing& sharing,
                                       const FrameworkState* framework) {
    return AtMoment(moment, sharing, framework)();
}

}  // namespace fragscope::analysis
