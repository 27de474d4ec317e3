// What the rest of the run says of requests like this one.
#include "analysis/mechanism_ways.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

void look_at_the_run(Situation& s) {
    if (s.trace == nullptr || s.request.device == kNoDevice) return;
    using wire::Kind;
    // Where an allocator gave up by itself, or needs several handles, requests like it are its blocks.
    const bool blocks = s.request.kind == Kind::kBlockRefused || one_of_many_handles(s);
    const Kind kind = blocks ? Kind::kBlockAcquired : s.request.kind;
    s.facts = mechanism_facts_of(*s.trace, s.failure.process, s.request.device,
                                 {kind, wanted_bytes(s), s.event ? s.event->stack : 0});
}

}  // namespace fragscope::analysis
