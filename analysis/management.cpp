#include "analysis/management.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "analysis/quantity.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using report::Quantity;

constexpr std::size_t kMostProblems = 8;

std::int64_t difference(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b); }

// Devices by their UUIDs, as the trace's devices have them; empty where no process of the trace saw one.
class DevicesInTrace {
  public:
    explicit DevicesInTrace(const Trace& trace) {
        for (std::uint32_t process = 0; process < trace.processes.size(); ++process) {
            for (const trace::Device& device : trace.processes[process].devices()) {
                if (device.uuid().size() != 16) continue;
                names_.try_emplace(device.uuid(),
                                   device_uuid(trace, {process}, static_cast<int>(device.ordinal())));
            }
        }
    }
    std::string name(const trace::DeviceReading& reading) const {
        const auto found = names_.find(reading.uuid());
        return found != names_.end() ? found->second : "";
    }

  private:
    std::map<std::string, std::string> names_;
};

// What cuMemGetInfo said of one device, in any process.
struct DriverSaid {
    std::uint64_t time_ns = 0;
    std::uint32_t process = 0;
    std::uint64_t free = 0;
    std::uint64_t total = 0;
};
using SaidOfDevices = std::map<std::string, std::vector<DriverSaid>>;  // by device, in order of time

SaidOfDevices driver_said(const Trace& trace) {
    SaidOfDevices out;
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        std::map<int, std::string> names;
        const Kinds words = kinds_of({wire::Kind::kDeviceMemory});
        trace.events[process].for_each_of(words, [&](std::size_t, const Event& event) {
            if (event.failed() || event.device == kNoDevice) return;
            const auto [name, fresh] = names.try_emplace(event.device);
            if (fresh) name->second = device_uuid(trace, {process}, event.device);
            if (name->second.empty()) return;
            out[name->second].push_back({event.start.value, process, event.address.value, event.bytes.value});
        });
    }
    for (auto& [device, all] : out) {
        std::stable_sort(all.begin(), all.end(),
                         [](const DriverSaid& a, const DriverSaid& b) { return a.time_ns < b.time_ns; });
    }
    return out;
}

const DriverSaid* nearest(const std::vector<DriverSaid>& all, std::uint64_t time_ns) {
    const auto after =
        std::lower_bound(all.begin(), all.end(), time_ns,
                         [](const DriverSaid& said, std::uint64_t time) { return said.time_ns < time; });
    if (after == all.begin()) return after == all.end() ? nullptr : &*after;
    const auto before = std::prev(after);
    return after == all.end() || time_ns - before->time_ns <= after->time_ns - time_ns ? &*before : &*after;
}

// One device in one round of readings.
struct Moment {
    const trace::Readings* readings = nullptr;
    const trace::DeviceReading* device = nullptr;
};

class Teller {
  public:
    explicit Teller(const Trace& trace) : trace_(trace), said_(driver_said(trace)), holders_(trace) {}

    // Moments do not go back in time from one call to the next.
    report::ManagedMoment tell(const Moment& moment, const std::string& device) {
        const trace::DeviceReading& reading = *moment.device;
        report::ManagedMoment out;
        Scope scope;
        scope.device = device.empty() ? reading.uuid_text() : device;
        scope.time_ns = since_start(trace_, {moment.readings->time_ns()});
        out.set_time_ns(*scope.time_ns);
        out.set_duration_ns(moment.readings->duration_ns());
        const auto told = [&](bool known, std::uint64_t bytes, Quantity::Definition definition,
                              const char* how) {
            return (known ? analysis::Quantity::measured(definition, bytes, scope, how)
                          : analysis::Quantity::unknown(definition, scope,
                                                        "the management library did not tell it"))
                .message();
        };
        const char* memory =
            reading.used_holds_reserved() ? "nvmlDeviceGetMemoryInfo" : "nvmlDeviceGetMemoryInfo_v2";
        *out.mutable_total() =
            told(reading.has_total_bytes(), reading.total_bytes(), Quantity::nvml_total, memory);
        *out.mutable_used() =
            told(reading.has_used_bytes(), reading.used_bytes(), Quantity::nvml_used, memory);
        *out.mutable_nvml_free() =
            told(reading.has_free_bytes(), reading.free_bytes(), Quantity::nvml_free, memory);
        *out.mutable_reserved() =
            told(reading.has_reserved_bytes(), reading.reserved_bytes(), Quantity::nvml_reserved, memory);
        out.set_used_holds_reserved(reading.used_holds_reserved());
        out.set_processes_known(reading.processes_known());
        add_processes(moment, device, scope, out);
        add_driver(moment, device, out);
        return out;
    }

  private:
    void add_processes(const Moment& moment, const std::string& device, const Scope& scope,
                       report::ManagedMoment& out) {
        const std::uint64_t from = moment.readings->time_ns();
        const std::vector<OtherProcess> held =
            device.empty() ? std::vector<OtherProcess>()
                           : holders_.at({UINT32_MAX}, device, from, from + moment.readings->duration_ns());
        for (const trace::ProcessReading& process : moment.device->processes()) {
            report::ManagedProcess& told = *out.add_processes();
            told.set_pid(process.pid());
            if (process.has_pid_here()) told.set_pid_here(process.pid_here());
            told.set_name(process.name());
            told.set_kind(process.kind());
            if (process.has_gpu_instance()) told.set_gpu_instance(process.gpu_instance());
            if (process.has_compute_instance()) told.set_compute_instance(process.compute_instance());
            Scope own = scope;
            if (process.has_process() && process.process() < trace_.processes.size()) {
                told.set_process(process.process());
                own.process = process.process();
            }
            *told.mutable_used() =
                (process.has_used_bytes()
                     ? analysis::Quantity::measured(Quantity::nvml_process, process.used_bytes(), own,
                                                    "the management library's list of processes")
                     : analysis::Quantity::unknown(Quantity::nvml_process, own,
                                                   "the management library did not tell it"))
                    .message();
            if (told.has_process()) add_attributed(held, own, told);
        }
    }

    // What the records say that this process held meanwhile. The difference has its contexts and its code in
    // it.
    static void add_attributed(const std::vector<OtherProcess>& held, const Scope& own,
                               report::ManagedProcess& told) {
        const auto found = std::find_if(held.begin(), held.end(), [&](const OtherProcess& each) {
            return each.process.value == told.process();
        });
        if (found == held.end() || !found->charged.known()) {
            *told.mutable_attributed() =
                analysis::Quantity::unknown(Quantity::attributed, own,
                                            found == held.end()
                                                ? "the records have nothing of it on this device then"
                                                : "records are missing")
                    .message();
            return;
        }
        *told.mutable_attributed() =
            analysis::Quantity::bounded(
                Quantity::attributed, found->charged, own,
                "what the records of this process add up to while the library was asked")
                .message();
        if (!told.used().has_low_bytes()) return;
        if (found->charged.high)
            told.set_more_low_bytes(difference(told.used().low_bytes(), *found->charged.high));
        if (found->charged.low)
            told.set_more_high_bytes(difference(told.used().low_bytes(), *found->charged.low));
    }

    void add_driver(const Moment& moment, const std::string& device, report::ManagedMoment& out) const {
        const auto all = said_.find(device);
        if (all == said_.end()) return;
        const DriverSaid* said = nearest(all->second, moment.readings->time_ns());
        if (said == nullptr) return;
        report::DriverWord& driver = *out.mutable_driver();
        Scope scope;
        scope.process = said->process;
        scope.device = device;
        scope.time_ns = since_start(trace_, {said->time_ns});
        driver.set_process(said->process);
        driver.set_after_ns(difference(said->time_ns, moment.readings->time_ns()));
        *driver.mutable_device_free() =
            analysis::Quantity::measured(Quantity::device_free, said->free, scope, "cuMemGetInfo").message();
        *driver.mutable_total() =
            analysis::Quantity::measured(Quantity::capacity, said->total, scope, "cuMemGetInfo").message();
        const trace::DeviceReading& reading = *moment.device;
        if (reading.has_free_bytes())
            driver.set_device_free_less_bytes(difference(said->free, reading.free_bytes()));
        if (reading.has_total_bytes())
            driver.set_total_less_bytes(difference(said->total, reading.total_bytes()));
    }

    const Trace& trace_;
    SaidOfDevices said_;
    Neighbours holders_;
};

void describe(const Trace& trace, report::Management& out) {
    out.set_state(trace.session.recording().nvml());
    out.set_readings(trace.readings.size());
    std::vector<std::string> problems;
    for (const trace::Readings& readings : trace.readings) {
        if (!readings.driver_version().empty()) out.set_driver_version(readings.driver_version());
        if (!readings.library_version().empty()) out.set_library_version(readings.library_version());
        const std::string& problem = readings.problem();
        if (problem.empty() || std::find(problems.begin(), problems.end(), problem) != problems.end())
            continue;
        if (problems.size() < kMostProblems) problems.push_back(problem);
    }
    for (const std::string& problem : problems) out.add_problems(problem);
}

void describe(const trace::DeviceReading& reading, const std::string& device, report::ManagedDevice& out) {
    out.set_device(device);
    out.set_uuid(reading.uuid_text());
    out.set_name(reading.name());
    out.set_pci_bus_id(reading.pci_bus_id());
    if (reading.has_mig()) out.set_mig(reading.mig());
    out.set_parent_uuid(reading.parent_uuid_text());
}

}  // namespace

std::optional<report::Management> management_of(const Trace& trace) {
    const std::string& state = trace.session.recording().nvml();
    if (trace.readings.empty() && (state.empty() || state == "off")) return std::nullopt;
    report::Management out;
    describe(trace, out);

    struct Shown {
        std::string device;
        Moment first, last;
        Moment fullest;  // of nothing where no reading told how much was in use
    };
    std::map<std::string, Shown> shown;  // by the library's name for the device
    std::set<std::string> unseen;
    const DevicesInTrace in_trace(trace);
    for (const trace::Readings& readings : trace.readings) {
        for (const trace::DeviceReading& reading : readings.devices()) {
            const bool known = shown.count(reading.uuid_text()) != 0;
            const std::string device = in_trace.name(reading);
            if (device.empty()) {
                unseen.insert(reading.uuid_text());
                continue;
            }
            Shown& entry = shown[reading.uuid_text()];
            const Moment moment{&readings, &reading};
            if (!known) entry = {device, moment, moment, {}};
            entry.last = moment;
            if (reading.has_used_bytes() && (entry.fullest.device == nullptr ||
                                             reading.used_bytes() > entry.fullest.device->used_bytes()))
                entry.fullest = moment;
        }
    }
    out.set_other_devices(unseen.size());

    // Told in order of time, shown in order of devices.
    struct Told {
        std::string uuid;
        Moment moment;
        std::vector<std::string> names;
    };
    std::vector<Told> told;
    for (const auto& [uuid, entry] : shown) {
        const std::size_t begin = told.size();
        for (const auto& [moment, name] :
             {std::pair(entry.first, "first reading"), std::pair(entry.fullest, "fullest reading"),
              std::pair(entry.last, "last reading")}) {
            if (moment.device == nullptr) continue;
            // Readings that say the same were still taken at different times.
            if (told.size() > begin && told.back().moment.device == moment.device)
                told.back().names.emplace_back(name);
            else
                told.push_back({uuid, moment, {name}});
        }
    }
    std::stable_sort(told.begin(), told.end(), [](const Told& a, const Told& b) {
        return a.moment.readings->time_ns() < b.moment.readings->time_ns();
    });
    std::map<std::string, report::ManagedDevice> devices;
    Teller teller(trace);
    for (const Told& each : told) {
        report::ManagedDevice& device = devices[each.uuid];
        describe(*each.moment.device, shown[each.uuid].device, device);
        report::ManagedMoment& moment = *device.add_moments();
        moment = teller.tell(each.moment, shown[each.uuid].device);
        for (const std::string& name : each.names) moment.add_moments(name);
    }
    for (auto& [uuid, device] : devices) *out.add_devices() = std::move(device);
    return out;
}

std::optional<report::Management> management_at(const Trace& trace, const std::string& device,
                                                std::uint64_t time_ns) {
    Moment best;
    std::uint64_t distance = 0;
    const DevicesInTrace in_trace(trace);
    for (const trace::Readings& readings : trace.readings) {
        const std::uint64_t from = readings.time_ns(), to = from + readings.duration_ns();
        const std::uint64_t away = time_ns < from ? from - time_ns : time_ns > to ? time_ns - to : 0;
        if (best.readings != nullptr && away >= distance) continue;
        for (const trace::DeviceReading& reading : readings.devices()) {
            if (device.empty() || in_trace.name(reading) != device) continue;
            best = {&readings, &reading};
            distance = away;
        }
    }
    if (best.readings == nullptr) return std::nullopt;
    report::Management out;
    describe(trace, out);
    out.clear_problems();
    if (!best.readings->problem().empty()) out.add_problems(best.readings->problem());
    report::ManagedDevice& told = *out.add_devices();
    describe(*best.device, device, told);
    Teller teller(trace);
    report::ManagedMoment& moment = *told.add_moments();
    moment = teller.tell(best, device);
    moment.add_moments("the reading nearest to the failure");
    moment.set_after_failure_ns(distance == 0 ? 0 : difference(best.readings->time_ns(), time_ns));
    return out;
}

}  // namespace fragscope::analysis
