// Holds one recording against the simulated driver's ledger of the same run.
//   soak_check TRACE LEDGER
// Prints one JSON object with the numbers; complains on stderr and returns 1 where the two do not agree.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "analysis/read/trace_reader.h"
#include "tests/soak/ledger.h"
#include "tests/soak/match.h"

using namespace fragscope;
using namespace fragscope::soak;

namespace {

std::uint64_t lost(const analysis::Trace& trace) {
    std::uint64_t records = 0;
    for (const trace::Loss& loss : trace.losses)
        records += loss.acquisitions() + loss.releases() + loss.others() + loss.records_without_ring();
    return records;
}

// Every line is a record's, a detail of one, or of a call that was under way; bytes likewise.
void check_totals(const std::vector<Line>& lines, Result& result) {
    std::map<Operation, Totals> all;
    for (const Line& line : lines) {
        ++all[line.operation].count;
        all[line.operation].bytes += line.bytes;
    }
    for (const auto& [operation, totals] : result.recorded) {
        const std::uint64_t explained =
            totals.count + result.detail[operation].count + result.under_way[operation].count;
        const bool sized = totals.bytes != 0;
        if (all[operation].count != explained)
            result.problems.push_back(fmt::format("{}: {} lines in the ledger, {} accounted for",
                                                  name_of(operation), all[operation].count, explained));
        if (sized && all[operation].bytes != totals.bytes + result.under_way[operation].bytes)
            result.problems.push_back(fmt::format(
                "{}: {} bytes in the ledger, {} in the trace and {} under way", name_of(operation),
                all[operation].bytes, totals.bytes, result.under_way[operation].bytes));
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        fmt::print(stderr, "usage: soak_check TRACE LEDGER\n");
        return 2;
    }
    const analysis::ReadResult read = analysis::read_trace(argv[1]);
    std::vector<Line> lines;
    const std::string wrong = read.trace ? read_ledger(argv[2], lines) : read.error;
    if (!wrong.empty()) {
        fmt::print(stderr, "{}\n", wrong);
        return 1;
    }
    Result result = match(*read.trace, lines);
    check_totals(lines, result);
    if (result.problems.empty()) replay(lines, result);
    if (read.trace->file.cut_off || !read.trace->file.problem.empty())
        result.problems.push_back("the trace is not whole: " + read.trace->file.problem);
    if (lost(*read.trace) != 0)
        result.problems.push_back(fmt::format("{} records were lost", lost(*read.trace)));

    std::uint64_t under_way = 0, events = 0;
    for (const auto& [operation, totals] : result.under_way) under_way += totals.count;
    for (const auto& process : read.trace->events) events += process.size();
    fmt::print(
        R"({{"ledger_lines": {}, "events": {}, "matched_records": {}, "failed_calls": {}, "under_way": {}, )"
        R"("processes": {}, "images": {}, "whole_images": {}, "threads": {}, "peak_bytes": {}, )"
        R"("peak_bytes_in_trace": {}, "equal_peaks": {}, "problems": {}}})"
        "\n",
        lines.size(), events, result.records, result.failures, under_way, read.trace->processes.size(),
        result.images, result.whole_images, result.threads, result.peaks, result.peaks_in_trace,
        result.peaks_held_to_be_equal, result.problems.size());
    for (const std::string& problem : result.problems) fmt::print(stderr, "{}\n", problem);
    return result.problems.empty() ? 0 : 1;
}
