// For which stream PyTorch's allocator takes a block. It asks c10::cuda::CUDAStream::stream() for the
// driver's handle of the stream and hands that on to the function that reports the block. The shim stands in
// front of stream(), passes the call on, and, where the caller is of the library that the function itself is
// of, keeps what it returned.
//
// Kept is where on the stack the caller stood. At the report that frame is under way still if the word below
// it is a return address in the same function: that of the call that led to the report. Any other word, and a
// frame that is left, says that the block was asked for in another way (raw_alloc_with_stream), for a stream
// that is not told. This rests on that no function between them asks, for ends of its own, in a frame that lasts
// to the report (so in PyTorch 2.9 and 2.14).
#pragma once

#include <cstdint>

namespace fragscope::interpose {

// Before the record of a block that was taken on `device`: sends a kBlockStream if it says something new.
void tell_stream(std::uint8_t device);

const void* stream_wrapper();

}  // namespace fragscope::interpose
