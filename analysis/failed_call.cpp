#include "analysis/failed_call.h"

#include <fmt/format.h>

#include "analysis/failures.h"
#include "analysis/quantity.h"
#include "analysis/read/result_name.h"
#include "analysis/session.h"

namespace fragscope::analysis {

std::string result_of(const Event& event) {
    return event.kind == wire::Kind::kBlockRefused && !event.failed()
               ? "given up by the framework's allocator"
               : result_name(event.result);
}

std::string function_name(const Trace& trace, const Event& event) {
    return event.function.value < trace.functions.size() ? trace.functions[event.function.value] : "";
}

std::uint64_t granularity_missed(const Trace& trace, ProcessIndex process, const Event& event) {
    if (event.kind != wire::Kind::kHandleCreated || event.result != kInvalidValue ||
        wire::location_type(event.extra) != kLocationDevice) {
        return 0;
    }
    const trace::Device* device = device_of(trace, process, wire::location_id(event.extra));
    if (device == nullptr || device->minimum_granularity_bytes() == 0) return 0;
    return event.bytes.value % device->minimum_granularity_bytes() == 0 ? 0
                                                                        : device->minimum_granularity_bytes();
}

report::Verdict not_about_memory(const Trace& trace, ProcessIndex process, const Event& event) {
    report::Verdict out;
    out.set_cause(report::Verdict::not_an_allocation);
    std::string summary = fmt::format("{} answered {}: that is not a shortage of memory.",
                                      function_name(trace, event), result_name(event.result));
    if (const std::uint64_t granularity = granularity_missed(trace, process, event); granularity != 0) {
        out.set_constraint("size_not_multiple_of_granularity");
        summary += fmt::format(
            " The size asked for, {} ({} B), is not a multiple of the device's granularity, {}: cuMemCreate "
            "takes "
            "whole multiples of it only.",
            in_words(event.bytes.value), event.bytes.value, in_words(granularity));
    }
    out.set_summary(summary);
    return out;
}

}  // namespace fragscope::analysis
