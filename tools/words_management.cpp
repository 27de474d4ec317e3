#include "tools/words_management.h"

#include <fmt/format.h>

#include <string>

#include "tools/words_terms.h"

namespace fragscope::tools {
namespace {

using Tone = Page::Tone;
using Align = Table::Align;

constexpr char kHeading[] = "What the management library (NVML) said";
constexpr char kCaution[] =
    "Another count than cuMemGetInfo's, at other moments: each stands for itself, and their differences are "
    "no memory.";

std::uint64_t magnitude(std::int64_t value) {
    return value < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(value)
                     : static_cast<std::uint64_t>(value);
}

std::string distance_words(std::int64_t after_ns) {
    if (after_ns == 0) return "at the same time";
    return human_duration(magnitude(after_ns)) + (after_ns < 0 ? " earlier" : " later");
}

// "12 MiB more", "3 MiB less", "the same".
std::string more_words(std::int64_t bytes) {
    if (bytes == 0) return "the same";
    return human_bytes(magnitude(bytes)) + (bytes < 0 ? " less" : " more");
}

std::string who_words(const report::ManagedProcess& process) {
    std::string who = process.has_process() ? fmt::format("process {}", process.process()) : "";
    const std::string pid = process.has_pid_here() && process.pid_here() != process.pid()
                                ? fmt::format("pid {} there, {} here", process.pid(), process.pid_here())
                            : process.has_pid_here()
                                ? fmt::format("pid {}", process.pid())
                                : fmt::format("pid {} as the library numbers them", process.pid());
    who += who.empty() ? pid : fmt::format(" ({})", pid);
    if (!process.name().empty()) who += fmt::format(", {}", process.name());
    if (!process.kind().empty() && process.kind() != "compute") who += fmt::format(", {}", process.kind());
    if (process.has_gpu_instance()) who += fmt::format(", GPU instance {}", process.gpu_instance());
    if (process.has_compute_instance())
        who += fmt::format(", compute instance {}", process.compute_instance());
    return who;
}

std::string attributed_words(const report::ManagedProcess& process) {
    if (!process.has_process()) {
        return process.has_pid_here()
                   ? "Not recorded here."
                   : "Whether it was recorded here is not known: its number could not be looked up.";
    }
    if (!is_known(process.attributed()))
        return fmt::format("What its records add up to is not known: {}.", process.attributed().reason());
    std::string words =
        fmt::format("Its records add up to {} meanwhile.", quantity_cell(process.attributed()));
    if (process.has_more_low_bytes() && process.more_low_bytes() == process.more_high_bytes() &&
        process.has_more_high_bytes()) {
        words += fmt::format(" NVML says {}: its contexts and code are in that number.",
                             more_words(process.more_low_bytes()));
    } else if (process.has_more_low_bytes() && process.has_more_high_bytes()) {
        words += fmt::format(" NVML says between {} and {}: its contexts and code are in that number.",
                             more_words(process.more_low_bytes()), more_words(process.more_high_bytes()));
    }
    return words;
}

void put_moment(Page& page, const report::ManagedMoment& moment, int indent) {
    Table table;
    table.columns = {
        {"as NVML counts", Align::kLeft, true}, {"bytes", Align::kRight}, {"exact", Align::kRight, true}};
    const auto row = [&](const std::string& what, const report::Quantity& quantity) {
        table.rows.emplace_back();
        table.rows.back().cells = {what, quantity_cell(quantity), quantity_exact_cell(quantity)};
    };
    row("NVML total", moment.total());
    row(moment.used_holds_reserved() ? "NVML used, with what is reserved" : "NVML used", moment.used());
    if (!moment.used_holds_reserved()) row("NVML reserved, for the driver", moment.reserved());
    row("NVML device-free", moment.nvml_free());
    for (const report::ManagedProcess& process : moment.processes()) {
        row("held by " + who_words(process), process.used());
        table.rows.back().notes = {attributed_words(process)};
    }
    page.table(table, indent);
    if (!moment.processes_known()) {
        page.paragraph(moment.processes().empty() ? "Which processes hold memory was not told."
                                                  : "Whether other processes hold memory was not told.",
                       indent);
    } else if (moment.processes().empty()) {
        page.paragraph("No process was listed.", indent);
    }
    if (!moment.has_driver()) {
        page.paragraph("cuMemGetInfo was not asked about this device.", indent);
        return;
    }
    const report::DriverWord& driver = moment.driver();
    std::string words = fmt::format("cuMemGetInfo, {} in process {}: {} device-free of {}.",
                                    distance_words(driver.after_ns()), driver.process(),
                                    quantity_cell(driver.device_free()), quantity_cell(driver.total()));
    if (driver.has_device_free_less_bytes() && driver.has_total_less_bytes()) {
        words += fmt::format(" Against NVML that is {} device-free and {} in all.",
                             more_words(driver.device_free_less_bytes()), more_words(driver.total_less_bytes()));
    }
    page.paragraph(words, indent);
}

std::string device_words(const report::ManagedDevice& device) {
    std::string words =
        fmt::format("{}, {}", device.name().empty() ? "name not known" : device.name(), device.uuid());
    if (!device.pci_bus_id().empty()) words += fmt::format(", bus {}", device.pci_bus_id());
    if (!device.parent_uuid().empty())
        words += fmt::format(", an instance (MIG) of {}", device.parent_uuid());
    if (device.has_mig() && device.mig()) words += ", cut up into instances (MIG)";
    return words;
}

void put_versions(Page& page, const report::Management& management) {
    std::string versions;
    if (!management.driver_version().empty()) versions = "driver " + management.driver_version();
    if (!management.library_version().empty())
        versions += (versions.empty() ? "library " : ", library ") + management.library_version();
    page.paragraph(fmt::format("Asked {}{}. {}", counted(management.readings(), "time"),
                               versions.empty() ? "" : "; " + versions, kCaution),
                   2, Tone::kQuiet);
}

void put_problems(Page& page, const report::Management& management) {
    for (const std::string& problem : management.problems()) page.item("!", problem, 2);
}

}  // namespace

void put_management(Page& page, const report::Report& report) {
    if (!report.has_management()) return;
    const report::Management& management = report.management();
    page.heading(kHeading);
    if (management.state() != "on" && management.readings() == 0) {
        page.paragraph(upper_first(fmt::format("It was not asked: {}.", management.state())), 2);
        return;
    }
    put_versions(page, management);
    put_problems(page, management);
    for (const report::ManagedDevice& device : management.devices()) {
        page.item("-", device_words(device), 2, Tone::kStrong);
        for (const report::ManagedMoment& moment : device.moments()) {
            std::string names;
            for (const std::string& name : moment.moments()) names += (names.empty() ? "" : " and ") + name;
            page.paragraph(
                fmt::format("{}, {} after the start:", upper_first(names), human_duration(moment.time_ns())),
                4);
            put_moment(page, moment, 6);
        }
    }
    if (management.devices().empty()) page.paragraph("It said nothing of the devices that were recorded.", 2);
    if (management.other_devices() != 0) {
        page.paragraph(fmt::format("{} of this machine that no recorded process saw: not shown.",
                                   upper_first(counted(management.other_devices(), "device"))),
                       2, Tone::kQuiet);
    }
}

void put_management(Page& page, const report::Explanation& explanation) {
    if (!explanation.has_management() || explanation.management().devices().empty()) return;
    const report::ManagedDevice& device = explanation.management().devices(0);
    const report::ManagedMoment& moment = device.moments(0);
    page.heading(fmt::format("{} nearest to the failure", kHeading));
    put_versions(page, explanation.management());
    put_problems(page, explanation.management());
    page.paragraph(
        fmt::format("{}. Asked {}, which took {}.", device_words(device),
                    moment.after_failure_ns() == 0
                        ? "while the request was made"
                        : fmt::format("{} than the request", distance_words(moment.after_failure_ns())),
                    human_duration(moment.duration_ns())),
        2);
    put_moment(page, moment, 4);
}

}  // namespace fragscope::tools
