// Streams and events. Work "runs" when the program synchronises with it, and not before: a stream counts what
// was issued, and completes it at a synchronisation or query. Memory freed in stream order becomes free then.
#pragma once

#include <memory>

#include "driver.h"

namespace fragscope::sim {

struct Capture;

struct Stream {
    std::uint64_t id = 0;
    Context* context = nullptr;
    unsigned flags = 0;
    int priority = 0;
    std::uint64_t issued = 0;
    std::uint64_t completed = 0;
    // How far the work of another stream (by id) lies before this stream's next work, by waits on events.
    std::map<std::uint64_t, std::uint64_t> after;
    std::shared_ptr<Capture> capture;  // null: not capturing
};

// The stream behind a handle, the default streams of `context` included; null when there is none.
Stream* find_stream_locked(CUstream handle, Context& context);
// The work of `stream` up to number `upto` is done: frees take effect, pools give back what is over their threshold.
void complete_locked(Stream& stream, std::uint64_t upto);
// All streams of a context.
void complete_context_locked(Context& context);
// No stream is part of `capture` any more.
void leave_capture_locked(const Capture& capture);
// The context ends: its streams and events do too.
void destroy_streams_locked(Context& context);

}  // namespace fragscope::sim
