#include "tools/words_books.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::tools {
namespace {

using Align = Table::Align;
using Tone = Page::Tone;

constexpr std::size_t kShown = 8;  // of each layer

void put_devices(Page& page, const report::State& state) {
    Table table;
    table.columns = {{"device", Align::kLeft, true},           {"physical allocations", Align::kRight, true},
                     {"mapped", Align::kRight, true},          {"linear", Align::kRight, true},
                     {"pools, live", Align::kRight, true},     {"managed", Align::kRight, true},
                     {"arrays, at least", Align::kRight, true}};
    for (const report::DeviceBooks& device : state.devices()) {
        table.rows.push_back({{device.has_ordinal() ? fmt::format("{}", device.ordinal()) : "not known",
                               human_bytes(device.handle_bytes()), human_bytes(device.mapped_bytes()),
                               human_bytes(device.linear_bytes()), human_bytes(device.pool_live_bytes()),
                               human_bytes(device.managed_bytes()), human_bytes(device.array_bytes())},
                              {},
                              false});
    }
    if (table.rows.empty()) {
        page.paragraph("No device and no allocation is in its records up to here.", 2);
        return;
    }
    page.table(table);
    page.paragraph(
        fmt::format(
            "In {}, {}, {} and {}; page-locked host memory: {}. Amounts are what the calls said; what "
            "the driver takes for them, `fragscope report` tells.",
            counted(static_cast<std::uint64_t>(state.reservations_size()), "reservation"),
            counted(static_cast<std::uint64_t>(state.mappings_size()), "mapping"),
            counted(static_cast<std::uint64_t>(state.linear_size()), "linear allocation"),
            counted(static_cast<std::uint64_t>(state.pools_size()), "pool"),
            human_bytes(state.host_pinned_bytes())),
        2);
}

// Behind a table that shows only the largest.
void put_rest(Page& page, std::size_t all, std::string_view one, std::string_view many = {}) {
    if (all <= kShown) return;
    page.paragraph(fmt::format("{} more; --json has all of them.", counted(all - kShown, one, many)), 2);
}

void put_largest(Page& page, const report::State& state) {
    struct Extent {
        std::uint64_t address, bytes;
        std::string what;
    };
    std::vector<Extent> extents;
    for (const report::LinearAllocation& linear : state.linear())
        extents.push_back({linear.address(), linear.bytes(), linear.kind()});
    for (const report::Reservation& reservation : state.reservations())
        extents.push_back(
            {reservation.address(), reservation.bytes(),
             fmt::format("reservation, {} of it mapped", human_bytes(reservation.mapped_bytes()))});
    for (const report::PoolBooks& pool : state.pools()) {
        for (const report::PoolAllocation& allocation : pool.allocations())
            extents.push_back(
                {allocation.address(), allocation.bytes(), fmt::format("of pool {:#x}", pool.pool())});
    }
    if (extents.empty()) return;
    std::stable_sort(extents.begin(), extents.end(),
                     [](const Extent& a, const Extent& b) { return a.bytes > b.bytes; });
    Table table;
    table.columns = {{"extent at", Align::kLeft},
                     {"bytes", Align::kRight, true},
                     {"exact", Align::kRight, true},
                     {"what", Align::kLeft, true}};
    for (std::size_t i = 0; i < std::min(extents.size(), kShown); ++i)
        table.rows.push_back({{fmt::format("{:#x}", extents[i].address), human_bytes(extents[i].bytes),
                               exact_bytes(extents[i].bytes), extents[i].what},
                              {},
                              false});
    page.gap();
    page.paragraph(fmt::format("The largest of {}:", counted(extents.size(), "extent")), 2);
    page.table(table);
}

std::string importers_in_words(const google::protobuf::RepeatedPtrField<report::Importer>& importers) {
    std::string out;
    for (const report::Importer& importer : importers) {
        out += fmt::format("{}process {}{}{}", out.empty() ? "" : ", ", importer.process(),
                           importer.certain() ? "" : " perhaps", importer.still() ? "" : " (no longer)");
    }
    return out;
}

std::string handles_in_words(const report::PhysicalAllocation& physical) {
    if (physical.handles().empty()) return physical.references() == 0 ? "released" : "not known";
    const report::Handle& first = physical.handles(0);
    std::string out = fmt::format("{:#x}", first.handle());
    if (physical.handles_size() > 1) out += fmt::format(" and {} more", physical.handles_size() - 1);
    if (physical.references() > 1) out += fmt::format(", {} references", physical.references());
    return out;
}

std::string sharing_in_words(const report::PhysicalAllocation& physical) {
    std::string out;
    if (physical.imported()) out = "imported";
    if (physical.multicast()) out += out.empty() ? "multicast" : ", multicast";
    if (physical.exported()) {
        const std::string who = importers_in_words(physical.importers());
        out += fmt::format("{}exported{}", out.empty() ? "" : ", ", who.empty() ? "" : " to " + who);
    }
    if (physical.maybe_gone()) out += out.empty() ? "perhaps gone" : ", perhaps gone";
    return out;
}

// Who may reach each physical allocation through all of its mappings.
std::map<std::uint64_t, std::set<std::string>> access_by_physical(const report::State& state) {
    std::map<std::uint64_t, std::set<std::string>> out;
    for (const report::Mapping& mapping : state.mappings()) {
        for (const report::Access& access : mapping.access()) {
            if (access.rights() != "none")
                out[mapping.physical()].insert(fmt::format("{}: {}", access.location(), access.rights()));
        }
    }
    return out;
}

void put_physical(Page& page, const report::State& state) {
    if (state.physical().empty()) return;
    std::vector<const report::PhysicalAllocation*> all;
    for (const report::PhysicalAllocation& physical : state.physical()) all.push_back(&physical);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto* a, const auto* b) { return a->bytes() > b->bytes(); });
    const auto access = access_by_physical(state);
    Table table;
    table.columns = {{"physical allocation", Align::kLeft},
                     {"bytes", Align::kRight, true},
                     {"mapped", Align::kRight, true},
                     {"handle", Align::kLeft, true},
                     {"who may reach it", Align::kLeft, true}};
    for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i) {
        const report::PhysicalAllocation& physical = *all[i];
        std::string who;
        if (const auto found = access.find(physical.number()); found != access.end()) {
            for (const std::string& one : found->second) who += (who.empty() ? "" : ", ") + one;
        }
        if (who.empty())
            who = physical.mapped_bytes() == 0 ? "nobody: not mapped" : "nobody: no access was granted";
        Table::Row row;
        row.cells = {
            physical.has_ordinal() ? fmt::format("on device {}", physical.ordinal())
            : physical.imported()  ? "of another process"
            : physical.multicast() ? "multicast object"
                                   : "host, or not known",
            physical.imported() && physical.bytes() == 0 ? "not told" : human_bytes(physical.bytes()),
            human_bytes(physical.mapped_bytes()), handles_in_words(physical), who};
        if (std::string shared = sharing_in_words(physical); !shared.empty())
            row.notes.push_back(upper_first(std::move(shared)) + ".");
        table.rows.push_back(std::move(row));
    }
    page.gap();
    page.paragraph(fmt::format("Physical allocations, the largest of {}:", grouped(all.size())), 2);
    page.table(table);
    put_rest(page, all.size(), "physical allocation");
}

void put_pools(Page& page, const report::State& state) {
    if (state.pools().empty()) return;
    Table table;
    table.columns = {{"pool", Align::kLeft},
                     {"live", Align::kRight, true},
                     {"freed, pending", Align::kRight, true},
                     {"cached, as told", Align::kRight, true},
                     {"reserved, as told", Align::kRight, true}};
    for (const report::PoolBooks& pool : state.pools()) {
        Table::Row row;
        row.cells = {pool.pool() == 0 ? "not known which" : fmt::format("{:#x}", pool.pool()),
                     human_bytes(pool.live_bytes()), human_bytes(pool.pending_bytes()),
                     pool.has_said_sequence() ? human_bytes(pool.said_cached_bytes()) : "not told",
                     pool.has_said_sequence() ? human_bytes(pool.said_reserved_bytes()) : "not told"};
        std::string note;
        const auto say = [&](const std::string& what) { note += (note.empty() ? "" : "; ") + what; };
        if (pool.has_said_sequence())
            say(fmt::format("told by the driver at event {}", grouped(pool.said_sequence())));
        if (pool.has_maximum_bytes()) say(fmt::format("maximum {}", human_bytes(pool.maximum_bytes())));
        if (pool.has_threshold_bytes() && pool.threshold_bytes() != UINT64_MAX)
            say(fmt::format("keeps {} at a synchronisation", human_bytes(pool.threshold_bytes())));
        if (pool.has_threshold_bytes() && pool.threshold_bytes() == UINT64_MAX)
            say("keeps everything at a synchronisation");
        if (pool.imported()) say("imported from another process");
        if (pool.exported()) say("exported to other processes");
        if (pool.destroyed()) say("destroyed by the program, and kept by its live allocations");
        if (!note.empty()) row.notes.push_back(upper_first(std::move(note)) + ".");
        table.rows.push_back(std::move(row));
    }
    page.gap();
    page.paragraph("Stream-ordered pools:", 2);
    page.table(table);
}

void put_foreign(Page& page, const report::State& state) {
    if (state.foreign().empty()) return;
    page.gap();
    page.paragraph("Memory of others that it can reach; its bytes belong to its owner:", 2);
    for (int i = 0; i < std::min(state.foreign_size(), static_cast<int>(kShown)); ++i) {
        const report::ForeignAllocation& foreign = state.foreign(i);
        std::string line = fmt::format("{:#x}: ", foreign.address());
        line += foreign.kind() == "ipc"            ? "opened by cuIpcOpenMemHandle"
                : foreign.kind() == "pool pointer" ? "an imported pointer into a pool"
                : foreign.kind() == "external"     ? "a buffer of another interface"
                                                   : "a graphics resource";
        if (foreign.bytes() != 0) line += ", " + human_bytes(foreign.bytes());
        if (foreign.references() > 1) line += fmt::format(", opened {} times", foreign.references());
        if (foreign.has_exporter()) line += fmt::format(", exported by process {}", foreign.exporter());
        page.item("-", line + ".", 2);
    }
    put_rest(page, static_cast<std::size_t>(state.foreign_size()), "address", "addresses");
}

void put_exported(Page& page, const report::State& state) {
    std::vector<const report::LinearAllocation*> exported;
    for (const report::LinearAllocation& linear : state.linear()) {
        if (linear.exported()) exported.push_back(&linear);
    }
    if (exported.empty()) return;
    page.gap();
    page.paragraph("Linear allocations that were exported to other processes:", 2);
    for (std::size_t i = 0; i < std::min(exported.size(), kShown); ++i) {
        const std::string who = importers_in_words(exported[i]->importers());
        page.item("-",
                  fmt::format("{:#x}, {}: {}.", exported[i]->address(), human_bytes(exported[i]->bytes()),
                              who.empty() ? "no process of this trace opened it" : "opened by " + who),
                  2);
    }
    put_rest(page, exported.size(), "linear allocation");
}

}  // namespace

void put_books(Page& page, const report::State& state) {
    page.heading("What the driver gave to it");
    put_devices(page, state);
    put_largest(page, state);
    put_physical(page, state);
    put_pools(page, state);
    put_exported(page, state);
    put_foreign(page, state);
}

}  // namespace fragscope::tools
