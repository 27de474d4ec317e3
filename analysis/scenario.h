// A memory state and one failed request, as a person wrote them down from the numbers of a report: see
// SCENARIOS.md. `situation_of` makes of it what the rest of the analysis reads, so that a state written by
// hand gets the same audit, verdict and bounds as a failure of a trace.
//
// What the numbers do not say stays unknown: an amount is an interval, and an absent end is not known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/limit.h"
#include "analysis/quantity.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

// Bytes in all of it. Absent optionals: the scenario does not speak of such a thing.
struct ScenarioDevice {
    Interval capacity;
    std::uint64_t granularity = std::uint64_t{2} << 20;
    Interval context = Interval::exactly(0);  // of this process
    Interval other_processes = Interval::exactly(0);
    std::optional<Interval> device_free;      // as cuMemGetInfo said; else what the rest leaves
    std::optional<Interval> allocator_limit;  // on what the framework's allocator may reserve
    std::optional<Interval> commit_limit;     // on what the host will back
    std::optional<Interval> pinned_host_limit;
    std::optional<Interval> address_space;
    std::optional<Interval> bar1;
    std::optional<Interval> per_allocation_limit;
    std::optional<std::uint64_t> mapping_limit;  // a count
    std::optional<std::uint64_t> mappings;       // that exist
    std::vector<std::string> handle_types;       // that the device supports; empty: not said
    bool pinned_rounds_to_power_of_two = false;
    bool contiguity_required = false;  // the driver needs one physical run for a request
    bool driver_refused = false;       // the driver said no, with nothing else known
};

struct ScenarioBlock {
    std::string id;
    std::optional<std::uint64_t> offset;  // nothing: somewhere in its segment
    Interval bytes;
    std::optional<Interval> requested;  // what was asked for before it was rounded
    bool pending = false;               // freed by the host, not yet by its stream
};

struct ScenarioSegment {
    std::string id;
    Interval bytes;
    std::string owner;     // a private pool; empty: the default one
    std::string stream;    // whose gaps serve this stream only; empty: not said
    bool several = false;  // not one segment: an unknown number of them, with this sum
    std::optional<Interval> unused;  // in no block, where that is stated for itself and not only as a difference
    std::vector<ScenarioBlock> blocks;
};

struct ScenarioReservation {
    Interval bytes;
    std::optional<std::uint64_t> offset;  // from the beginning of the address space
};

struct ScenarioRequest {
    enum class Kind : std::uint8_t {
        kAllocator,
        kDriver,
        kPinnedHost,
        kAddressSpace,
        kPeerMapping,
        kLaunchStack
    };
    Kind kind = Kind::kDriver;
    Interval bytes;
    std::uint64_t segment_rounding = 0;  // 0: none
    std::uint64_t block_rounding = 0;    // 0: none
    bool may_release = false;            // wholly free segments, before it gives up
    // What a gap has to have for it, where it is known only what a new segment takes (`bytes`).
    std::optional<Interval> in_gap;
    // The allocator is known to have looked for a gap that serves this request, and to have found none.
    bool gaps_refused = false;
    std::string owner;
    std::string stream;
    std::string handle_type;     // empty: none in particular
    std::uint64_t mappings = 1;  // that it needs
};

struct Scenario {
    std::string id;
    std::string title;
    std::string device_name = "the device of the scenario";
    ScenarioDevice device;
    std::vector<Interval> allocations;        // from the driver, outside of any framework, and still held
    std::vector<Interval> held_by_importers;  // freed here, still mapped by another process
    std::vector<Interval> leaked_handles;     // physical memory without a mapping or an owner
    std::uint64_t leaks = 0;                  // how many handles that is
    std::vector<Interval> pins;
    std::vector<ScenarioReservation> reservations;
    std::optional<std::vector<Interval>> free_runs;  // physical, contiguous, held by nobody
    std::vector<ScenarioSegment> segments;
    ScenarioRequest request;
    std::optional<LimitKind> refused_by;  // who refused it says itself that it was because of this limit
    std::vector<std::string> not_used;        // members of its text that the format does not have, with their places
    std::string expected_cause;       // what its writer concluded; never part of the analysis
    std::string expected_constraint;
};

// Never asks whether the state is possible: the reader has done that.
Situation situation_of(const Scenario& scenario);

}  // namespace fragscope::analysis
