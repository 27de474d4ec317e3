// What CUPTI said of memory (--cupti), held against the intercepted calls: the same thing told twice is
// counted once, what only one of the two saw is named.
//
// A record of CUPTI's belongs to the call at the same address in whose time it lies, or to which it is
// nearest; arrays, whose address no call shows, are joined by time alone. Its sizes are then not used: the
// call's are. CUPTI does not tell of VMM handles, mappings, or memory of other processes (facts of its
// headers), so that a call without a record of CUPTI's proves nothing, while a record without a call shows a
// call that went past the recording.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/extent_map.h"
#include "analysis/quantity.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// Memory that CUPTI saw being taken, at a time when no intercepted call took any there.
struct UnseenBlock {
    Address address;
    std::uint64_t bytes = 0;  // as CUPTI says
    int device = kNoDevice;
    std::uint32_t memory_kind = 0;  // CUpti_ActivityMemoryKind
    bool pooled = false;            // the pool's reserved size, which the driver tells, has it in it
    TimeNs from;
    TimeNs to{UINT64_MAX};  // never released, as far as was told
    TimeNs held_to;         // from `from` to then it was held for certain; before `from`: at no time
    std::string file;       // that asked for it; empty: not known
};

// A variable of the program's code (__device__, __managed__): no call states its bytes.
struct StaticVariable {
    std::string name;
    Address address;
    std::uint64_t bytes = 0;
    int device = kNoDevice;
    bool managed = false;
    TimeNs from;
    TimeNs to{UINT64_MAX};
    TimeNs held_to;  // as UnseenBlock::held_to
};

// Bytes of managed memory that were moved to a device and not back, as unified-memory counters tell.
struct ResidencyStep {
    TimeNs time;
    int device = kNoDevice;
    std::uint64_t bytes = 0;  // from here on, at least
};

struct ActivityState {
    TimeNs time;
    wire::CuptiState state = wire::CuptiState::kNoLibrary;
    std::uint64_t version = 0;
    std::uint64_t result = 0;  // CUptiResult
    std::string text;          // the library's path, or who uses it
};

struct Activity {
    std::vector<ActivityState> states;  // in order of time; empty: nothing was said of CUPTI in this process
    bool used = false;                  // it was listened to, from `from` to `to`
    TimeNs from;
    TimeNs to;
    std::uint64_t matched = 0;              // acquisitions and releases that both tell
    std::uint64_t other_size = 0;           // of these acquisitions: CUPTI names another size than the call
    std::uint64_t only_calls = 0;           // acquisitions that calls tell and CUPTI could have told
    std::uint64_t expected_only_calls = 0;  // of kinds that CUPTI does not tell of: physical handles
    std::uint64_t dropped = 0;              // records, by CUPTI's own count, and those without a time
    // Some of CUPTI's records may be missing: it dropped them, or the recorder lost them.
    bool records_missing = false;
    // Intercepted acquisitions, or releases, may be among the records that the recorder lost: what only CUPTI
    // tells of need not have gone past the recording.
    bool acquisitions_lost = false;
    bool releases_lost = false;
    std::vector<UnseenBlock> unseen;
    // Releases that only CUPTI saw, of memory that a call took: the books hold it still.
    std::uint64_t released_unseen = 0;
    std::uint64_t released_unseen_bytes = 0;
    std::vector<StaticVariable> statics;
    std::vector<ResidencyStep> residency;

    // What was live of it on the device while the driver was asked about it: `from_ns` to `to_ns`. For
    // certain only while CUPTI was listened to and nothing is missing; of what is missing the high end says
    // nothing.
    Interval unseen_at(int device, std::uint64_t page, std::uint64_t from_ns, std::uint64_t to_ns) const;
    Interval statics_at(int device, std::uint64_t from_ns, std::uint64_t to_ns) const;
    // At least so much managed memory was resident on the device all that time.
    std::uint64_t resident_at(int device, std::uint64_t from_ns, std::uint64_t to_ns) const;
};

Activity activity_of(const Trace& trace, ProcessIndex process);

// A part of the device's memory that only CUPTI tells of. Nothing: CUPTI was not listened to, or told of
// none.
struct ActivityPart {
    const char* id;
    const char* words;
    Quantity bytes;
};
std::vector<ActivityPart> parts_of(const Activity& activity, int device, std::uint64_t page,
                                   const Scope& scope, std::uint64_t from_ns, std::uint64_t to_ns);
// For Balance::may_hold: what CUPTI takes, and what it saw and did not tell.
std::vector<std::string> in_the_rest(const Activity& activity);

// "CUPTI was used (API version 130001).", or why not; empty: nobody asked for it.
std::string activity_in_words(const Activity& activity);

}  // namespace fragscope::analysis
