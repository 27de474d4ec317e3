#include "settings.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern "C" char** environ;

namespace fragscope::sim_cupti {
namespace {

// Of CUDA 13.0, whose layouts the records have, whatever headers this is built with.
constexpr std::uint32_t kApiVersion = 130001;

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// "10MiB", "5ms", "64": a number, and what its unit makes of it; false: it is none.
bool read_number(const std::string& text, std::uint64_t& value) {
    const auto done = std::from_chars(text.data(), text.data() + text.size(), value);
    if (done.ec != std::errc{}) return false;
    const std::string unit = trimmed(std::string(done.ptr, text.data() + text.size()));
    constexpr std::pair<const char*, std::uint64_t> kUnits[] = {
        {"", 1},          {"B", 1},           {"KiB", 1 << 10},    {"MiB", 1 << 20}, {"GiB", 1 << 30},
        {"ns", 1},        {"us", 1'000},      {"ms", 1'000'000},   {"s", 1'000'000'000}};
    for (const auto& [name, factor] : kUnits) {
        if (unit == name && value <= UINT64_MAX / factor) return value *= factor, true;
    }
    return false;
}

void apply(Settings& out, const std::string& key, const std::string& value) {
    if (key.compare(0, 6, "fault.") == 0) {
        std::uint64_t code = 0;
        if (!read_number(value, code) || code > 999) {
            out.wrong = "cupti." + key + " = " + value + ": expected a CUptiResult";
        } else {
            out.faults[key.substr(6)] = static_cast<int>(code);
        }
        return;
    }
    if (key.compare(0, 6, "delay.") == 0) {
        if (!read_number(value, out.delays[key.substr(6)]))
            out.wrong = "cupti." + key + " = " + value + ": expected a duration such as 100ms";
        return;
    }
    if (key == "subscriber") return static_cast<void>(out.subscriber = value);
    if (key == "request_in_call") return static_cast<void>(out.request_in_call = value == "on" || value == "1");
    std::uint64_t number = 0;
    if (!read_number(value, number)) {
        out.wrong = "cupti." + key + " = " + value + ": expected a number";
    } else if (key == "version") {
        out.version = static_cast<std::uint32_t>(number);
    } else if (key == "latency") {
        out.latency_ns = number;
    } else if (key == "batch") {
        out.batch = number;
    } else if (key == "queue") {
        out.queue = number;
    } else if (key == "drop_every") {
        out.drop_every = number;
    } else if (key == "timeless_every") {
        out.timeless_every = number;
    } else if (key == "device_memory") {
        out.device_memory = number;
    } else {
        out.wrong = "cupti." + key + ": there is no such setting";
    }
}

void read_file(Settings& out, const char* path) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        const std::string text = trimmed(line.substr(0, line.find('#')));
        const auto equals = text.find('=');
        if (text.compare(0, 6, "cupti.") != 0 || equals == std::string::npos) continue;
        apply(out, trimmed(text.substr(6, equals - 6)), trimmed(text.substr(equals + 1)));
    }
}

// FRAGSCOPE_SIM_CUPTI_LATENCY, FRAGSCOPE_SIM_CUPTI_FAULT_cuptiActivityEnable.
void read_environment(Settings& out) {
    constexpr char kPrefix[] = "FRAGSCOPE_SIM_CUPTI_", kFault[] = "FAULT_", kDelay[] = "DELAY_";
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const char* equals = std::strchr(*entry, '=');
        if (equals == nullptr || std::strncmp(*entry, kPrefix, sizeof kPrefix - 1) != 0) continue;
        std::string key(static_cast<const char*>(*entry) + sizeof kPrefix - 1, equals);
        if (key.compare(0, sizeof kFault - 1, kFault) == 0) {
            key = "fault." + key.substr(sizeof kFault - 1);
        } else if (key.compare(0, sizeof kDelay - 1, kDelay) == 0) {
            key = "delay." + key.substr(sizeof kDelay - 1);
        } else {
            for (char& each : key) each = each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
        }
        apply(out, key, trimmed(equals + 1));
    }
}

Settings* read() {
    auto* out = new Settings;
    out->version = kApiVersion;
    if (const char* path = std::getenv("FRAGSCOPE_SIM_CONFIG"); path != nullptr && *path != '\0') read_file(*out, path);
    read_environment(*out);
    if (!out->wrong.empty()) std::fprintf(stderr, "simulated CUPTI: %s\n", out->wrong.c_str());
    return out;
}

}  // namespace

const Settings& settings() {
    static const Settings* const once = read();
    return *once;
}

}  // namespace fragscope::sim_cupti
