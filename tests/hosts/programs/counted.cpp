// How often memory is taken from malloc while the driver is called: by the driver and the program, that is, and by nobody else.
// No call fails here: after a failure the recorder asks the driver, which may use malloc as it likes.
#include "host.h"

int main() {
    auto calls = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "counted_calls"));
    CUcontext context = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    for (int turn = 0; turn < 3; ++turn) {
        const unsigned long before = calls != nullptr ? calls() : 0;
        for (int i = 0; i < 100; ++i) {
            CUdeviceptr address = 0;
            cuMemAlloc_v2(&address, 3u << 20);
            cuMemFree_v2(address);
        }
        // In the first turn the driver makes room for itself, and whoever asked it before has had that done.
        if (turn != 0) std::printf("turn %d: %lu\n", turn, (calls != nullptr ? calls() : 0) - before);
    }
    return 0;
}
