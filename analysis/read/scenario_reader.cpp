#include "analysis/read/scenario_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "analysis/read/json.h"
#include "analysis/read/scenario_place.h"
#include "analysis/scenario_layout.h"

namespace fragscope::analysis {
namespace {

using Kind = JsonValue::Kind;
using Object = ScenarioObject;

constexpr std::size_t kMaxIdBytes = 200;
constexpr std::uint64_t kMaxLeaks = std::uint64_t{1} << 40;

void read_device(Object& object, ScenarioDevice& out) {
    out.capacity = object.required_amount("capacity");
    out.granularity = object.count_or("granularity", out.granularity);
    if (out.granularity == 0) object.complain("granularity", "a page of the driver, at least 1 byte");
    out.context = object.amount_or("context_bytes", out.context);
    out.other_processes = object.amount_or("other_processes_bytes", out.other_processes);
    out.device_free = object.optional_amount("device_free");
    out.allocator_limit = object.optional_amount("allocator_limit");
    out.commit_limit = object.optional_amount("commit_limit");
    out.pinned_host_limit = object.optional_amount("pinned_host_limit");
    out.address_space = object.optional_amount("address_space_bytes");
    out.bar1 = object.optional_amount("bar1_bytes");
    out.per_allocation_limit = object.optional_amount("per_allocation_limit");
    out.mapping_limit = object.optional_count("mapping_limit");
    out.mappings = object.optional_count("mappings");
    out.handle_types = object.texts("handle_types");
    out.pinned_rounds_to_power_of_two = object.flag("pinned_rounds_to_power_of_two");
    out.contiguity_required = object.flag("contiguity_required");
    out.driver_refused = object.flag("driver_refused");
}

// What the events of one line are read into: blocks and allocations by their names.
class Events {
  public:
    explicit Events(Scenario& out) : out_(out) {}

    void read(Object& event) {
        const std::string op = event.required_text("op");
        if (event.failed()) return;
        static constexpr std::array<std::pair<std::string_view, void (Events::*)(Object&)>, 10> kOps = {{
            {"device", &Events::device},
            {"driver_alloc", &Events::driver_alloc},
            {"driver_free", &Events::driver_free},
            {"segment", &Events::segment},
            {"block", &Events::block},
            {"block_free", &Events::block_free},
            {"host_pin", &Events::host_pin},
            {"va_reserve", &Events::va_reserve},
            {"handle_leak", &Events::handle_leak},
            {"physical_free_runs", &Events::physical_free_runs},
        }};
        const auto found =
            std::find_if(kOps.begin(), kOps.end(), [&](const auto& row) { return row.first == op; });
        if (found == kOps.end()) {
            std::string known;
            for (const auto& row : kOps) known += (known.empty() ? "" : ", ") + std::string(row.first);
            event.complain("op", "one of " + known);
            return;
        }
        if (op != "device" && !device_seen_) {
            event.complain("op", "\"device\" in the first event");
            return;
        }
        (this->*found->second)(event);
    }
    // After the last event.
    void finish() {
        for (const auto& [id, bytes] : allocations_) out_.allocations.push_back(bytes);
        for (auto& [id, live] : blocks_) out_.segments[live.segment].blocks.push_back(std::move(live.block));
    }

  private:
    void device(Object& event) {
        if (device_seen_) return event.complain("op", "one device only");
        device_seen_ = true;
        read_device(event, out_.device);
    }
    void driver_alloc(Object& event) {
        const std::string id = event.required_text("id");
        const Interval bytes = event.required_amount("bytes");
        if (event.failed()) return;
        if (!allocations_.emplace(id, bytes).second)
            return event.complain("id", "a name that no allocation has at this point");
    }
    void driver_free(Object& event) {
        const std::string id = event.required_text("id");
        const bool held = event.flag("held_by_importer");
        if (event.failed()) return;
        const auto found = allocations_.find(id);
        if (found == allocations_.end()) return event.complain("id", "the name of a driver_alloc before it");
        if (held) out_.held_by_importers.push_back(found->second);
        allocations_.erase(found);
    }
    void segment(Object& event) {
        ScenarioSegment segment;
        segment.id = event.required_text("id");
        segment.bytes = event.required_amount("bytes");
        segment.owner = event.text_or("owner");
        segment.stream = event.text_or("stream");
        segment.several = event.flag("several");
        if (event.failed()) return;
        if (!segments_.emplace(segment.id, out_.segments.size()).second)
            return event.complain("id", "a name that no other segment has");
        placed_.emplace_back();
        out_.segments.push_back(std::move(segment));
    }
    void block(Object& event) {
        ScenarioBlock block;
        block.id = event.required_text("id");
        const std::string in = event.required_text("segment");
        block.offset = event.optional_count("offset");
        block.bytes = event.required_amount("bytes");
        block.requested = event.optional_amount("requested");
        if (event.failed()) return;
        const auto found = segments_.find(in);
        if (found == segments_.end()) return event.complain("segment", "the name of a segment before it");
        const ScenarioSegment& segment = out_.segments[found->second];
        Placed& placed = placed_[found->second];
        const std::uint64_t least = block.bytes.low.value_or(0);
        const std::uint64_t most = segment.bytes.high.value_or(UINT64_MAX);
        if (segment.several && block.offset)
            return event.complain("offset", "no offset: that segment stands for several");
        if (block.requested && block.requested->low.value_or(0) > block.bytes.high.value_or(UINT64_MAX))
            return event.complain("requested", "no more than the block's bytes");
        if (least > most - placed.sum)
            return event.complain(
                "bytes",
                fmt::format("blocks that are no more than their segment together, which has {} B", most));
        if (block.offset) {
            if (*block.offset > most || least > most - *block.offset)
                return event.complain(
                    "offset", fmt::format("a block that ends inside of its segment, which has {} B", most));
            if (const std::string* other = overlapping(placed, *block.offset, least))
                return event.complain("offset",
                                      "a block that overlaps none; it overlaps " + quoted_text(*other));
        }
        const std::string id = block.id;
        if (!blocks_.emplace(id, Live{found->second, block}).second)
            return event.complain("id", "a name that no live block has");
        if (block.offset) placed.extents.emplace(*block.offset, std::pair(*block.offset + least, id));
        placed.sum += least;
    }
    void block_free(Object& event) {
        const std::string id = event.required_text("id");
        const std::string stream = event.text_or("pending_on_stream");
        if (event.failed()) return;
        const auto found = blocks_.find(id);
        if (found == blocks_.end()) return event.complain("id", "the name of a live block before it");
        Live& live = found->second;
        if (!stream.empty()) {
            // It keeps its place until the stream has got there.
            live.block.pending = true;
            out_.segments[live.segment].blocks.push_back(std::move(live.block));
        } else {
            Placed& placed = placed_[live.segment];
            if (live.block.offset) placed.extents.erase(*live.block.offset);
            placed.sum -= live.block.bytes.low.value_or(0);
        }
        blocks_.erase(found);
    }
    void host_pin(Object& event) {
        event.text_or("id");
        out_.pins.push_back(event.required_amount("bytes"));
    }
    void va_reserve(Object& event) {
        event.text_or("id");
        ScenarioReservation reservation;
        reservation.bytes = event.required_amount("bytes");
        reservation.offset = event.optional_count("offset");
        const std::optional<std::uint64_t> address = event.optional_count("address");
        if (reservation.offset && address) event.complain("address", "an offset or an address, not both");
        if (address) reservation.offset = address;
        if (event.failed()) return;
        const Interval space = out_.device.address_space.value_or(Interval{});
        const std::uint64_t most = space.high.value_or(UINT64_MAX);
        if (reservation.offset &&
            (*reservation.offset > most || reservation.bytes.low.value_or(0) > most - *reservation.offset))
            return event.complain("offset", "a reservation that ends inside of the address space");
        if (reservation.offset) {
            const std::uint64_t end = *reservation.offset + reservation.bytes.low.value_or(0);
            const auto next = reserved_.lower_bound(*reservation.offset);
            if ((next != reserved_.end() && next->first < end) ||
                (next != reserved_.begin() && std::prev(next)->second > *reservation.offset))
                return event.complain("offset", "a reservation that overlaps none");
            reserved_.emplace(*reservation.offset, end);
        }
        out_.reservations.push_back(reservation);
    }
    void handle_leak(Object& event) {
        event.text_or("id");
        const std::uint64_t count = event.count_or("count", 1);
        if (count == 0 || count > kMaxLeaks)
            return event.complain("count", fmt::format("a number of handles from 1 to {}", kMaxLeaks));
        // A handle takes at least a page of the driver.
        const Interval each = event.amount_or("bytes", {out_.device.granularity, std::nullopt});
        const auto times = [&](const std::optional<std::uint64_t>& end) -> std::optional<std::uint64_t> {
            if (!end) return std::nullopt;
            const std::uint64_t whole =
                rounded_up(Interval::exactly(*end), out_.device.granularity).low.value_or(0);
            return whole > UINT64_MAX / count ? UINT64_MAX : whole * count;
        };
        out_.leaked_handles.push_back({times(each.low), times(each.high)});
        out_.leaks += count;
    }
    void physical_free_runs(Object& event) {
        std::vector<Interval> runs = event.amounts("bytes");
        if (event.failed()) return;
        if (out_.free_runs) return event.complain("op", "one list of runs only");
        out_.free_runs = std::move(runs);
    }

    struct Live {
        std::size_t segment = 0;
        ScenarioBlock block;
    };
    // What lies in one segment: live blocks and those that wait for a stream.
    struct Placed {
        std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> extents;  // begin; end and name
        std::uint64_t sum = 0;                                                   // at least
    };

    static const std::string* overlapping(const Placed& placed, std::uint64_t begin, std::uint64_t bytes) {
        const auto next = placed.extents.lower_bound(begin);
        if (next != placed.extents.end() && next->first < begin + bytes) return &next->second.second;
        if (next == placed.extents.begin()) return nullptr;
        const auto& before = std::prev(next)->second;
        return before.first > begin ? &before.second : nullptr;
    }

    Scenario& out_;
    bool device_seen_ = false;
    std::map<std::string, Interval> allocations_;
    std::map<std::string, std::size_t> segments_;  // their place in the scenario
    std::vector<Placed> placed_;                   // by segment
    std::map<std::string, Live> blocks_;
    std::map<std::uint64_t, std::uint64_t> reserved_;  // begin and end
};

void read_request(Object& object, ScenarioRequest& out) {
    static constexpr std::array<std::pair<std::string_view, ScenarioRequest::Kind>, 6> kKinds = {{
        {"allocator", ScenarioRequest::Kind::kAllocator},
        {"driver", ScenarioRequest::Kind::kDriver},
        {"pinned_host", ScenarioRequest::Kind::kPinnedHost},
        {"address_space", ScenarioRequest::Kind::kAddressSpace},
        {"peer_mapping", ScenarioRequest::Kind::kPeerMapping},
        {"launch_stack", ScenarioRequest::Kind::kLaunchStack},
    }};
    const std::string kind = object.required_text("kind");
    const auto found =
        std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& row) { return row.first == kind; });
    if (found == kKinds.end()) {
        std::string known;
        for (const auto& row : kKinds) known += (known.empty() ? "" : ", ") + std::string(row.first);
        return object.complain("kind", "one of " + known);
    }
    out.kind = found->second;
    out.bytes = object.required_amount("bytes");
    if (!out.bytes.low || *out.bytes.low == 0)
        object.complain("bytes", "a size with a least of 1 byte or more");
    if (out.kind == ScenarioRequest::Kind::kAllocator) {
        out.segment_rounding = object.count_or("segment_rounding", 0);
        out.block_rounding = object.count_or("block_rounding", 0);
        out.may_release = object.flag("may_release_cached_segments");
        out.owner = object.text_or("owner");
        out.stream = object.text_or("stream");
    }
    out.handle_type = object.text_or("handle_type");
    out.mappings = object.count_or("mappings", 1);
}

// What must hold for the state to be one: nobody holds more than there is.
std::string impossible(const Scenario& s) {
    Interval taken = s.device.context + s.device.other_processes;
    for (const auto* list : {&s.allocations, &s.held_by_importers, &s.leaked_handles}) {
        for (const Interval& bytes : *list) taken = taken + bytes;
    }
    for (const ScenarioSegment& segment : s.segments) taken = taken + segment.bytes;
    const std::uint64_t capacity = s.device.capacity.high.value_or(UINT64_MAX);
    const std::uint64_t least = taken.low.value_or(0);
    if (least > capacity) {
        return fmt::format(
            "events: expected no more on the device than it has: {} B are held, and its capacity "
            "is {} B",
            least, capacity);
    }
    if (s.device.device_free && s.device.device_free->low.value_or(0) > capacity - least) {
        return fmt::format(
            "events[0].device_free: expected at most the {} B that what is held leaves of the capacity",
            capacity - least);
    }
    if (s.free_runs) {
        Interval runs = Interval::exactly(0);
        for (const Interval& run : *s.free_runs) runs = runs + run;
        const std::uint64_t left =
            s.device.device_free ? s.device.device_free->high.value_or(capacity - least) : capacity - least;
        if (runs.low.value_or(0) > left) {
            return fmt::format(
                "events, physical_free_runs: expected runs that sum to at most the {} B that nobody "
                "holds; they sum to {} B",
                left, runs.low.value_or(0));
        }
    }
    std::uint64_t reserved = 0;
    for (const ScenarioReservation& each : s.reservations)
        reserved += std::min(each.bytes.low.value_or(0), UINT64_MAX - reserved);
    if (s.device.address_space && reserved > s.device.address_space->high.value_or(UINT64_MAX)) {
        return fmt::format("events: expected no more reserved than the address space has: {} B are reserved",
                           reserved);
    }
    return "";
}

}  // namespace

ScenarioText read_scenario(std::string_view line) {
    const JsonText text = read_json(line);
    if (!text.value) return {std::nullopt, fmt::format("column {}: {}", text.column, text.problem)};
    ScenarioProblem problem;
    Scenario out;
    {
        Object whole(*text.value, "", problem);
        out.id = whole.required_text("id");
        if (out.id.size() > kMaxIdBytes) whole.complain("id", fmt::format("at most {} bytes", kMaxIdBytes));
        out.title = whole.text_or("title");
        whole.skip("report");
        whole.skip("why");
        if (const JsonValue* expected = whole.member("expected"); expected != nullptr) {
            // For a reader of the file, and for --check: no part of the analysis.
            Object conclusion(*expected, "expected", problem);
            out.expected_cause = conclusion.text_or("cause");
            out.expected_constraint = conclusion.text_or("constraint");
            conclusion.skip_all();
        }
        const JsonValue* events = whole.member("events");
        if (events == nullptr || events->kind != Kind::kArray || events->items.empty()) {
            whole.complain("events", "a list of events, the device first");
        } else {
            Events reader(out);
            for (std::size_t i = 0; i < events->items.size() && !problem.found(); ++i) {
                Object event(events->items[i], fmt::format("events[{}]", i), problem);
                reader.read(event);
            }
            reader.finish();
        }
        if (const JsonValue* request = whole.member("request"); request != nullptr) {
            Object object(*request, "request", problem);
            read_request(object, out.request);
        } else {
            whole.complain("request", "an object with kind and bytes");
        }
    }
    if (problem.found()) return {std::nullopt, problem.sentence()};
    out.not_used = problem.take_not_used();
    if (std::string what = impossible(out); !what.empty()) return {std::nullopt, std::move(what)};
    return {std::move(out), ""};
}

std::string ScenarioFile::open(const std::string& path) {
    return source_.open(path);
}

bool ScenarioFile::next(ScenarioLine& out) {
    while (lines_.next()) {
        out.number = lines_.number();
        if (lines_.cut() || lines_.endless()) {
            out.text = {std::nullopt, fmt::format("expected a line of at most {} bytes", kMaxScenarioBytes)};
            return true;
        }
        const std::string_view line = lines_.line();
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        out.text = read_scenario(line);
        return true;
    }
    return false;
}

}  // namespace fragscope::analysis
