#include "tools/words_leaks.h"

#include <fmt/format.h>

#include "tools/words_stack.h"
#include "tools/words_terms.h"

namespace fragscope::tools {
namespace {

using report::Hazard;
using report::LeakClass;
using Tone = Page::Tone;

constexpr std::size_t kFrames = 4;

const char* name_of(LeakClass::Kind kind) {
    switch (kind) {
        case LeakClass::handle_without_mapping:
            return "handle without a mapping";
        case LeakClass::mapping_without_access:
            return "mapping without access";
        case LeakClass::reservation_without_mapping:
            return "reservation without a mapping";
        case LeakClass::released_handle_still_mapped:
            return "released handle, still mapped";
        case LeakClass::import_outlives_exporter:
            return "import that outlives its exporter";
        case LeakClass::freed_pending_on_stream:
            return "freed, and pending on a stream";
        case LeakClass::never_freed:
            return "never given back";
        case LeakClass::died_with_context:
            return "ended with its context";
        default:
            return "of a class that is not known here";
    }
}

const char* name_of(Hazard::Kind kind) {
    switch (kind) {
        case Hazard::alias:
            return "Alias";
        case Hazard::reachable_after_release:
            return "Reachable after its release";
        case Hazard::reachable_after_owner:
            return "Reachable after its owner gave it up";
        case Hazard::recycled_unwritten:
            return "Passed on without a recorded write";
        case Hazard::exported_whole:
            return "Exported as a whole";
        default:
            return "Of a kind that is not known here";
    }
}

template <typename Message>
std::string where(const Message& message, bool several) {
    std::string out;
    if (several) out = fmt::format(" of process {}", message.process());
    if (!message.device().empty()) out += fmt::format(" on {}", message.device());
    return out;
}

std::string largest_in_words(const LeakClass& leak) {
    std::string out;
    for (const report::LeakedThing& thing : leak.largest()) {
        std::string one = human_bytes(thing.bytes());
        if (thing.address() != 0) one += fmt::format(" at {:#x}", thing.address());
        if (!thing.handles().empty())
            one += fmt::format(" ({} {:#x})", leak.what() == "array" ? "array" : "handle", thing.handles(0));
        if (thing.has_exporter()) one += fmt::format(" of process {}", thing.exporter());
        out += (out.empty() ? "" : ", ") + one;
    }
    return out;
}

void put_leak(Page& page, const LeakClass& leak, bool several) {
    page.item("-",
              fmt::format("{}{}: {} ({}), {}. {}", upper_first(name_of(leak.kind())), where(leak, several),
                          leak.what(), grouped(leak.count()), quantity_words(leak.bytes()), leak.shows()),
              2);
    if (const std::string largest = largest_in_words(leak); !largest.empty())
        page.paragraph(fmt::format("The largest: {}.", largest), 4);
    for (const std::string& why : leak.weakened_by()) page.paragraph(why, 4, Tone::kQuiet);
    if (leak.sites().empty()) return;
    const report::LeakSite& site = leak.sites(0);
    page.paragraph(fmt::format("Most of it, {} in {}, from:", quantity_words(site.bytes()),
                               counted(site.count(), "allocation")),
                   4);
    put_stack(page, site.stack(), 6, kFrames);
}

std::string example_in_words(const report::HazardExample& example) {
    std::string out = fmt::format("{} at {:#x}", human_bytes(example.bytes()), example.address());
    if (example.has_other_process())
        out += fmt::format(", of process {} at {:#x}", example.other_process(), example.other_address());
    else if (example.other_address() != 0)
        out += fmt::format(" and {:#x}", example.other_address());
    if (!example.before().empty()) out += ", before: " + example.before();
    if (!example.after().empty()) out += ", then: " + example.after();
    if (example.sequence() != 0) out += fmt::format(", event {}", grouped(example.sequence()));
    if (example.time_ns() != 0) out += fmt::format(", {} after the start", human_duration(example.time_ns()));
    return out;
}

}  // namespace

void put_leaks(Page& page, const LeakClasses& leaks, const std::string& heading, bool several,
               const std::string& unless) {
    page.heading(heading);
    if (leaks.empty()) {
        page.paragraph("Nothing of the kind is in the records." + unless, 2);
        return;
    }
    for (const LeakClass& leak : leaks) put_leak(page, leak, several);
}

void put_hazards(Page& page, const Hazards& hazards, bool several, const std::string& unless) {
    page.heading("Hazards (who may reach or see memory beyond its owner's time)");
    if (hazards.empty()) {
        page.paragraph("The records show none." + unless, 2);
        return;
    }
    for (const Hazard& hazard : hazards) {
        page.item(hazard.by_records() ? "-" : "?",
                  fmt::format("{}{}{}: {}, {}. {}", name_of(hazard.kind()),
                              hazard.by_records() ? "" : " (possible, not certain)", where(hazard, several),
                              counted(hazard.count(), "time"), quantity_words(hazard.bytes()), hazard.what()),
                  2);
        for (const std::string& shown : hazard.shown()) page.paragraph("Shown: " + shown, 4);
        for (const std::string& unknown : hazard.not_shown())
            page.paragraph("Not shown: " + unknown, 4, Tone::kQuiet);
        for (const report::HazardExample& example : hazard.examples())
            page.paragraph(fmt::format("E.g. {}.", example_in_words(example)), 4);
    }
}

}  // namespace fragscope::tools
