// Work that a second thread does meanwhile, where there is a processor for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

namespace fragscope::analysis {

// How many threads can work at a time; 1 where that is not known.
inline std::size_t processors() {
    static const std::size_t count = std::max(std::thread::hardware_concurrency(), 1U);
    return count;
}

// Done when the future is asked for its result, which also throws what the work threw; begun at once where a
// thread can be had, else then. The future waits for the work when it is destroyed.
template <typename Work>
std::future<void> beside(Work work) {
    if (processors() > 1) {
        try {
            return std::async(std::launch::async, work);
        } catch (const std::system_error&) {  // no more threads
        }
    }
    return std::async(std::launch::deferred, std::move(work));
}

}  // namespace fragscope::analysis
