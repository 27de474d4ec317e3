// Stream capture, as far as memory is concerned: allocations made in a capture become nodes of a graph (graphs.h).
#pragma once

#include <memory>

#include "driver.h"
#include "graphs.h"
#include "streams.h"

namespace fragscope::sim {

bool capture_active(const Capture& capture);

// A call that a capture forbids: CUDA_SUCCESS when none is under way that concerns this thread, otherwise counts
// and logs it, invalidates the captures, and answers CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
CUresult check_unsafe(Function function);
// Counts and logs a call of which no document says whether a capture allows it, made where an unsafe one would be
// refused. It is not refused.
void note_doubtful(Function function);

CUresult capture_allocate_locked(Stream& stream, std::uint64_t bytes, CUdeviceptr* dptr);
// A launch, copy, memset or host function: a node of that type.
CUresult capture_work_locked(Stream& stream, CUgraphNodeType type);
// Work that a capture cannot hold.
CUresult capture_unsupported_locked(Stream& stream);
CUresult graph_free_async_locked(Stream& stream, Region& region, std::uint64_t address);

}  // namespace fragscope::sim
