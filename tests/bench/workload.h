// Made-up recordings for the benchmarks: valid (no two live blocks overlap, every release has its
// acquisition), with times, durations, threads and call sites as irregular as real ones. The same seed gives
// the same rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/trace_writer.h"
#include "proto/trace.pb.h"

namespace fragscope::bench {

using Rows = std::vector<collector::EventRow>;

inline constexpr std::uint64_t kDeviceBytes = std::uint64_t{80} << 30;

// Blocks of random sizes (512 B to 64 MiB, small ones far more often), acquired and released in random order;
// about 4,000 live at a time.
Rows random_pool(std::size_t events, std::uint64_t seed);
// The same 600 sizes again and again, released in another order than acquired: what training does.
Rows repeating_iterations(std::size_t events, std::uint64_t seed);
// 2 MiB handles created, mapped into one large reservation at random places, unmapped and released.
Rows virtual_pages(std::size_t events, std::uint64_t seed);
// Ends the recording with a request that is larger than the device, and what the driver said after it.
void add_failure(Rows& rows);

// Writes a whole trace of one process and one device.
void write_trace(const Rows& rows, collector::Sink& sink);

}  // namespace fragscope::bench
