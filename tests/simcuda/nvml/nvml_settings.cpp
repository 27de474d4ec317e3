#include "nvml_settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

extern "C" char** environ;

namespace fragscope::sim {
namespace {

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return text;
}

// `key` without "nvml." before it.
std::string apply(NvmlSettings& s, const std::string& key, const std::string& value) {
    if (key == "driver_version") return s.driver_version = value, "";
    if (key == "library_version") return s.library_version = value, "";
    if (key == "reserved") return parse_bytes(value, s.reserved) ? "" : "expected a size such as 256MiB";
    if (key == "pid_offset") return parse_bytes(value, s.pid_offset) ? "" : "expected a number";
    if (key == "mig") {
        if (value != "on" && value != "off") return "expected on or off";
        return s.mig = value == "on", "";
    }
    if (key == "processes") {
        if (value == "told") return s.processes = NvmlSettings::Lists::kTold, "";
        if (value == "empty") return s.processes = NvmlSettings::Lists::kEmpty, "";
        if (value == "forbidden") return s.processes = NvmlSettings::Lists::kForbidden, "";
        return "expected told, empty or forbidden";
    }
    if (key == "process_bytes") {
        if (value == "told") return s.process_bytes = NvmlSettings::Bytes::kTold, "";
        if (value == "not_available") return s.process_bytes = NvmlSettings::Bytes::kNotAvailable, "";
        if (value == "zero") return s.process_bytes = NvmlSettings::Bytes::kZero, "";
        return "expected told, not_available or zero";
    }
    if (key == "process_layout") {
        const bool known = value == "16" || value == "24" || value == "32";
        return known && parse_bytes(value, s.process_layout) ? "" : "expected 16, 24 or 32";
    }
    if (key.compare(0, 6, "error.") == 0) {
        const long code = std::strtol(value.c_str(), nullptr, 10);
        if (code < 1 || code > 999) return "expected the number of an error, 1 to 999";
        return s.errors[key.substr(6)] = static_cast<int>(code), "";
    }
    if (key.compare(0, 6, "delay.") == 0) {
        return parse_duration(value, s.delays[key.substr(6)]) ? "" : "expected a duration such as 300ms";
    }
    return "there is no such setting";
}

std::string read_file(NvmlSettings& settings, const char* path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::string text = trimmed(line.substr(0, line.find('#')));
        const auto equals = text.find('=');
        if (text.compare(0, 5, "nvml.") != 0 || equals == std::string::npos) continue;
        const std::string wrong =
            apply(settings, trimmed(text.substr(5, equals - 5)), trimmed(text.substr(equals + 1)));
        if (!wrong.empty()) return std::string(path) + ": " + text + ": " + wrong;
    }
    return "";
}

}  // namespace

std::string load_nvml_settings(NvmlSettings& settings) {
    if (const char* path = std::getenv("FRAGSCOPE_SIM_CONFIG"); path != nullptr && *path != '\0') {
        if (std::string wrong = read_file(settings, path); !wrong.empty()) return wrong;
    }
    constexpr char kPrefix[] = "FRAGSCOPE_SIM_NVML_";
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string variable = *entry;
        const auto equals = variable.find('=');
        if (variable.compare(0, sizeof kPrefix - 1, kPrefix) != 0 || equals == std::string::npos) continue;
        std::string key = variable.substr(sizeof kPrefix - 1, equals - (sizeof kPrefix - 1));
        // FRAGSCOPE_SIM_NVML_ERROR_nvmlInit_v2 -> error.nvmlInit_v2
        if (key.compare(0, 6, "ERROR_") == 0 || key.compare(0, 6, "DELAY_") == 0) {
            key = lower(key.substr(0, 5)) + "." + key.substr(6);
        } else {
            key = lower(key);
        }
        const std::string wrong = apply(settings, key, trimmed(variable.substr(equals + 1)));
        if (!wrong.empty()) return variable + ": " + wrong;
    }
    if (settings.library_version.empty()) settings.library_version = "13." + settings.driver_version;
    return "";
}

}  // namespace fragscope::sim
