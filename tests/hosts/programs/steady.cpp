// steady TIMES [SIGNAL]: allocates and frees. With a signal it first sends that to its parent (SIGSTOP: a recorder that does
// not come to its work) and afterwards SIGCONT, so that the program itself decides when.
#include "host.h"

int main(int count, char** words) {
    const int times = count > 1 ? std::atoi(words[1]) : 1;
    const int number = count > 2 ? std::atoi(words[2]) : 0;
    CUcontext context = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    const pid_t parent = getppid();
    if (number != 0) kill(parent, number);
    int bad = 0;
    for (int i = 0; i < times; ++i) {
        CUdeviceptr address = 0;
        if (cuMemAlloc_v2(&address, 1000) != CUDA_SUCCESS || cuMemFree_v2(address) != CUDA_SUCCESS) ++bad;
    }
    if (number == SIGSTOP) kill(parent, SIGCONT);
    std::printf("bad %d\n", bad);
    // A child after all that, by then perhaps without a recorder.
    std::fflush(stdout);
    std::printf("child %x\n", static_cast<unsigned>(std::system("exit 3")));
    return bad != 0;
}
