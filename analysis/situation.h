// One failure and everything that is known at its moment, taken from one snapshot: the ground on which audit,
// domains, counterfactuals, verdict and bounds stand. All physical quantities have one scope, so they may be
// combined; nothing of another moment is in here.
//
// Whoever concludes from it reads its values only: `trace`, `event` and `named` are for its makers and for
// those who show the call itself, and are null where no trace stands behind it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/address_space.h"
#include "analysis/call_times.h"
#include "analysis/charged.h"
#include "analysis/contract.h"
#include "analysis/failures.h"
#include "analysis/framework_at_failure.h"
#include "analysis/internal_parts.h"
#include "analysis/limit.h"
#include "analysis/mechanism_facts.h"
#include "analysis/movable.h"
#include "analysis/probes.h"
#include "analysis/quantity.h"
#include "analysis/request.h"
#include "analysis/run_watch.h"
#include "analysis/session.h"
#include "analysis/witnesses.h"

namespace fragscope::analysis {

// One pool at the failure.
struct PoolAtFailure {
    ObjectId pool;
    std::string name;
    Interval live;  // requested bytes of live blocks, from events
    std::uint64_t live_count = 0;
    std::uint64_t pending = 0;  // freed by the program, the stream's word is missing: at most this much
    std::uint64_t pending_count = 0;
    Interval waiting;  // of these, what the driver still counts as used
    PoolWord said;     // by the driver; empty if it was not asked
    Quantity reserved;
    Quantity used;
    Quantity cached;
    Quantity reclaimable;
    bool no_opportunistic_reuse = false;  // see Pool
};

// Where a request stands among its process's events, and the time that its situation speaks of.
struct Place {
    std::size_t before = 0;  // events [0, before) came before it
    std::size_t after = 0;   // events from here on came after it; a failed call itself is in neither
    std::uint64_t from_ns =
        0;  // CLOCK_MONOTONIC: from the call's begin, or the moment, to the driver's last word
    std::uint64_t to_ns = 0;
};

// Contiguous runs of physical memory that nobody holds, where they are known.
struct PhysicalRuns {
    std::uint64_t count = 0;
    Interval sum;
    Interval in_units;  // the sum of each in whole units of the minimum granularity
    Interval largest;
};

struct Situation {
    const Trace* trace = nullptr;
    // No call made this request: a person asks what would have come of it (situation_if.h). `event` and
    // `named` are null, and `failure` names its process only.
    bool hypothetical = false;
    struct Refusal {
        std::uint64_t bytes = 0;
        std::uint64_t sequence = 0;
    };
    // A request of the same kind and of no more bytes that was refused in the same state: it decides as well.
    std::optional<Refusal> refused_then;
    // Whether the driver or an allocator is known to have refused: that bounds what there was from above.
    bool refused() const { return !hypothetical || refused_then.has_value(); }
    const char* moment_in_words() const { return hypothetical ? "this moment" : "the failure"; }
    const char* then() const { return hypothetical ? "at this moment" : "right after the failure"; }
    Failure failure;
    std::optional<Event> event;  // the driver's, where a framework's allocator gave up because of one
    std::optional<Event> named;  // the one that the failure's number stands for
    Place place;
    FailureSnapshot snapshot;
    std::string when = "right after the failure";  // the driver was asked, if it was
    // What it said of device-free memory, where calls of other threads were under way meanwhile; hypothetical
    // only.
    std::optional<Interval> said_between;
    Probes probes;  // tried right after it
    Witnesses witnesses;
    RequestFacts request;
    Contract contract;                // of the request; see set_contract
    std::string device;               // UUID or a name for it
    bool device_of_snapshot = false;  // the call names none; its own snapshot speaks of exactly this one
    Scope physical;                   // scope of the books of the device
    Scope address;                    // scope of the process's address space
    std::uint64_t page = 0;
    std::uint64_t recommended_granularity = 0;  // of physical allocations; 0: not known

    Quantity capacity;
    Quantity device_free;  // as the driver said it
    Quantity free_then;    // the same at the failed call itself: wider if other threads changed something in
                           // between; without the driver's word, no more than what the records leave
    Quantity handles;      // charged, VMM
    Quantity linear;       // charged, linear and pitched
    Quantity linear_requested;
    Quantity arrays;  // charged
    Quantity pools_reserved;
    Quantity graphs;         // reserved for graphs' allocations, as the driver says
    Quantity graphs_unused;  // of that, in no live allocation of a graph: cuDeviceGraphMemTrim gives it back
    std::vector<ActivityPart> told_by_cupti;  // in no other sum but `attributed`
    std::uint64_t resident = 0;               // managed memory: at least, by CUPTI's counters
    Quantity attributed;
    Quantity others;
    Quantity unattributed;
    Quantity pending;  // in pools of this device
    Quantity cached;
    Quantity reclaimable;
    std::uint64_t reclaimable_when_done = 0;  // its lower end, once every stream has got to its frees
    Quantity linear_waste;
    std::vector<OtherProcess> other_processes;
    std::vector<PoolAtFailure> pools;
    Payload payload;
    Quantity handle_waste;   // VMM: charged and never written
    Quantity partly_waste;   // of that, inside pages that hold some payload: what rounding causes
    Quantity never_written;  // of that, in whole pages without a written byte: held for whatever reason
    std::uint64_t unmapped_count = 0;  // physical allocations mapped nowhere and not exported: no kernel can
    std::uint64_t unmapped_bytes = 0;  // use them
    std::optional<FrameworkAtFailure> framework;  // of the request's device
    std::vector<Limit> limits;                    // that stand against this request
    Quantity held_by_importers;        // freed by this process, and still mapped by one that imported it
    std::uint64_t importers_hold = 0;  // allocations
    Quantity leaked;                   // physical handles that nothing maps and nobody can release any more
    std::uint64_t leaks = 0;
    bool one_run_needed = false;       // the driver needs one physical run for this request
    std::optional<PhysicalRuns> runs;  // nothing: not known
    // Written by hand (a scenario): what is said is taken at its word, and nothing else is known.
    bool stated = false;
    std::optional<LimitKind> refused_by;  // whoever refused it says that it was because of this limit
    bool stated_refusal = false;       // it says that the driver refused, for no reason that it knows
    std::vector<std::string> inexact;  // which of its amounts are intervals, by their names
    AddressSpace space;
    std::uint64_t mapped = 0;
    std::uint64_t managed = 0;
    std::uint64_t host_pinned = 0;
    std::uint64_t imported = 0;
    std::vector<std::string> in_the_rest;  // see rest.h
    Losses losses;
    Losses books;  // the same, and what contradictions say of records that are missing: how far sums of
                   // memory may be trusted
    Contradictions contradictions;
    std::string not_asked;  // why the driver did not speak of the device right after the failure
    bool used_pools = false;
    std::uint64_t captured_allocations = 0;  // of graphs: see ProcessState
    std::size_t contexts = 0;                // of this process on the device
    // An address reservation of no more than this request failed before, and nothing was given back since.
    bool reservation_failed_before = false;
    // The device had the bytes at the failure by the driver's own word, a handle of this size had succeeded
    // before, and right after the failure smaller ones did, as many bytes in all: its pieces were the reason.
    bool came_in_pieces = false;
    // The same by trials in place: one handle of the size was refused, and small ones reached it together.
    bool tried_in_pieces = false;
    // Only where `measure` was asked for, see measures.h:
    TimesByKind call_times;
    InternalParts internal;
    // Which memory could be moved; nothing: not known.
    std::optional<Movable> movable;
    // Facts of the whole run, for the comparison of mechanisms; nothing: no run stands behind it, or nobody
    // asked.
    std::optional<MechanismFacts> facts;
    std::string succeeded_later;  // "The same request succeeded … later, after …."; empty: not seen
};

// What everything about the request is held against from now on.
void set_contract(Situation& situation, Contract contract);

// `walk` stands before this failure and is moved to it. Its contract is what the call alone shows.
Situation situation_at(const Trace& trace, const Failure& failure, SessionWalk& walk);

// Adds `call_times` and `facts`, of the process's whole run. `watch`, unless null, has read the beginning of
// the run; where it follows another request, or is null, the run is read from its beginning.
void look_at_the_run(Situation& situation, RunWatch* watch);
// Before the failure's situation is known: a watch that should turn out to follow its request.
RunWatch watch_for(const Trace& trace, const Failure& failure);

std::uint64_t since_start(const Trace& trace, TimeNs time);

}  // namespace fragscope::analysis
