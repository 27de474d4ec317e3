#include "analysis/rest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/quantity.h"

namespace fragscope::analysis {

using wire::Kind;

std::vector<std::string> in_the_rest(const ProcessState& state, int device) {
    std::vector<std::string> out;
    const auto say = [&](std::uint64_t count, const char* one, const char* many) {
        if (count != 0) out.push_back(fmt::format(fmt::runtime(count == 1 ? one : many), count));
    };
    say(state.contexts(device), "{} context of this process", "{} contexts of this process");
    say(state.modules(), "the code of {} module or library", "the code of {} modules and libraries");
    if (const std::uint64_t bytes = state.foreign().external_bytes(); bytes != 0) {
        out.push_back(fmt::format(
            "memory of other programming interfaces, of which this process has imported {} (of all devices)",
            in_words(bytes)));
    }
    say(state.foreign().addresses().size(),
        "memory of others that this process has open at {} address, unless its owner was recorded too",
        "memory of others that this process has open at {} addresses, unless its owner was recorded too");
    std::uint64_t imported = 0;
    state.physical().for_each([&](const Physical& physical) { imported += physical.imported ? 1 : 0; });
    say(imported, "{} imported physical handle, unless its exporter was recorded too",
        "{} imported physical handles, unless their exporters were recorded too");
    if (const std::uint64_t bytes = state.totals(device).may_outlive; bytes != 0) {
        out.push_back(
            fmt::format("up to {} that this process exported and released: another process may hold it still",
                        in_words(bytes)));
    }
    const DeviceTotals& nowhere = state.totals(kNoDevice);
    if (const std::uint64_t bytes = nowhere.linear_granted + nowhere.pool_live + nowhere.array_texels;
        bytes != 0) {
        out.push_back(fmt::format(
            "up to {} of this process's allocations of which it is not known on which device they are",
            in_words(bytes)));
    }
    return out;
}

namespace {

struct Happening {
    Kind kind;
    const char* one;   // "{} context was created"
    const char* many;  // the same for several
};

constexpr std::array<Happening, 23> kHappenings = {{
    {Kind::kContextCreated, "{} context was created", "{} contexts were created"},
    {Kind::kPrimaryRetained, "a device's primary context was retained {} time",
     "a device's primary context was retained {} times"},
    {Kind::kContextDestroyed, "{} context was destroyed", "{} contexts were destroyed"},
    {Kind::kPrimaryReleased, "a device's primary context was released {} time",
     "a device's primary context was released {} times"},
    {Kind::kPrimaryReset, "a device was reset {} time", "a device was reset {} times"},
    {Kind::kGreenContextCreated, "{} green context was created", "{} green contexts were created"},
    {Kind::kModuleLoaded, "{} module or library was loaded", "{} modules or libraries were loaded"},
    {Kind::kModuleUnloaded, "{} module or library was unloaded", "{} modules or libraries were unloaded"},
    {Kind::kLimitSet, "a context's limit was set {} time (stack size, heap size, …)",
     "a context's limits were set {} times (stack size, heap size, …)"},
    {Kind::kPeerAccessSet, "access to another device was switched {} time",
     "access to other devices was switched {} times"},
    {Kind::kStreamCreated, "{} stream was created", "{} streams were created"},
    {Kind::kStreamDestroyed, "{} stream was destroyed", "{} streams were destroyed"},
    {Kind::kGraphInstantiated, "{} graph was instantiated", "{} graphs were instantiated"},
    {Kind::kGraphLaunched, "{} graph was launched", "{} graphs were launched"},
    {Kind::kGraphMemoryTrimmed, "memory of graphs was trimmed {} time",
     "memory of graphs was trimmed {} times"},
    {Kind::kHostRegistered, "{} range of host memory was registered (its page tables are on the device)",
     "{} ranges of host memory were registered (their page tables are on the device)"},
    {Kind::kReserved, "{} range of addresses was reserved", "{} ranges of addresses were reserved"},
    {Kind::kExternalImported, "memory of another interface was imported {} time",
     "memory of other interfaces was imported {} times"},
    {Kind::kGraphicsMapped, "{} graphics resource was mapped", "{} graphics resources were mapped"},
    {Kind::kIpcOpened, "memory of another process was opened {} time",
     "memory of other processes was opened {} times"},
    {Kind::kMulticastCreated, "{} multicast object was created", "{} multicast objects were created"},
    {Kind::kHandleImported, "{} physical handle was imported", "{} physical handles were imported"},
    {Kind::kCheckpoint, "a process went through {} step of a checkpoint",
     "a process went through {} steps of a checkpoint"},
}};

bool is_launch(const Trace& trace, const Event& event) {
    return event.kind == Kind::kCalled && event.function.value < trace.functions.size() &&
           trace.functions[event.function.value].starts_with("cuLaunch");
}

}  // namespace

std::vector<std::string> happened_between(const Trace& trace, ProcessIndex process, std::size_t from,
                                          std::size_t to) {
    std::vector<std::string> out;
    if (process.value >= trace.events.size()) return out;
    const auto& events = trace.events[process.value];
    std::array<std::uint64_t, kHappenings.size()> counts{};
    std::uint64_t images = 0, launches = 0;
    Kinds kinds = kinds_of({Kind::kCalled});
    for (const Happening& each : kHappenings) kinds.set(static_cast<std::size_t>(each.kind));
    events.for_each_of(kinds, from, std::min(to, events.size()), [&](std::size_t, const Event& event) {
        if (event.failed() || event.has(wire::kByShim) || event.has(wire::kContinued)) return;
        if (event.kind == Kind::kModuleLoaded) images += std::min(event.bytes.value, UINT64_MAX - images);
        if (is_launch(trace, event)) ++launches;
        for (std::size_t k = 0; k < kHappenings.size(); ++k) {
            if (kHappenings.at(k).kind == event.kind) ++counts.at(k);
        }
    });
    for (std::size_t k = 0; k < kHappenings.size(); ++k) {
        if (counts.at(k) == 0) continue;
        const Happening& row = kHappenings.at(k);
        std::string words = fmt::format(fmt::runtime(counts.at(k) == 1 ? row.one : row.many), counts.at(k));
        if (row.kind == Kind::kModuleLoaded && images != 0)
            words += fmt::format(" ({} of images)", in_words(images));
        out.push_back(std::move(words));
    }
    if (launches != 0) {
        out.push_back(
            fmt::format("{} kernel launch{} (code is loaded, and local memory grows, at a first one)",
                        launches, launches == 1 ? "" : "es"));
    }
    return out;
}

}  // namespace fragscope::analysis
