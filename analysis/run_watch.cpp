#include "analysis/run_watch.h"

#include <algorithm>

#include "analysis/request.h"

namespace fragscope::analysis {

RunWatch::RunWatch(const Trace& trace, ProcessIndex process, int device,
                   const std::vector<RequestMade>& likely)
    : trace_(&trace), process_(process), device_(device), sized_(trace, device), tellers_(trace) {
    for (const RequestMade& request : likely) {
        if (!follows(device, request)) reuse_.emplace_back(device, request);
    }
}

bool RunWatch::follows(int device, const RequestMade& request) const {
    return device == device_ && std::any_of(reuse_.begin(), reuse_.end(), [&](const RecurrenceWatch& each) {
               return each.follows(request);
           });
}

void RunWatch::add(std::span<const Event> events) {
    read_ += events.size();
    for (const Event& event : events) {
        call_times_.add(event);
        sized_.add(event);
        tellers_.add(event);
        for (RecurrenceWatch& each : reuse_) each.add(event);
        if (event.failed() || event.has(wire::kByShim)) continue;
        if (event.kind == wire::Kind::kIpcExported) ++ipc_exports_;
        if (event.kind == wire::Kind::kHandleCreated && device_of_call(event) == device_)
            creates_handles_ = true;
        if (event.kind == wire::Kind::kPoolAcquired && event.device == device_) uses_pools_ = true;
    }
}

void RunWatch::finish() {
    if (process_.value >= trace_->events.size()) return;
    const EventLog& log = trace_->events[process_.value];
    while (read_ < log.size()) {
        const EventLog::Run run = log.run(read_, log.size());
        add(run.events);
    }
}

TimesByKind RunWatch::call_times() const { return call_times_.times(trace_->functions); }

MechanismFacts RunWatch::facts(const RequestMade& request) const {
    MechanismFacts out;
    out.times = sized_.times();
    for (const RecurrenceWatch& each : reuse_) {
        if (each.follows(request)) out.reuse = each.seen();
    }
    out.clients = clients_of(*trace_, process_, tellers_);
    out.ipc_exports = ipc_exports_;
    out.creates_handles = creates_handles_;
    out.uses_pools = uses_pools_;
    add_capabilities(out, *trace_, process_, device_);
    return out;
}

}  // namespace fragscope::analysis
