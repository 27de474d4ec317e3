// The stand-in management library: what it answers. Its state is made by the first initialisation and never destroyed.
// All answers about memory are looked up in the simulated devices at the call.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "identity.h"
#include "nvml_api.h"
#include "nvml_settings.h"
#include "view.h"

namespace fragscope::nvml {
namespace {

using sim::NvmlSettings;

constexpr unsigned kGpuInstance = 1;  // of the one instance that a cut-up device has here
constexpr unsigned kComputeInstance = 0;
constexpr unsigned kMostInstances = 7;

struct Device {
    int ordinal;
    bool instance;  // the device is cut up, and this is its one instance, with all its memory
};

struct Library {
    sim::Settings sim;
    NvmlSettings settings;
    std::vector<Device> devices;
    std::vector<Device> instances;
    std::string wrong;
    unsigned users = 0;  // initialisations less shut-downs
};

std::mutex g_mutex;
Library* g_library = nullptr;

Library& library_locked() {
    if (g_library == nullptr) {
        auto made = std::make_unique<Library>();
        made->wrong = sim::load_settings(made->sim);
        if (made->wrong.empty()) made->wrong = sim::load_nvml_settings(made->settings);
        if (!made->wrong.empty()) {
            std::fprintf(stderr, "simulated management library: %s\n", made->wrong.c_str());
        }
        for (int ordinal = 0; ordinal < static_cast<int>(made->sim.devices); ++ordinal) {
            made->devices.push_back({ordinal, false});
            made->instances.push_back({ordinal, true});
        }
        g_library = made.release();
    }
    return *g_library;
}

// What every function begins with: waits as it is told to, and answers what it is told to.
Return enter(const char* function) {
    std::uint64_t delay = 0;
    {
        const std::lock_guard lock(g_mutex);
        const Library& library = library_locked();
        if (!library.wrong.empty()) return kUnknown;
        if (const auto found = library.settings.delays.find(function); found != library.settings.delays.end()) {
            delay = found->second;
        }
    }
    if (delay != 0) {
        const timespec time{static_cast<time_t>(delay / 1'000'000'000), static_cast<long>(delay % 1'000'000'000)};
        ::nanosleep(&time, nullptr);
    }
    const std::lock_guard lock(g_mutex);
    const auto found = g_library->settings.errors.find(function);
    return found != g_library->settings.errors.end() ? found->second : kSuccess;
}

// The same for those that need an initialised library.
Return enter_initialized(const char* function) {
    if (const Return error = enter(function); error != kSuccess) return error;
    const std::lock_guard lock(g_mutex);
    return g_library->users != 0 ? kSuccess : kUninitialized;
}

const sim::Settings& simulated() { return g_library->sim; }
const NvmlSettings& settings() { return g_library->settings; }

bool is_device(const Device* device) {
    const auto in = [device](const std::vector<Device>& all) {
        return std::any_of(all.begin(), all.end(), [device](const Device& each) { return &each == device; });
    };
    return in(g_library->devices) || (settings().mig && in(g_library->instances));
}

Return put_text(const std::string& text, char* out, unsigned length) {
    if (out == nullptr) return kInvalidArgument;
    if (length < text.size() + 1) return kInsufficientSize;
    std::memcpy(out, text.c_str(), text.size() + 1);
    return kSuccess;
}

// A program on a device that is cut up sees its instance's UUID from the driver, and never the device's own.
std::string uuid_text(const Device& device) {
    char bytes[16];
    sim::fill_uuid(bytes, device.ordinal);
    if (settings().mig && !device.instance) bytes[14] = 'P';
    std::string text = device.instance ? "MIG-" : "GPU-";
    for (unsigned i = 0; i < sizeof bytes; ++i) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(bytes[i]));
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += two;
    }
    return text;
}

std::string bus_id(const Device& device) {
    char text[32];
    std::snprintf(text, sizeof text, "%08X:%02X:00.0", 0U, static_cast<unsigned>(device.ordinal) + 1U);
    return text;
}

struct Account {
    unsigned long long total, reserved, free;
};

Return account_of(const Device& device, Account& account) {
    sim::DeviceView view;
    if (!sim::look_at(simulated(), device.ordinal, view)) return kNotSupported;
    account.total = view.capacity + settings().reserved;
    account.reserved = view.reserve + settings().reserved;
    account.free = view.free;
    return kSuccess;
}

// Writes the list of those that compute, in entries of `size` bytes.
Return put_processes(const Device* device, unsigned* count, void* out, std::size_t size) {
    if (!is_device(device) || count == nullptr) return kInvalidArgument;
    if (settings().processes == NvmlSettings::Lists::kForbidden) return kNoPermission;
    sim::DeviceView view;
    if (!sim::look_at(simulated(), device->ordinal, view)) return kNotSupported;
    if (settings().processes == NvmlSettings::Lists::kEmpty) view.holders.clear();
    const auto there = static_cast<unsigned>(view.holders.size());
    const unsigned room = std::exchange(*count, there);
    if (there > room) return kInsufficientSize;
    if (there != 0 && out == nullptr) return kInvalidArgument;
    for (unsigned i = 0; i < there; ++i) {
        ProcessWithProtected entry{};
        entry.process.pid = static_cast<unsigned>(view.holders[i].pid) + static_cast<unsigned>(settings().pid_offset);
        switch (settings().process_bytes) {
            case NvmlSettings::Bytes::kTold: entry.process.used = view.holders[i].bytes; break;
            case NvmlSettings::Bytes::kNotAvailable: entry.process.used = kNotAvailable; break;
            case NvmlSettings::Bytes::kZero: entry.process.used = 0; break;
        }
        entry.process.gpu_instance = settings().mig ? kGpuInstance : kNoInstance;
        entry.process.compute_instance = settings().mig ? kComputeInstance : kNoInstance;
        std::memcpy(static_cast<char*>(out) + i * size, &entry, size);
    }
    return kSuccess;
}

// Of graphics and of MPS clients there are none.
Return put_no_processes(const Device* device, unsigned* count) {
    if (!is_device(device) || count == nullptr) return kInvalidArgument;
    if (settings().processes == NvmlSettings::Lists::kForbidden) return kNoPermission;
    *count = 0;
    return kSuccess;
}

Return find_device(const std::string& wanted, std::string (*name)(const Device&), Device** device) {
    if (device == nullptr) return kInvalidArgument;
    for (std::vector<Device>* all : {&g_library->devices, &g_library->instances}) {
        for (Device& each : *all) {
            if ((each.instance && !settings().mig) || name(each) != wanted) continue;
            *device = &each;
            return kSuccess;
        }
    }
    return kNotFound;
}

}  // namespace
}  // namespace fragscope::nvml

using namespace fragscope::nvml;

#define NVML_ENTER(function) \
    if (const Return error_ = enter_initialized(#function); error_ != kSuccess) return error_

extern "C" {

Return nvmlInit_v2() {
    if (const Return error = enter("nvmlInit_v2"); error != kSuccess) return error;
    const std::lock_guard lock(g_mutex);
    ++g_library->users;
    return kSuccess;
}
Return nvmlInit() { return nvmlInit_v2(); }
Return nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

Return nvmlShutdown() {
    NVML_ENTER(nvmlShutdown);
    const std::lock_guard lock(g_mutex);
    --g_library->users;
    return kSuccess;
}

const char* nvmlErrorString(Return error) {
    switch (error) {
        case kSuccess: return "Success";
        case kUninitialized: return "Uninitialized";
        case kInvalidArgument: return "Invalid Argument";
        case kNotSupported: return "Not Supported";
        case kNoPermission: return "Insufficient Permissions";
        case kNotFound: return "Not Found";
        case kInsufficientSize: return "Insufficient Size";
        case 9: return "Driver Not Loaded";
        case 13: return "Function Not Found";
        case 15: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        case kArgumentVersionMismatch: return "Argument Version Mismatch";
        default: return "Unknown Error";
    }
}

Return nvmlSystemGetDriverVersion(char* version, unsigned length) {
    NVML_ENTER(nvmlSystemGetDriverVersion);
    return put_text(settings().driver_version, version, length);
}

Return nvmlSystemGetNVMLVersion(char* version, unsigned length) {
    if (const Return error = enter("nvmlSystemGetNVMLVersion"); error != kSuccess) return error;
    return put_text(settings().library_version, version, length);
}

Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
    if (const Return error = enter("nvmlSystemGetCudaDriverVersion_v2"); error != kSuccess) return error;
    if (version == nullptr) return kInvalidArgument;
    *version = simulated().driver_version;
    return kSuccess;
}
Return nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

Return nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
    NVML_ENTER(nvmlSystemGetProcessName);
    if (name == nullptr || length == 0) return kInvalidArgument;
    std::ifstream file("/proc/" + std::to_string(pid - static_cast<unsigned>(settings().pid_offset)) + "/cmdline");
    std::string line;
    if (!std::getline(file, line, '\0')) return kNotFound;
    std::snprintf(name, length, "%s", line.c_str());
    return kSuccess;
}

Return nvmlDeviceGetCount_v2(unsigned* count) {
    NVML_ENTER(nvmlDeviceGetCount_v2);
    if (count == nullptr) return kInvalidArgument;
    *count = simulated().devices;
    return kSuccess;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
    NVML_ENTER(nvmlDeviceGetHandleByIndex_v2);
    if (device == nullptr || index >= simulated().devices) return kInvalidArgument;
    *device = &g_library->devices[index];
    return kSuccess;
}

// "0000:01:00.0" and "00000000:01:00.0" alike.
Return nvmlDeviceGetHandleByPciBusId_v2(const char* text, Device** device) {
    NVML_ENTER(nvmlDeviceGetHandleByPciBusId_v2);
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (text == nullptr || device == nullptr) return kInvalidArgument;
    if (std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) return kInvalidArgument;
    if (domain != 0 || slot != 0 || function != 0 || bus < 1 || bus > simulated().devices) return kNotFound;
    *device = &g_library->devices[bus - 1];
    return kSuccess;
}

Return nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
    NVML_ENTER(nvmlDeviceGetHandleByUUID);
    if (uuid == nullptr) return kInvalidArgument;
    return find_device(uuid, uuid_text, device);
}

Return nvmlDeviceGetIndex(Device* device, unsigned* index) {
    NVML_ENTER(nvmlDeviceGetIndex);
    if (!is_device(device) || index == nullptr) return kInvalidArgument;
    *index = static_cast<unsigned>(device->ordinal);
    return kSuccess;
}

Return nvmlDeviceGetUUID(Device* device, char* uuid, unsigned length) {
    NVML_ENTER(nvmlDeviceGetUUID);
    return is_device(device) ? put_text(uuid_text(*device), uuid, length) : kInvalidArgument;
}

Return nvmlDeviceGetName(Device* device, char* name, unsigned length) {
    NVML_ENTER(nvmlDeviceGetName);
    if (!is_device(device)) return kInvalidArgument;
    return put_text(simulated().device_name, name, length);
}

Return nvmlDeviceGetPciInfo_v3(Device* device, PciInfo* info) {
    NVML_ENTER(nvmlDeviceGetPciInfo_v3);
    if (!is_device(device) || info == nullptr) return kInvalidArgument;
    *info = {};
    const std::string text = bus_id(*device);
    std::snprintf(info->bus_id, sizeof info->bus_id, "%s", text.c_str());
    std::snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%s", text.c_str() + 4);
    info->bus = static_cast<unsigned>(device->ordinal) + 1;
    return kSuccess;
}

Return nvmlDeviceGetMemoryInfo(Device* device, Memory* memory) {
    NVML_ENTER(nvmlDeviceGetMemoryInfo);
    if (!is_device(device) || memory == nullptr) return kInvalidArgument;
    Account account{};
    if (const Return error = account_of(*device, account); error != kSuccess) return error;
    *memory = {account.total, account.free, account.total - account.free};
    return kSuccess;
}

Return nvmlDeviceGetMemoryInfo_v2(Device* device, MemoryV2* memory) {
    NVML_ENTER(nvmlDeviceGetMemoryInfo_v2);
    if (!is_device(device) || memory == nullptr) return kInvalidArgument;
    if (memory->version != (sizeof(MemoryV2) | 2U << 24)) return kArgumentVersionMismatch;
    Account account{};
    if (const Return error = account_of(*device, account); error != kSuccess) return error;
    *memory = {memory->version, account.total, account.reserved, account.free,
               account.total - account.reserved - account.free};
    return kSuccess;
}

Return nvmlDeviceGetComputeRunningProcesses(Device* device, unsigned* count, void* infos) {
    NVML_ENTER(nvmlDeviceGetComputeRunningProcesses);
    return put_processes(device, count, infos, sizeof(ProcessV1));
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device* device, unsigned* count, void* infos) {
    NVML_ENTER(nvmlDeviceGetComputeRunningProcesses_v2);
    return put_processes(device, count, infos, sizeof(ProcessV2));
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device* device, unsigned* count, void* infos) {
    NVML_ENTER(nvmlDeviceGetComputeRunningProcesses_v3);
    return put_processes(device, count, infos, settings().process_layout);
}

Return nvmlDeviceGetGraphicsRunningProcesses(Device* device, unsigned* count, void*) {
    NVML_ENTER(nvmlDeviceGetGraphicsRunningProcesses);
    return put_no_processes(device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v2(Device* device, unsigned* count, void*) {
    NVML_ENTER(nvmlDeviceGetGraphicsRunningProcesses_v2);
    return put_no_processes(device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device* device, unsigned* count, void*) {
    NVML_ENTER(nvmlDeviceGetGraphicsRunningProcesses_v3);
    return put_no_processes(device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses(Device* device, unsigned* count, void*) {
    NVML_ENTER(nvmlDeviceGetMPSComputeRunningProcesses);
    return put_no_processes(device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v2(Device* device, unsigned* count, void*) {
    NVML_ENTER(nvmlDeviceGetMPSComputeRunningProcesses_v2);
    return put_no_processes(device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device* device, unsigned* count, void*) {
    NVML_ENTER(nvmlDeviceGetMPSComputeRunningProcesses_v3);
    return put_no_processes(device, count);
}

Return nvmlDeviceGetMigMode(Device* device, unsigned* current, unsigned* pending) {
    NVML_ENTER(nvmlDeviceGetMigMode);
    if (!is_device(device) || device->instance || current == nullptr || pending == nullptr) return kInvalidArgument;
    *current = *pending = settings().mig ? 1 : 0;
    return kSuccess;
}

Return nvmlDeviceGetMaxMigDeviceCount(Device* device, unsigned* count) {
    NVML_ENTER(nvmlDeviceGetMaxMigDeviceCount);
    if (!is_device(device) || count == nullptr) return kInvalidArgument;
    *count = settings().mig ? kMostInstances : 0;
    return kSuccess;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device* device, unsigned index, Device** instance) {
    NVML_ENTER(nvmlDeviceGetMigDeviceHandleByIndex);
    if (!is_device(device) || device->instance || instance == nullptr) return kInvalidArgument;
    if (!settings().mig || index != 0) return kNotFound;
    *instance = &g_library->instances[static_cast<std::size_t>(device->ordinal)];
    return kSuccess;
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device* instance, Device** device) {
    NVML_ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (!is_device(instance) || !instance->instance || device == nullptr) return kInvalidArgument;
    *device = &g_library->devices[static_cast<std::size_t>(instance->ordinal)];
    return kSuccess;
}

Return nvmlDeviceIsMigDeviceHandle(Device* device, unsigned* is_instance) {
    NVML_ENTER(nvmlDeviceIsMigDeviceHandle);
    if (!is_device(device) || is_instance == nullptr) return kInvalidArgument;
    *is_instance = device->instance ? 1 : 0;
    return kSuccess;
}

Return nvmlDeviceGetGpuInstanceId(Device* device, unsigned* id) {
    NVML_ENTER(nvmlDeviceGetGpuInstanceId);
    if (!is_device(device) || id == nullptr) return kInvalidArgument;
    if (!device->instance) return kNotSupported;
    *id = kGpuInstance;
    return kSuccess;
}

Return nvmlDeviceGetComputeInstanceId(Device* device, unsigned* id) {
    NVML_ENTER(nvmlDeviceGetComputeInstanceId);
    if (!is_device(device) || id == nullptr) return kInvalidArgument;
    if (!device->instance) return kNotSupported;
    *id = kComputeInstance;
    return kSuccess;
}

// The simulated devices have no NVLink and are part of no fabric.
Return nvmlDeviceGetNvLinkState(Device* device, unsigned, unsigned*) {
    NVML_ENTER(nvmlDeviceGetNvLinkState);
    return is_device(device) ? kNotSupported : kInvalidArgument;
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device* device, unsigned, PciInfo*) {
    NVML_ENTER(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    return is_device(device) ? kNotSupported : kInvalidArgument;
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device* device, unsigned, unsigned*) {
    NVML_ENTER(nvmlDeviceGetNvLinkRemoteDeviceType);
    return is_device(device) ? kNotSupported : kInvalidArgument;
}
Return nvmlDeviceGetGpuFabricInfo(Device* device, FabricInfo* info) {
    NVML_ENTER(nvmlDeviceGetGpuFabricInfo);
    if (!is_device(device) || info == nullptr) return kInvalidArgument;
    *info = {};  // state 0: not supported
    return kSuccess;
}
// The third version has one field more.
Return nvmlDeviceGetGpuFabricInfoV(Device* device, FabricInfoV3* info) {
    NVML_ENTER(nvmlDeviceGetGpuFabricInfoV);
    if (!is_device(device) || info == nullptr) return kInvalidArgument;
    const unsigned version = info->version;
    const bool second = version == (sizeof(FabricInfoV2) | 2U << 24);
    if (!second && version != (sizeof(FabricInfoV3) | 3U << 24)) return kArgumentVersionMismatch;
    std::memset(static_cast<void*>(info), 0, second ? sizeof(FabricInfoV2) : sizeof(FabricInfoV3));
    info->version = version;
    return kSuccess;
}

}  // extern "C"
