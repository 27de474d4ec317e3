// From what the driver tells (../sim_activity.h) to records in the client's buffers: a queue that records enter inside the
// program's calls, and a worker that moves them into buffers later, when they are complete and enough of them wait.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace fragscope::sim_cupti {

// The one pair of the process; a second client replaces the first.
void set_client(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
bool has_client();
void set_timestamp(CUpti_TimestampCallbackFunc timestamp);
std::uint64_t timestamp_now();

// Starts to listen to the driver with the first kind that is enabled, and stops with the last.
void enable(CUpti_ActivityKind kind, bool on);
void set_allocation_source(bool on);
void set_pinned(bool on);  // the buffers that the real library keeps in device memory are in host memory
bool pinned();
void set_period(std::uint32_t milliseconds);

// Moves what waits into buffers and hands these over. Not `forced`: only records that are complete.
void flush(bool forced);
std::size_t take_dropped();

// Size of a record of this kind, 0: none that is ever written here.
std::size_t record_bytes(CUpti_ActivityKind kind);

// The calling thread is inside one of the client's callbacks.
bool in_callback();
void note_misuse();

}  // namespace fragscope::sim_cupti
