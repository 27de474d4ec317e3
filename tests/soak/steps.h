// One thread's random use of the driver: every step makes a few calls of one kind of memory. Wrong calls are
// among them; a step that fails leaves things as they were.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <random>
#include <vector>

namespace fragscope::soak {

// What the threads of a worker have in common: the primary contexts, and memory that one thread got and
// another is to give back.
struct Shared {
    bool start();
    void stop();

    CUcontext contexts[2] = {};
    std::mutex lock;
    std::vector<CUdeviceptr> handed_over;
};

class Steps {
  public:
    // `first`: the worker's first thread, which makes no contexts (soak_check.cpp tells images of one process
    // by that).
    Steps(Shared& shared, unsigned seed, bool first);
    Steps(const Steps&) = delete;
    Steps& operator=(const Steps&) = delete;

    void step();
    void finish();  // gives most of it back

  private:
    void linear();
    void pitch();
    void managed();
    void host();
    void registered();
    void reservation();
    void grow();
    void cut();
    void pool_memory();
    void pool_life();
    void context_life();
    void capture();
    void built_graph();
    void launch(CUgraph graph);
    void array();
    void too_much();
    void nonsense();
    void child();

    // VMM: a reservation whose pages are mapped one by one from below.
    struct Space {
        CUdeviceptr base = 0;
        std::size_t pages = 0, mapped = 0;
        std::vector<CUmemGenericAllocationHandle> handles;  // of the mapped pages
    };
    void drop(Space& space);

    unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
    std::size_t some_bytes(unsigned most_bits);
    // Takes one out of the list at random; `none` if it is empty.
    template <typename T>
    T take(std::vector<T>& list, T none) {
        if (list.empty()) return none;
        const std::size_t at = random_() % list.size();
        const T taken = list[at];
        list[at] = list.back();
        list.pop_back();
        return taken;
    }

    Shared& shared_;
    std::mt19937 random_;
    const bool first_;
    int device_ = 0;
    CUstream stream_ = nullptr;
    std::vector<CUdeviceptr> linear_, managed_, asynchronous_;
    std::vector<void*> host_;
    std::vector<CUarray> arrays_;
    std::vector<CUmemoryPool> pools_;
    std::vector<Space> spaces_;
    std::vector<unsigned char> room_;  // for cuMemHostRegister
};

}  // namespace fragscope::soak
