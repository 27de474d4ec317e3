#include "analysis/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "analysis/address_space.h"
#include "analysis/domains.h"
#include "analysis/losses.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

std::string device_name(const Trace& trace, ProcessIndex process, int device) {
    const std::string uuid = device_uuid(trace, process, device);
    return uuid.empty() ? fmt::format("device {}", device) : uuid;
}

// Whether the event can have changed what is live, so that a sample after it may differ from one before.
bool changes(const Event& event) {
    if (event.failed() || event.has(wire::kContinued) || event.has(wire::kByShim)) return false;
    return event.kind < Kind::kDevice || event.kind == Kind::kBlockAcquired ||
           event.kind == Kind::kBlockReleased || event.kind == Kind::kBlockWaitOver;
}

// Only the first: a file may name more pools than any program has.
constexpr std::size_t kPools = 64;
constexpr std::size_t kDomains = 64;

}  // namespace

void CurveRecorder::add(const ProcessState& state, const FrameworkState& framework, const Event& event) {
    now_ = event.start;
    sequence_ = event.sequence;
    if (event.kind == Kind::kPoolState && !event.failed()) follow_pool(state, event);
    if (!changes(event)) return;
    follow_allocators(framework, event);
    if (++since_ >= stride_ && (visited_ <= kSmall || 2 * since_ >= visited_)) sample(state, framework);
}

void CurveRecorder::finish(const ProcessState& state, const FrameworkState& framework) {
    if (since_ != 0) sample(state, framework);
}

void CurveRecorder::follow_allocators(const FrameworkState& framework, const Event& event) {
    for (const auto& [ordinal, device] : framework.devices()) {
        AllocatorPoint now;
        now.time_ns = since_start(*trace_, event.start);
        now.sequence = event.sequence.value;
        now.live = device.live();
        now.waiting = device.waiting();
        now.cached = device.cached();
        now.reserved = device.all().reserved_bytes.current;
        Allocator& curve = allocators_[ordinal];
        const AllocatorPoint& last = curve.last;
        if (last.sequence != 0 && now.live == last.live && now.waiting == last.waiting &&
            now.cached == last.cached && now.reserved == last.reserved)
            continue;
        if (now.reserved > curve.most_reserved.reserved) curve.most_reserved = now;
        if (now.live > curve.most_live.live) curve.most_live = now;
        if (now.cached > curve.most_cached.cached) curve.most_cached = now;
        curve.thinner.add(now);
        curve.last = now;
    }
}

void CurveRecorder::follow_pool(const ProcessState& state, const Event& event) {
    const auto pool = state.pools().find(event.object);
    if (pool != state.pools().end() && (!pool->second.on_device || pool->second.imported)) return;
    const std::uint64_t used = event.address.value;
    const std::uint64_t reserved = event.bytes.value;
    if (used > reserved) return;
    auto at = pools_.find(event.object);
    if (at == pools_.end()) {
        if (pools_.size() == kPools) return;
        at = pools_.emplace(event.object, Thinner<PoolPoint>(kCurvePoints)).first;
    }
    at->second.add({since_start(*trace_, event.start), event.sequence.value, reserved - used});
}

void CurveRecorder::sample(const ProcessState& state, const FrameworkState& framework) {
    Sample sample;
    sample.time_ns = since_start(*trace_, now_);
    sample.sequence = sequence_.value;
    visited_ = 1;
    if (!state.ever_reserved().empty()) {
        const AddressSpace space = address_space_of(state, 0, kDefaultPage, kDefaultPage);
        sample.domains[{kNoDevice, "virtual"}] = {space.witnessed.sum(), space.witnessed.largest(),
                                                  space.witnessed.count()};
        // Each of them is put into a set of what is held and taken out of one of what is not.
        visited_ += 4 * (state.reservations().size() + state.mappings().size() + state.linear().size() +
                         state.pool_blocks().size() + state.ever_reserved().size());
    }
    std::map<std::pair<int, std::string>, FreeExtents> gaps;
    framework.for_each_segment([&](const Range& range, const SegmentFacts& facts) {
        ++visited_;
        const std::pair key{facts.device, name_of(FrameworkDomain{facts.large, facts.stream})};
        auto at = gaps.find(key);
        if (at == gaps.end()) {
            if (gaps.size() == kDomains) {
                sample.cut = true;
                return;
            }
            at = gaps.emplace(key, FreeExtents(kBlockUnit, kBlockUnit)).first;
        }
        framework.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
            ++visited_;
            if (block == nullptr) at->second.add(piece);
        });
    });
    for (const auto& [key, extents] : gaps)
        sample.domains[key] = {extents.sum(), extents.largest(), extents.count()};
    all_visited_ += visited_;
    longest_ = std::max(longest_, since_);
    since_ = 0;
    if (sample.domains.empty() && samples_.empty()) return;
    samples_.push_back(std::move(sample));
    if (samples_.size() < kCurvePoints) return;
    // Every second one goes; the last stays.
    std::vector<Sample> kept;
    for (std::size_t i = samples_.size() % 2 == 0 ? 1 : 0; i < samples_.size(); i += 2)
        kept.push_back(std::move(samples_[i]));
    samples_ = std::move(kept);
    stride_ *= 2;
    longest_ *= 2;
}

std::vector<report::DomainCurve> CurveRecorder::domains(const ProcessState& at_end,
                                                        const FrameworkState& framework) const {
    const Losses losses = losses_of(*trace_, process_);
    const auto lost = [&](Layer layer, const Contradictions& contradictions) {
        return with_contradictions(narrowed(losses, layer), contradictions).any();
    };
    const bool addresses_lost = lost(Layer::kAddresses, at_end.contradictions());
    const bool blocks_lost = lost(Layer::kFramework, framework.contradictions());
    std::vector<report::DomainCurve> out;
    std::set<std::pair<int, std::string>> keys;
    for (const Sample& sample : samples_) {
        for (const auto& [key, measured] : sample.domains) keys.insert(key);
    }
    for (const auto& key : keys) {
        const auto& [ordinal, name] = key;
        report::DomainCurve& curve = out.emplace_back();
        curve.set_process(process_.value);
        if (ordinal != kNoDevice) curve.set_device(device_name(*trace_, process_, ordinal));
        curve.set_domain(name);
        curve.set_every_events(longest_);
        const bool weak = ordinal == kNoDevice ? addresses_lost : blocks_lost;
        curve.set_note(std::string(weak ? "Records are missing: what was usable may be less or more. " : "") +
                       (ordinal == kNoDevice ? "Of gaps that were reserved before and given back. " : "") +
                       "Looked at now and then: what lies between two points may be higher or lower.");
        for (const Sample& sample : samples_) {
            const auto found = sample.domains.find(key);
            const Measured measured = found == sample.domains.end() ? Measured{} : found->second;
            // Before its first segment there was no such domain; a gap of zero is one.
            if (found == sample.domains.end() && (curve.points().empty() || sample.cut)) continue;
            report::DomainPoint& point = *curve.add_points();
            point.set_time_ns(sample.time_ns);
            point.set_sequence(sample.sequence);
            point.set_free_sum_bytes(measured.sum);
            point.set_free_largest_bytes(measured.largest);
            point.set_free_extents(measured.count);
            if (measured.sum != 0) {
                point.set_external_ratio(1.0 - static_cast<double>(measured.largest) /
                                                   static_cast<double>(measured.sum));
            }
        }
    }
    for (const auto& [pool, thinner] : pools_) {
        report::DomainCurve& curve = out.emplace_back();
        curve.set_process(process_.value);
        const auto known = at_end.pools().find(pool);
        if (known != at_end.pools().end() && known->second.device != kNoDevice)
            curve.set_device(device_name(*trace_, process_, known->second.device));
        curve.set_domain(pool_in_words(pool));
        curve.set_note(
            "Reserved and not used by the pool, whenever the driver was asked; how it lies there, and so the "
            "largest piece, is not visible to a program.");
        for (const PoolPoint& each : thinner.points()) {
            report::DomainPoint& point = *curve.add_points();
            point.set_time_ns(each.time_ns);
            point.set_sequence(each.sequence);
            point.set_free_sum_bytes(each.kept);
        }
    }
    return out;
}

std::vector<report::AllocatorCurve> CurveRecorder::allocators(const FrameworkState& framework) const {
    std::vector<report::AllocatorCurve> out;
    const Losses lost = with_contradictions(narrowed(losses_of(*trace_, process_), Layer::kFramework),
                                            framework.contradictions());
    for (const auto& [ordinal, curve] : allocators_) {
        std::vector<AllocatorPoint> points = curve.thinner.points();
        for (const AllocatorPoint& kept :
             {curve.most_reserved, curve.most_live, curve.most_cached, curve.last}) {
            if (kept.sequence != 0) points.push_back(kept);
        }
        std::stable_sort(points.begin(), points.end(),
                         [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
        points.erase(std::unique(points.begin(), points.end(),
                                 [](const auto& a, const auto& b) { return a.sequence == b.sequence; }),
                     points.end());
        report::AllocatorCurve& message = out.emplace_back();
        message.set_process(process_.value);
        message.set_device(device_name(*trace_, process_, ordinal));
        const FrameworkDevice& device = framework.device(ordinal);
        std::string note;
        if (lost.any()) note = "Records are missing: live and cached may be less or more.";
        if (device.segments_unseen)
            note +=
                std::string(note.empty() ? "" : " ") +
                "Blocks of it lie in memory that no record shows it take: reserved and cached are the least.";
        message.set_note(note);
        for (const AllocatorPoint& each : points) {
            report::AllocatorPoint& point = *message.add_points();
            point.set_time_ns(each.time_ns);
            point.set_sequence(each.sequence);
            point.set_live_bytes(each.live);
            point.set_waiting_bytes(each.waiting);
            point.set_cached_bytes(each.cached);
            point.set_reserved_bytes(each.reserved);
        }
    }
    return out;
}

}  // namespace fragscope::analysis
