// For the benchmarks: medians of repetitions, and one table that puts the aim beside what was measured.
// Nothing here passes or fails: machines differ, and a number that is off is to be read, not hidden.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fragscope::bench {

std::uint64_t monotonic_ns();
double median(std::vector<double> values);

// Runs every candidate once per round, in turn, so that a slow moment of the machine meets all of them.
// Returns each one's median; `run` returns one measurement.
struct Candidate {
    std::string name;
    std::function<double()> run;
};
std::vector<double> interleaved_medians(const std::vector<Candidate>& candidates, int rounds);

// Keeps the compiler from dropping the computation of a value.
template <typename Value>
inline void keep(const Value& value) {
    asm volatile("" : : "r,m"(value) : "memory");
}

struct Line {
    std::string what;
    std::optional<double> value;  // absent: was not measured, `note` says why
    std::string unit;
    std::string aim;  // what the project is after; empty: none, a peer's or a machine's number
    std::string note;
};

// The table in words, then every line again as one JSON object for scripts.
void print(const std::string& bench, const std::string& setting, const std::vector<Line>& lines);

// "2 processors, release build" or a warning where the numbers mean little (no optimisation, a sanitizer).
std::string machine_words();

}  // namespace fragscope::bench
