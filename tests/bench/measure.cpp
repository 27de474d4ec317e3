// See measure.h.
#include "tests/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

namespace fragscope::bench {

std::uint64_t monotonic_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> interleaved_medians(const std::vector<Candidate>& candidates, int rounds) {
    std::vector<std::vector<double>> measured(candidates.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < candidates.size(); ++i) measured[i].push_back(candidates[i].run());
    }
    std::vector<double> medians;
    for (const std::vector<double>& values : measured) medians.push_back(median(values));
    return medians;
}

std::string machine_words() {
    std::string words = fmt::format("{} processors", std::thread::hardware_concurrency());
#ifndef __OPTIMIZE__
    words += "; built without optimisation: the numbers mean little";
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    words += "; built with a sanitizer: the numbers mean little";
#endif
    return words;
}

void print(const std::string& bench, const std::string& setting, const std::vector<Line>& lines) {
    std::size_t width = 4;
    for (const Line& line : lines) width = std::max(width, line.what.size());
    fmt::print("{}: {} ({})\n\n", bench, setting, machine_words());
    fmt::print("{:<{}}  {:>14} {:<8}  {:<10}  {}\n", "what", width, "measured", "", "aim", "note");
    for (const Line& line : lines) {
        const std::string value = line.value ? fmt::format("{:.4g}", *line.value) : "not measured";
        fmt::print("{:<{}}  {:>14} {:<8}  {:<10}  {}\n", line.what, width, value, line.value ? line.unit : "",
                   line.aim, line.note);
    }
    fmt::print("\n");
    for (const Line& line : lines) {
        fmt::print(
            "{{\"bench\": \"{}\", \"what\": \"{}\", \"value\": {}, \"unit\": \"{}\", \"aim\": \"{}\", "
            "\"note\": \"{}\"}}\n",
            bench, line.what, line.value ? fmt::format("{:.6g}", *line.value) : "null", line.unit, line.aim,
            line.note);
    }
    std::fflush(stdout);
}

}  // namespace fragscope::bench
