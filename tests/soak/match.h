// Holds a trace against the ledger, event for event. Independent of the analysis: it uses the trace's reader
// and nothing behind it.
//
// In a thread both sides are sequences of the same calls, so they are compared one by one: a change of memory
// in the ledger has its record with the same address or handle and the same bytes, a successful record of a
// change has its line. A record is written after the call has returned and a line while it runs. So where a
// process ends in the middle of its work (a signal, _exit, exec) the ledger may know one call more in each
// thread, the last, and the trace never does. Between threads, each address and handle must change in the
// trace's order (by sequence) as it did in the ledger's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/trace.h"
#include "tests/soak/ledger.h"

namespace fragscope::soak {

// Where a line's record stands: the image of the process (exec begins another) and the number in it.
struct Place {
    std::uint32_t image = 0;
    std::uint64_t sequence = 0;  // 0: a call that was under way when its thread ended, or no event of its own
    bool operator<(const Place& other) const {
        return image != other.image ? image < other.image : sequence < other.sequence;
    }
};

struct Totals {
    std::uint64_t count = 0, bytes = 0;
    bool operator==(const Totals&) const = default;
};

struct Result {
    std::vector<std::string> problems;     // one sentence each; empty: the two agree
    std::vector<Place> places;             // by line
    std::map<Operation, Totals> recorded;  // counted from records; bytes where a record has them
    std::map<Operation, Totals> detail;  // lines that another line's record covers: what the end of a context
                                         // or the launch of a graph frees, the further mappings of one unmap
    std::map<Operation, Totals> under_way;  // lines of calls that never returned, as above
    std::uint64_t records = 0;              // of memory, successful, by the program
    std::uint64_t failures = 0;             // calls that failed
    // Sums over all images of the most bytes that lived at once (linear, pitch, managed, host, pool memory,
    // reserved addresses), and how many images' two peaks had to be the same: those of one thread, with no
    // call under way.
    std::uint64_t peaks = 0, peaks_in_trace = 0, peaks_held_to_be_equal = 0;
    std::uint64_t images = 0, whole_images = 0, threads = 0;
};

Result match(const analysis::Trace& trace, const std::vector<Line>& lines);

// Plays a matched process in the trace's order: what is acquired overlaps nothing that lives, and the most
// bytes that lived at once are those of the ledger's own order, less what was under way. Adds to `problems`.
void replay(const std::vector<Line>& lines, Result& result);

}  // namespace fragscope::soak
