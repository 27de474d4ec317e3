#include "collector/nvml_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "collector/utf8.h"

namespace fragscope::collector {

using nvml::Device;
using nvml::Return;

namespace {

constexpr unsigned kMostDevices = 64;
constexpr unsigned kMostInstances = 16;
constexpr unsigned kMostProcessesOfADevice = 1024;
constexpr unsigned char kUntouched = 0xA5;
// Linux numbers processes below this (PID_MAX_LIMIT).
constexpr std::uint32_t kMostPid = 1U << 22;

std::string text_of(const std::array<char, nvml::kTextBytes>& buffer) {
    return to_utf8(std::string(buffer.data(), ::strnlen(buffer.data(), buffer.size())));
}

bool untouched_from(const std::vector<unsigned char>& buffer, unsigned char untouched, std::size_t from) {
    return std::all_of(buffer.begin() + static_cast<std::ptrdiff_t>(std::min(from, buffer.size())),
                       buffer.end(), [untouched](unsigned char byte) { return byte == untouched; });
}

}  // namespace

bool read_process_list(const std::vector<unsigned char>& buffer, unsigned char untouched, unsigned count,
                       std::size_t documented, std::vector<ProcessEntry>& entries) {
    entries.clear();
    if (count == 0) return true;
    // The library wrote this far and no further. Where it wrote beyond every form's end, it prepared the
    // buffer first, and only its documentation is left to go by.
    std::size_t size = documented;
    for (const std::size_t candidate :
         {nvml::kProcessBytesV1, nvml::kProcessBytesV2, nvml::kProcessBytesMost}) {
        if (!untouched_from(buffer, untouched, count * candidate)) continue;
        size = candidate;
        break;
    }
    if (count * size > buffer.size()) return false;
    for (unsigned i = 0; i < count; ++i) {
        nvml::Process process{0, 0, nvml::kNoInstance, nvml::kNoInstance};
        std::memcpy(&process, buffer.data() + i * size, std::min(size, sizeof process));
        if (process.pid == 0 || process.pid > kMostPid) return false;
        ProcessEntry& entry = entries.emplace_back();
        entry.pid = process.pid;
        // A process that is listed has a context, which takes memory. None is what drivers say that cannot
        // look a number of a container's namespace up (NVIDIA/open-gpu-kernel-modules pull request 614).
        entry.bytes_known = process.used != nvml::kNotAvailable && process.used != 0;
        entry.bytes = entry.bytes_known ? process.used : 0;
        entry.instances_known = size != nvml::kProcessBytesV1 && process.gpu_instance != nvml::kNoInstance;
        entry.gpu_instance = process.gpu_instance;
        entry.compute_instance = process.compute_instance;
    }
    return true;
}

std::string uuid_bytes(const std::string& text) {
    if (text.size() != 40 || (text.compare(0, 4, "GPU-") != 0 && text.compare(0, 4, "MIG-") != 0)) return "";
    const auto digit = [](char c) {
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'a' && c <= 'f') return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    std::string bytes;
    for (std::size_t i = 4; i < text.size();) {
        if (i == 12 || i == 17 || i == 22 || i == 27) {
            if (text[i++] != '-') return "";
            continue;
        }
        const int high = digit(text[i]), low = digit(text[i + 1]);
        if (high < 0 || low < 0) return "";
        bytes.push_back(static_cast<char>(high * 16 + low));
        i += 2;
    }
    return bytes;
}

// The functions that are used, null where the library lacks one.
struct NvmlLibrary::Functions {
    Return (*init)() = nullptr;
    const char* (*error_string)(Return) = nullptr;
    Return (*driver_version)(char*, unsigned) = nullptr;
    Return (*library_version)(char*, unsigned) = nullptr;
    Return (*device_count)(unsigned*) = nullptr;
    Return (*device_by_index)(unsigned, Device*) = nullptr;
    Return (*uuid)(Device, char*, unsigned) = nullptr;
    Return (*name)(Device, char*, unsigned) = nullptr;
    Return (*pci_info)(Device, nvml::PciInfo*) = nullptr;
    Return (*memory)(Device, nvml::Memory*) = nullptr;
    Return (*memory_v2)(Device, nvml::MemoryV2*) = nullptr;
    Return (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
    Return (*most_instances)(Device, unsigned*) = nullptr;
    Return (*instance)(Device, unsigned, Device*) = nullptr;
    struct Lists {
        using Function = Return (*)(Device, unsigned*, void*);
        Function of_version[3] = {};
    };
    std::map<std::string, Lists> lists;  // by kind of process
    std::vector<std::string> missing;
};

// What was not told in one round, gathered to one sentence.
class NvmlLibrary::Untold {
  public:
    void add(const std::string& what, const std::string& why) { ++times_[{what, why}]; }
    std::string sentence() const {
        std::string out;
        for (const auto& [key, times] : times_) {
            out += fmt::format("{}{} ({}{})", out.empty() ? "Not told: " : ", ", key.first, key.second,
                               times == 1 ? "" : fmt::format(", {} times", times));
        }
        return out.empty() ? "" : out + ".";
    }

  private:
    std::map<std::pair<std::string, std::string>, unsigned> times_;
};

NvmlLibrary::Opened NvmlLibrary::open(const std::string& file) {
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        return {nullptr,
                fmt::format("the management library cannot be loaded: {}", why != nullptr ? why : file)};
    }
    auto functions = std::make_shared<Functions>();
    Functions& f = *functions;
    const auto find = [&](auto& function, std::initializer_list<const char*> names) {
        using Pointer = std::remove_reference_t<decltype(function)>;
        for (const char* name : names) {
            function = reinterpret_cast<Pointer>(::dlsym(handle, name));
            if (function != nullptr) return;
        }
        f.missing.emplace_back(*names.begin());
    };
    find(f.init, {"nvmlInit_v2"});
    find(f.error_string, {"nvmlErrorString"});
    find(f.driver_version, {"nvmlSystemGetDriverVersion"});
    find(f.library_version, {"nvmlSystemGetNVMLVersion"});
    find(f.device_count, {"nvmlDeviceGetCount_v2"});
    find(f.device_by_index, {"nvmlDeviceGetHandleByIndex_v2"});
    find(f.uuid, {"nvmlDeviceGetUUID"});
    find(f.name, {"nvmlDeviceGetName"});
    find(f.pci_info, {"nvmlDeviceGetPciInfo_v3"});
    find(f.memory, {"nvmlDeviceGetMemoryInfo"});
    find(f.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    find(f.mig_mode, {"nvmlDeviceGetMigMode"});
    find(f.most_instances, {"nvmlDeviceGetMaxMigDeviceCount"});
    find(f.instance, {"nvmlDeviceGetMigDeviceHandleByIndex"});
    for (const auto& [kind, stem] : std::initializer_list<std::pair<const char*, const char*>>{
             {"compute", "nvmlDeviceGetComputeRunningProcesses"},
             {"graphics", "nvmlDeviceGetGraphicsRunningProcesses"},
             {"mps", "nvmlDeviceGetMPSComputeRunningProcesses"}}) {
        Functions::Lists& lists = f.lists[kind];
        bool any = false;
        for (int version = 0; version < 3; ++version) {
            const std::string name = stem + (version == 0 ? std::string() : fmt::format("_v{}", version + 1));
            lists.of_version[version] =
                reinterpret_cast<Functions::Lists::Function>(::dlsym(handle, name.c_str()));
            any = any || lists.of_version[version] != nullptr;
        }
        if (!any) f.missing.emplace_back(stem);
    }
    if (f.init == nullptr || f.device_count == nullptr || f.device_by_index == nullptr) {
        return {nullptr, fmt::format("the management library {} lacks {}: it is too old, or another one",
                                     file, fmt::join(f.missing, ", "))};
    }
    // It stays loaded: see the destructor.
    return {std::unique_ptr<NvmlLibrary>(new NvmlLibrary(std::move(functions))), ""};
}

std::string NvmlLibrary::error_text(Return error) const {
    const char* text = functions_->error_string != nullptr ? functions_->error_string(error) : nullptr;
    return text != nullptr ? to_utf8(text) : fmt::format("error {}", error);
}

std::string NvmlLibrary::start() {
    const Return error = functions_->init();
    if (error == nvml::kSuccess) return "";
    return fmt::format("The management library could not be initialised: {}.", error_text(error));
}

void NvmlLibrary::read(trace::Readings& readings, bool first) {
    const Functions& f = *functions_;
    Untold untold;
    std::array<char, nvml::kTextBytes> text{};
    std::string lacks;
    if (first) {
        if (f.driver_version != nullptr && f.driver_version(text.data(), text.size()) == nvml::kSuccess)
            readings.set_driver_version(text_of(text));
        if (f.library_version != nullptr && f.library_version(text.data(), text.size()) == nvml::kSuccess)
            readings.set_library_version(text_of(text));
        if (!f.missing.empty()) lacks = fmt::format("The library lacks {}.", fmt::join(f.missing, ", "));
    }
    unsigned count = 0;
    if (const Return error = f.device_count(&count); error != nvml::kSuccess)
        untold.add("the number of devices", error_text(error));
    if (count > kMostDevices) untold.add(fmt::format("devices after the {}th", kMostDevices), "too many");
    for (unsigned i = 0; i < std::min(count, kMostDevices); ++i) {
        Device device = nullptr;
        if (const Return error = f.device_by_index(i, &device); error != nvml::kSuccess) {
            untold.add("a device", error_text(error));
            continue;
        }
        read_device(device, "", readings, untold);
    }
    const std::string sentence = untold.sentence();
    readings.set_problem(lacks.empty() || sentence.empty() ? lacks + sentence : lacks + " " + sentence);
}

void NvmlLibrary::read_device(Device device, const std::string& parent, trace::Readings& readings,
                              Untold& untold) {
    const Functions& f = *functions_;
    trace::DeviceReading& reading = *readings.add_devices();
    std::array<char, nvml::kTextBytes> text{};
    if (f.uuid != nullptr) {
        if (const Return error = f.uuid(device, text.data(), text.size()); error == nvml::kSuccess)
            reading.set_uuid_text(text_of(text));
        else
            untold.add("a UUID", error_text(error));
        reading.set_uuid(uuid_bytes(reading.uuid_text()));
    }
    if (f.name != nullptr && f.name(device, text.data(), text.size()) == nvml::kSuccess)
        reading.set_name(text_of(text));
    if (nvml::PciInfo pci{}; f.pci_info != nullptr && f.pci_info(device, &pci) == nvml::kSuccess)
        reading.set_pci_bus_id(to_utf8(std::string(pci.bus_id, ::strnlen(pci.bus_id, sizeof pci.bus_id))));
    read_memory(device, reading, untold);

    unsigned cut_up = 0, pending = 0, instances = 0;
    if (!parent.empty()) {
        reading.set_parent_uuid_text(parent);
    } else if (f.mig_mode != nullptr) {
        const Return error = f.mig_mode(device, &cut_up, &pending);
        // A device that cannot be cut up does not know the question.
        if (error == nvml::kSuccess || error == nvml::kNotSupported)
            reading.set_mig(error == nvml::kSuccess && cut_up != 0);
        else if (error != nvml::kFunctionNotFound)
            untold.add("whether a device is cut up (MIG)", error_text(error));
    }
    if (cut_up == 0) {
        // All of the lists together are the device's processes.
        bool known = true;
        for (const auto& entry : f.lists)
            known = read_processes(device, entry.first, reading, untold) && known;
        reading.set_processes_known(known);
        return;
    }
    // Its processes are listed with its instances.
    const std::string uuid = reading.uuid_text();
    if (f.most_instances == nullptr || f.instance == nullptr) {
        untold.add("a device's instances", "no function for it");
        return;
    }
    if (const Return error = f.most_instances(device, &instances); error != nvml::kSuccess) {
        untold.add("a device's instances", error_text(error));
        return;
    }
    if (instances > kMostInstances)
        untold.add(fmt::format("a device's instances after the {}th", kMostInstances), "too many");
    for (unsigned i = 0; i < std::min(instances, kMostInstances); ++i) {
        Device instance = nullptr;
        const Return error = f.instance(device, i, &instance);
        if (error == nvml::kSuccess)
            read_device(instance, uuid.empty() ? "unknown" : uuid, readings, untold);
        else if (error != nvml::kNotFound)
            untold.add("an instance", error_text(error));
    }
}

void NvmlLibrary::read_memory(Device device, trace::DeviceReading& reading, Untold& untold) {
    const Functions& f = *functions_;
    Return error = nvml::kFunctionNotFound;
    if (nvml::MemoryV2 memory{nvml::kMemoryV2, 0, 0, 0, 0}; f.memory_v2 != nullptr) {
        error = f.memory_v2(device, &memory);
        if (error == nvml::kSuccess) {
            reading.set_total_bytes(memory.total);
            reading.set_free_bytes(memory.free);
            reading.set_used_bytes(memory.used);
            reading.set_reserved_bytes(memory.reserved);
            return;
        }
    }
    // A newer library on an older kernel's module has the function and cannot answer.
    if (nvml::Memory memory{}; f.memory != nullptr) {
        error = f.memory(device, &memory);
        if (error == nvml::kSuccess) {
            reading.set_total_bytes(memory.total);
            reading.set_free_bytes(memory.free);
            reading.set_used_bytes(memory.used);
            reading.set_used_holds_reserved(true);
            return;
        }
    }
    untold.add("memory", error_text(error));
}

bool NvmlLibrary::read_processes(Device device, const std::string& kind, trace::DeviceReading& reading,
                                 Untold& untold) {
    const Functions::Lists& lists = functions_->lists.at(kind);
    const std::string what = kind + " processes";
    std::string why = "no function for it";
    for (int version = 2; version >= 0; --version) {
        const Functions::Lists::Function function = lists.of_version[version];
        if (function == nullptr) continue;
        const std::size_t documented = version == 0 ? nvml::kProcessBytesV1 : nvml::kProcessBytesV2;
        std::vector<unsigned char> buffer;
        unsigned count = 0, room = 64;
        Return error = nvml::kInsufficientSize;
        // Processes come and go between the answer that there are more of them and the next question.
        for (int attempt = 0;
             attempt < 4 && error == nvml::kInsufficientSize && room <= kMostProcessesOfADevice; ++attempt) {
            buffer.assign(room * nvml::kProcessBytesMost, kUntouched);
            count = room;
            error = function(device, &count, buffer.data());
            room = std::max(room * 2, std::min(count, kMostProcessesOfADevice));
        }
        if (error == nvml::kFunctionNotFound) {
            why = error_text(error);
            continue;
        }
        if (error == nvml::kNotSupported && kind != "compute")
            return true;  // there is no such thing on this device
        std::vector<ProcessEntry> entries;
        if (error != nvml::kSuccess) {
            untold.add(what, error_text(error));
        } else if (!read_process_list(buffer, kUntouched, count, documented, entries)) {
            untold.add(what, "the list is of no form that is known");
        } else {
            for (const ProcessEntry& entry : entries) {
                trace::ProcessReading& process = *reading.add_processes();
                process.set_pid(entry.pid);
                process.set_kind(kind);
                if (entry.bytes_known)
                    process.set_used_bytes(entry.bytes);
                else
                    untold.add("what a process holds", "not available");
                if (entry.instances_known) process.set_gpu_instance(entry.gpu_instance);
                if (entry.instances_known && entry.compute_instance != nvml::kNoInstance)
                    process.set_compute_instance(entry.compute_instance);
            }
            return true;
        }
        return false;
    }
    untold.add(what, why);
    return false;
}

}  // namespace fragscope::collector
