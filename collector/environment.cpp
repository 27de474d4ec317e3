#include "collector/environment.h"

#include <algorithm>
#include <cstring>

#include "collector/utf8.h"

namespace fragscope::collector {

namespace {

// Far above any driver's list; a stranger's program must not make the message grow for ever.
constexpr int kMaxHooksMissing = 4096;
constexpr std::size_t kMaxAttributes = 1024;

trace::Device& device(trace::Process& process, std::uint8_t ordinal) {
    for (trace::Device& device : *process.mutable_devices())
        if (device.ordinal() == ordinal) return device;
    trace::Device& added = *process.add_devices();
    added.set_ordinal(ordinal);
    return added;
}

}  // namespace

bool is_environment(wire::Kind kind) {
    using wire::Kind;
    switch (kind) {
        case Kind::kDevice:
        case Kind::kDeviceGranularity:
        case Kind::kDeviceAttribute:
        case Kind::kDriver:
        case Kind::kHookMissing:
        case Kind::kEnvironmentComplete:
            return true;
        default:
            return false;
    }
}

void apply_environment(const wire::Record& record, const std::string& function_name,
                       trace::Process& process) {
    using wire::Kind;
    if (record.kind == Kind::kEnvironmentComplete) {
        process.set_environment_complete(true);
        return;
    }
    if (record.kind == Kind::kHookMissing) {
        if (process.hooks_missing_size() < kMaxHooksMissing) process.add_hooks_missing(function_name);
        return;
    }
    if (record.result != 0) return;
    if (record.kind == Kind::kDriver) {
        process.set_driver_version(static_cast<std::uint32_t>(record.address));
        if (record.bytes != 0) process.set_runtime_version(static_cast<std::uint32_t>(record.bytes));
        return;
    }
    if (record.device == wire::kDeviceUnknown) return;
    trace::Device& about = device(process, record.device);
    if (record.kind == Kind::kDevice) {
        char uuid[16];
        std::memcpy(uuid, &record.address, 8);
        std::memcpy(uuid + 8, &record.object, 8);
        about.set_uuid(uuid, sizeof uuid);
        about.set_capacity_bytes(record.bytes);
    } else if (record.kind == Kind::kDeviceGranularity) {
        about.set_minimum_granularity_bytes(record.address);
        about.set_recommended_granularity_bytes(record.bytes);
    } else if (record.kind == Kind::kDeviceAttribute) {
        if (about.attributes().size() < kMaxAttributes)
            (*about.mutable_attributes())[static_cast<std::uint32_t>(record.address)] =
                static_cast<std::int64_t>(record.bytes);
    }
}

void apply_text(const Text& text, trace::Process& process) {
    switch (text.kind) {
        case wire::TextKind::kFunctionName:
        case wire::TextKind::kString:
        case wire::TextKind::kModule:
        case wire::TextKind::kStack:
        case wire::TextKind::kThreadName:
            return;
        case wire::TextKind::kExecutable:
            process.set_executable(to_utf8(text.text));
            return;
        case wire::TextKind::kCommandLine: {
            process.clear_command_line();
            std::size_t begin = 0;
            while (begin < text.text.size()) {
                const std::size_t end = std::min(text.text.find('\0', begin), text.text.size());
                process.add_command_line(to_utf8(text.text.substr(begin, end - begin)));
                begin = end + 1;
            }
            return;
        }
        case wire::TextKind::kDeviceName:
            if (text.subject < wire::kDeviceUnknown)
                device(process, static_cast<std::uint8_t>(text.subject)).set_name(to_utf8(text.text));
            return;
        case wire::TextKind::kDriverPath:
            process.set_driver_path(to_utf8(text.text));
            return;
        case wire::TextKind::kShimVersion:
            process.set_shim_version(to_utf8(text.text));
            return;
        case wire::TextKind::kRuntimePath:
            process.set_runtime_path(to_utf8(text.text));
            return;
    }
}

}  // namespace fragscope::collector
