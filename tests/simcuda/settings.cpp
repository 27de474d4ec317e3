#include "settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "call.h"

extern "C" char** environ;

namespace fragscope::sim {
namespace {

constexpr std::uint64_t kMaxPagesPerDevice = std::uint64_t{1} << 22;
constexpr char kPrefix[] = "FRAGSCOPE_SIM_";

// The stand-in runtime, CUPTI and NVML libraries read settings of their own from the same file.
constexpr const char* kSiblings[] = {"runtime", "cudart", "cupti", "nvml"};

bool is_sibling(const std::string& key) {
    return std::any_of(std::begin(kSiblings), std::end(kSiblings), [&](const char* sibling) {
        const std::size_t length = std::strlen(sibling);
        return key.compare(0, length, sibling) == 0 && (key.size() == length || key[length] == '.' ||
                                                        key[length] == '_');
    });
}

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool parse_unsigned(const std::string& text, std::uint64_t& value) {
    const bool hex = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char* begin = text.data() + (hex ? 2 : 0);
    const char* end = text.data() + text.size();
    const auto done = std::from_chars(begin, end, value, hex ? 16 : 10);
    return begin != end && done.ec == std::errc{} && done.ptr == end;
}

bool parse_switch(const std::string& text, bool& value) {
    if (text == "on" || text == "1" || text == "true") return value = true, true;
    if (text == "off" || text == "0" || text == "false") return value = false, true;
    return false;
}

bool find_function(const std::string& name, Function& function) {
    for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(Function::Count); ++i) {
        if (name == kFunctionNames[i]) return function = static_cast<Function>(i), true;
    }
    return false;
}

bool parse_fault(const std::string& text, Fault& fault) {
    const auto at = text.find('@');
    if (at == std::string::npos) return false;
    std::string when = text.substr(at + 1);
    fault.every = when.compare(0, 6, "every:") == 0;
    if (fault.every) when = when.substr(6);
    std::uint64_t code = 0;
    if (!parse_unsigned(text.substr(0, at), code) || code == 0 || code > 9999) return false;
    fault.error = static_cast<CUresult>(code);
    return parse_unsigned(when, fault.number) && fault.number > 0;
}

// One key and its value into `settings`; "" or what is wrong with it.
std::string apply(Settings& s, const std::string& key, const std::string& value) {
    const auto bytes = [&](std::uint64_t& field) -> std::string {
        return parse_bytes(value, field) ? "" : "expected a size such as 8GiB, 512MiB or 4096";
    };
    const auto on_off = [&](bool& field) -> std::string {
        return parse_switch(value, field) ? "" : "expected on or off";
    };
    if (key == "devices") {
        std::uint64_t count = 0;
        if (!parse_unsigned(value, count) || count < 1 || count > kMaxDevices) return "expected 1 to 16";
        s.devices = static_cast<unsigned>(count);
        return "";
    }
    if (key == "capacity") return bytes(s.capacity);
    if (key == "page_size") return bytes(s.page_size);
    if (key == "granularity_minimum") return bytes(s.granularity_minimum);
    if (key == "granularity_recommended") return bytes(s.granularity_recommended);
    if (key == "multicast_granularity") return bytes(s.multicast_granularity);
    if (key == "module_bytes") return bytes(s.module_bytes);
    if (key == "module_loading") {
        if (value != "lazy" && value != "eager") return "expected lazy or eager";
        return s.lazy_loading = value == "lazy", "";
    }
    if (key == "limit_memory") return on_off(s.limit_memory);
    if (key == "pool_chunk") return bytes(s.pool_chunk);
    if (key == "va_bytes") return bytes(s.va_bytes);
    if (key == "context_overhead") return bytes(s.context_overhead);
    if (key == "driver_reserve") return bytes(s.driver_reserve);
    if (key == "backing") return on_off(s.backing);
    if (key == "map_offset") return on_off(s.map_offset);
    if (key == "deinitialize_at_exit") return on_off(s.deinitialize_at_exit);
    if (key == "va_base") return parse_unsigned(value, s.va_base) ? "" : "expected an address such as 0x800000000000";
    if (key == "va_bits") {
        std::uint64_t bits = 0;
        if (!parse_unsigned(value, bits) || bits < 21 || bits > 57) return "expected 21 to 57";
        s.va_bytes = std::uint64_t{1} << bits;
        return "";
    }
    if (key == "driver_version") {
        std::uint64_t version = 0;
        if (!parse_unsigned(value, version) || version < 2000 || version > 99999) {
            return "expected a number such as 12040 for CUDA 12.4";
        }
        s.driver_version = static_cast<int>(version);
        return "";
    }
    if (key == "contiguity") {
        if (value == "none") return s.contiguity = Contiguity::None, "";
        if (value == "linear") return s.contiguity = Contiguity::Linear, "";
        if (value == "all") return s.contiguity = Contiguity::All, "";
        return "expected none, linear or all";
    }
    if (key == "device_name") return s.device_name = value, "";
    if (key == "log") return s.log = value, "";
    if (key == "ledger") return s.ledger = value, "";
    if (key == "shared") {
        if (value.size() > 64 || value.find('/') != std::string::npos) {
            return "expected a name of at most 64 characters without a slash";
        }
        return s.shared = value, "";
    }
    if (key.compare(0, 6, "fault.") == 0) {
        Fault fault{};
        if (!find_function(key.substr(6), fault.function)) return "no exported function has that name";
        if (!parse_fault(value, fault)) return "expected ERROR@CALL or ERROR@every:N, such as 2@3";
        s.faults.push_back(fault);
        return "";
    }
    if (key.compare(0, 8, "latency.") == 0) {
        Latency latency{};
        if (!find_function(key.substr(8), latency.function)) return "no exported function has that name";
        if (!parse_duration(value, latency.nanoseconds)) return "expected a duration such as 190us, 1.5ms, 300ns";
        s.latencies.push_back(latency);
        return "";
    }
    if (key.compare(0, 7, "signal.") == 0) {
        Interruption interruption{};
        std::uint64_t number = 0;
        if (!find_function(key.substr(7), interruption.function)) return "no exported function has that name";
        if (!parse_unsigned(value, number) || number < 1 || number > 64) return "expected a signal's number, 1 to 64";
        interruption.signal = static_cast<int>(number);
        s.interruptions.push_back(interruption);
        return "";
    }
    if (is_sibling(key)) return "";
    return "there is no such setting";
}

std::string read_file(Settings& settings, const char* path) {
    std::ifstream file(path);
    if (!file) return std::string("FRAGSCOPE_SIM_CONFIG: cannot open ") + path;
    std::string line;
    for (unsigned number = 1; std::getline(file, line); ++number) {
        const std::string text = trimmed(line.substr(0, line.find('#')));
        if (text.empty()) continue;
        const std::string place = std::string(path) + ":" + std::to_string(number) + ": ";
        const auto equals = text.find('=');
        if (equals == std::string::npos) return place + "expected key = value, found \"" + text + "\"";
        const std::string key = trimmed(text.substr(0, equals));
        const std::string value = trimmed(text.substr(equals + 1));
        const std::string wrong = apply(settings, key, value);
        if (!wrong.empty()) return place + key + " = " + value + ": " + wrong;
    }
    return "";
}

// FRAGSCOPE_SIM_CAPACITY -> capacity; FRAGSCOPE_SIM_FAULT_cuMemAlloc_v2 -> fault.cuMemAlloc_v2.
std::string key_of_variable(const std::string& name) {
    constexpr std::pair<const char*, const char*> kFamilies[] = {
        {"FAULT_", "fault."}, {"LATENCY_", "latency."}, {"SIGNAL_", "signal."}};
    for (const auto& [family, key] : kFamilies) {
        const std::size_t length = std::strlen(family);
        if (name.compare(0, length, family) == 0) return key + name.substr(length);
    }
    std::string key = name;
    std::transform(key.begin(), key.end(), key.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return key;
}

std::string read_environment(Settings& settings) {
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string variable = *entry;
        if (variable.compare(0, sizeof kPrefix - 1, kPrefix) != 0) continue;
        const auto equals = variable.find('=');
        if (equals == std::string::npos) continue;
        const std::string name = variable.substr(sizeof kPrefix - 1, equals - (sizeof kPrefix - 1));
        if (name == "CONFIG") continue;
        const std::string value = trimmed(variable.substr(equals + 1));
        const std::string wrong = apply(settings, key_of_variable(name), value);
        if (!wrong.empty()) return variable + ": " + wrong;
    }
    return "";
}

bool power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

std::string check(Settings& s) {
    if (s.granularity_minimum == 0) s.granularity_minimum = s.page_size;
    if (s.granularity_recommended == 0) s.granularity_recommended = s.granularity_minimum;
    if (s.multicast_granularity == 0) s.multicast_granularity = 2 * s.granularity_recommended;
    if (s.driver_version == 0) s.driver_version = kDefaultDriverVersion;
    if (s.device_name.empty()) {
        const std::uint64_t mib = s.capacity >> 20;
        s.device_name = "Simulated GPU ";
        s.device_name += mib % 1024 == 0 ? std::to_string(mib / 1024) + " GiB" : std::to_string(mib) + " MiB";
    }
    if (!power_of_two(s.page_size) || s.page_size < 4096 || s.page_size > (std::uint64_t{1} << 30)) {
        return "page_size: expected a power of two from 4 KiB to 1 GiB";
    }
    if (s.capacity < s.page_size || s.capacity % s.page_size != 0) {
        return "capacity: expected a multiple of page_size (" + std::to_string(s.page_size) + " bytes)";
    }
    if (s.capacity / s.page_size > kMaxPagesPerDevice) {
        return "capacity: more than 4194304 pages; choose a larger page_size";
    }
    if (!power_of_two(s.granularity_minimum) || s.granularity_minimum < s.page_size) {
        return "granularity_minimum: expected a power of two, at least page_size";
    }
    if (!power_of_two(s.granularity_recommended) || s.granularity_recommended < s.granularity_minimum) {
        return "granularity_recommended: expected a power of two, at least granularity_minimum";
    }
    if (s.multicast_granularity < s.granularity_minimum || s.multicast_granularity % s.granularity_minimum != 0) {
        return "multicast_granularity: expected a multiple of granularity_minimum";
    }
    if (s.pool_chunk == 0 || s.pool_chunk % s.page_size != 0) return "pool_chunk: expected a multiple of page_size";
    if (s.va_base == 0 || s.va_base % s.page_size != 0) return "va_base: expected a multiple of page_size, not 0";
    if (s.va_bytes < s.page_size || s.va_bytes % s.page_size != 0 ||
        s.va_bytes > std::numeric_limits<std::uint64_t>::max() - s.va_base) {
        return "va_bytes: expected a multiple of page_size that fits behind va_base";
    }
    if (s.driver_reserve > s.capacity) return "driver_reserve: more than the capacity";
    return "";
}

}  // namespace

bool parse_bytes(const std::string& text, std::uint64_t& bytes) {
    const auto digits = text.find_first_not_of("0123456789");
    std::uint64_t value = 0;
    if (!parse_unsigned(text.substr(0, digits), value)) return false;
    const std::string unit = digits == std::string::npos ? "" : trimmed(text.substr(digits));
    unsigned shift = 0;
    if (unit == "KiB" || unit == "K") shift = 10;
    else if (unit == "MiB" || unit == "M") shift = 20;
    else if (unit == "GiB" || unit == "G") shift = 30;
    else if (unit == "TiB" || unit == "T") shift = 40;
    else if (!unit.empty() && unit != "B") return false;
    if (value > (std::numeric_limits<std::uint64_t>::max() >> shift)) return false;
    bytes = value << shift;
    return true;
}

bool parse_duration(const std::string& text, std::uint64_t& nanoseconds) {
    const auto digits = text.find_first_not_of("0123456789.");
    if (digits == std::string::npos || digits == 0) return false;
    double value = 0;
    const auto done = std::from_chars(text.data(), text.data() + digits, value);
    if (done.ec != std::errc{} || done.ptr != text.data() + digits) return false;
    const std::string unit = trimmed(text.substr(digits));
    double scale = 0;
    if (unit == "ns") scale = 1;
    else if (unit == "us") scale = 1e3;
    else if (unit == "ms") scale = 1e6;
    else if (unit == "s") scale = 1e9;
    if (scale == 0 || value * scale > 60e9) return false;
    nanoseconds = static_cast<std::uint64_t>(value * scale);
    return true;
}

std::string load_settings(Settings& settings) {
    if (const char* path = std::getenv("FRAGSCOPE_SIM_CONFIG"); path != nullptr && *path != '\0') {
        if (std::string wrong = read_file(settings, path); !wrong.empty()) return wrong;
    }
    if (std::string wrong = read_environment(settings); !wrong.empty()) return wrong;
    return check(settings);
}

}  // namespace fragscope::sim
