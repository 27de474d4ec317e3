#include "tools/words_stack.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words_terms.h"

namespace fragscope::tools {

using Tone = Page::Tone;

void put_stack(Page& page, const report::CallStack& stack, int indent, std::size_t most) {
    std::size_t number = 0;
    if (!stack.origin().empty()) page.item("by", stack.origin() + " (runtime function)", indent);
    const auto frames = static_cast<std::size_t>(stack.frames_size());
    // Where there is no room for all, the innermost frame and then the lines of Python tell most: between them lies the
    // interpreter's way to the call.
    std::size_t first = 0;
    for (std::size_t i = 0; i < frames && most < frames; ++i) {
        if (stack.frames(static_cast<int>(i)).find("[Python]") == std::string::npos) continue;
        first = i;
        break;
    }
    if (first + 2 > most) {
        page.item("#0", stack.frames(0), indent);
        page.paragraph(fmt::format("({} left out here)", counted(first - 1, "frame")), indent, Tone::kQuiet);
        number = first;
        most = most - 2;
    } else {
        first = 0;
    }
    const std::size_t shown = std::min(frames, first + most);
    for (std::size_t i = first; i < shown; ++i)
        page.item(fmt::format("#{}", number++), stack.frames(static_cast<int>(i)), indent);
    std::string rest;
    if (shown < frames) rest = fmt::format("and {} further out", counted(frames - shown, "frame"));
    if (stack.cut()) rest += (rest.empty() ? "" : "; ") + std::string("there were more than were recorded");
    if (stack.lost()) {
        rest += (rest.empty() ? "" : "; ") +
                std::string("then code whose caller could not be found: what lies further out is not known");
    }
    if (stack.no_lines()) {
        rest += (rest.empty() ? "" : "; ") +
                std::string("Python was running, and its lines could not be read");
    }
    if (!rest.empty()) page.paragraph(upper_first(rest) + ".", indent, Tone::kQuiet);
}

void put_live_at_peaks(Page& page, const report::Report& report) {
    constexpr std::size_t kFrames = 6;
    for (const report::LiveAtPeak& live : report.live_at_peaks()) {
        page.heading(fmt::format("Who held most when process {} held most", live.process()));
        if (report.devices_size() > 1) page.paragraph("Device " + live.device() + ".", 2);
        page.paragraph(fmt::format("Live {} after the start, as requested: {}.",
                                   human_duration(live.time_ns()), quantity_words(live.all())),
                       2);
        int place = 0;
        for (const report::CallSite& site : live.sites()) {
            page.item(fmt::format("{}.", ++place),
                      fmt::format("{} in {}, from:", quantity_words(site.bytes()),
                                  counted(site.count(), "allocation")),
                      2, Tone::kStrong);
            put_stack(page, site.stack(), 5, kFrames);
        }
        if (live.other_sites() != 0) {
            page.paragraph(fmt::format("In {}: {}.", counted(live.other_sites(), "further place"),
                                       quantity_words(live.in_other_sites())),
                           2);
        }
        if (is_known(live.without_stack()) && live.without_stack().high_bytes() != 0) {
            page.paragraph(
                fmt::format("Without a recorded call stack: {}{}.", quantity_words(live.without_stack()),
                            live.without_stack_reason().empty() ? "" : "; " + live.without_stack_reason()),
                2);
        }
    }
}

void put_held(Page& page, const report::Report& report) {
    constexpr std::size_t kFrames = 6;
    if (report.held().empty()) return;
    page.heading("What was alive when the profile was taken");
    for (const report::HeldAtMoment& held : report.held()) {
        const std::string where = held.device().empty() ? "" : " on " + held.device();
        page.item("-",
                  fmt::format("{} of kind {}{}: {}", counted(held.count(), "allocation"), held.what(), where,
                              quantity_words(held.bytes())),
                  2, Tone::kStrong);
        if (held.sizes_not_told() != 0)
            page.paragraph(
                fmt::format("The profile does not tell the sizes of {} of them.", held.sizes_not_told()), 4);
        int place = 0;
        for (const report::CallSite& site : held.sites()) {
            page.item(
                fmt::format("{}.", ++place),
                fmt::format("{} in {}{}", quantity_words(site.bytes()), counted(site.count(), "allocation"),
                            site.has_stack() ? ", from:" : ", from where it does not say"),
                4);
            if (site.has_stack()) put_stack(page, site.stack(), 7, kFrames);
        }
        if (held.other_sites() != 0) {
            page.paragraph(fmt::format("In {}: {}.", counted(held.other_sites(), "further place"),
                                       quantity_words(held.in_other_sites())),
                           4);
        }
    }
}

}  // namespace fragscope::tools
