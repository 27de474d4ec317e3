#include "tools/write_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "collector/trace_writer.h"

namespace fragscope::tools {

namespace {

collector::EventRow row_of(const analysis::Event& event) {
    collector::EventRow row;
    row.sequence = event.sequence.value;
    row.start_ns = event.start.value;
    row.duration_ns = event.duration_ns;
    row.address = event.address.value;
    row.bytes = event.bytes.value;
    row.object = event.object.value;
    row.extra = event.extra;
    row.thread = event.thread;
    row.stack = event.stack;
    row.function = static_cast<std::uint16_t>(event.function.value);
    row.result = event.result;
    row.flags = event.flags;
    row.kind = event.kind;
    row.device = event.device < 0 ? wire::kDeviceUnknown : static_cast<std::uint8_t>(event.device);
    return row;
}

void write_names(std::uint32_t process, const analysis::ProcessNames& names, collector::TraceWriter& writer) {
    for (const auto& [id, text] : names.texts) {
        trace::Names message;
        message.add_texts()->set_id(id);
        message.mutable_texts(0)->set_text(text);
        writer.names(process, message);
    }
    for (const auto& [id, module] : names.modules) {
        trace::Names message;
        *message.add_modules() = module;
        writer.names(process, message);
    }
    for (const auto& [id, stack] : names.stacks) {
        trace::Names message;
        *message.add_stacks() = stack;
        writer.names(process, message);
    }
}

}  // namespace

std::string write_trace(const analysis::Trace& trace, collector::Sink& sink) {
    if (trace.functions.size() > std::numeric_limits<std::uint16_t>::max())
        return fmt::format("{} functions have names, expected at most {}", trace.functions.size(),
                           std::numeric_limits<std::uint16_t>::max());
    collector::TraceWriter writer(sink);
    if (!writer.begin(trace.session)) return sink.problem();
    for (std::uint32_t process = 0; process < trace.processes.size() && !writer.stopped(); ++process) {
        writer.process(trace.processes[process]);
        for (std::size_t function = 0; function < trace.functions.size(); ++function)
            writer.name_function(process, static_cast<std::uint16_t>(function), trace.functions[function]);
        write_names(process, trace.names[process], writer);
        for (const analysis::Event& event : trace.events[process]) {
            writer.event(process, row_of(event));
            if (writer.backlogged()) writer.settle();
            if (writer.stopped()) break;
        }
        writer.flush(process);
        writer.loss(trace.losses[process]);
        writer.forget(process);
    }
    for (const trace::Readings& readings : trace.readings) {
        if (writer.stopped()) break;
        writer.readings(readings);
    }
    writer.end(trace.end);
    return writer.stopped() ? sink.problem() : "";
}

}  // namespace fragscope::tools
