// A program of the driver API for the tests of --cupti: program STEP…, each step one word, in order. What it
// finds wrong it says, and ends with 1. Compiled twice: linked to CUPTI (CUPTI_LINKED), as PyTorch's
// libraries are, and without.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr std::size_t kMiB = 1 << 20;

void need(bool held, const char* what) {
    if (held) return;
    std::printf("not so: %s\n", what);
    std::exit(1);
}

// A client of CUPTI's of its own: what it is told, it counts.
std::atomic<int> told{0};

void CUPTIAPI request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
    *bytes = 65536;
    *buffer = static_cast<std::uint8_t*>(std::malloc(*bytes));
    *most = 0;
}

CUptiResult (*next_record)(std::uint8_t*, std::size_t, CUpti_Activity**) = nullptr;

void CUPTIAPI complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    CUpti_Activity* record = nullptr;
    while (next_record(buffer, valid, &record) == CUPTI_SUCCESS) told.fetch_add(1);
    std::free(buffer);
}

struct Cupti {
    decltype(&::cuptiSubscribe) subscribe = nullptr;
    decltype(&::cuptiUnsubscribe) unsubscribe = nullptr;
    decltype(&::cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
    decltype(&::cuptiActivityEnable) enable = nullptr;
    decltype(&::cuptiActivityFlushAll) flush = nullptr;
};

template <typename Function>
void look_up(void* library, const char* name, Function& out) {
    out = reinterpret_cast<Function>(dlsym(library, name));
    need(out != nullptr, name);
}

Cupti cupti_functions() {
    Cupti out;
#ifdef CUPTI_LINKED
    out = {&::cuptiSubscribe, &::cuptiUnsubscribe, &::cuptiActivityRegisterCallbacks, &::cuptiActivityEnable,
           &::cuptiActivityFlushAll};
    next_record = &::cuptiActivityGetNextRecord;
#else
    void* const library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    need(library != nullptr, "libcupti.so.13");
    look_up(library, "cuptiSubscribe", out.subscribe);
    look_up(library, "cuptiUnsubscribe", out.unsubscribe);
    look_up(library, "cuptiActivityRegisterCallbacks", out.register_callbacks);
    look_up(library, "cuptiActivityEnable", out.enable);
    look_up(library, "cuptiActivityFlushAll", out.flush);
    look_up(library, "cuptiActivityGetNextRecord", next_record);
#endif
    return out;
}

CUdeviceptr take(std::size_t bytes) {
    CUdeviceptr address = 0;
    need(cuMemAlloc(&address, bytes) == CUDA_SUCCESS, "cuMemAlloc");
    return address;
}

CUpti_SubscriberHandle subscriber = nullptr;
void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

Cupti become_client() {
    const Cupti cupti = cupti_functions();
    need(cupti.subscribe(&subscriber, no_callback, nullptr) == CUPTI_SUCCESS, "cuptiSubscribe");
    need(cupti.register_callbacks(request, complete) == CUPTI_SUCCESS, "cuptiActivityRegisterCallbacks");
    return cupti;
}

// As a profiler does: its own three records come to it, and nobody else's.
void profile(const Cupti& cupti) {
    take(kMiB);  // nothing is enabled yet by this client
    need(cupti.enable(CUPTI_ACTIVITY_KIND_MEMORY2) == CUPTI_SUCCESS, "cuptiActivityEnable");
    for (int i = 0; i < 3; ++i) take(2 * kMiB);
    need(cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) == CUPTI_SUCCESS, "cuptiActivityFlushAll");
    need(told == 3, "three records");
    need(cupti.unsubscribe(subscriber) == CUPTI_SUCCESS, "cuptiUnsubscribe");
}

// A child of fork() asks for the driver and for CUPTI and ends; at the very end nobody has called CUPTI in
// it.
bool in_child = false;

int misuses() {
    void* const library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return -1;
    return static_cast<int>(
        reinterpret_cast<unsigned long long (*)()>(dlsym(library, "fragscope_sim_cupti_misuse"))());
}

void look_at_last() {
    if (in_child) _exit(misuses() == 0 ? 0 : 1);
}

void step(const char* word) {
    const auto is = [&](const char* other) { return std::strcmp(word, other) == 0; };
    if (is("init")) {
        need(cuInit(0) == CUDA_SUCCESS, "cuInit");
        CUcontext context = nullptr;
        need(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
        need(cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
    } else if (is("calls")) {
        // All kinds that calls and CUPTI both tell of.
        const CUdeviceptr linear = take(3 * kMiB);
        CUdeviceptr pitched = 0, managed = 0, ordered = 0;
        std::size_t pitch = 0;
        void* pinned = nullptr;
        need(cuMemAllocPitch(&pitched, &pitch, 1000, 10, 4) == CUDA_SUCCESS, "cuMemAllocPitch");
        need(cuMemAllocManaged(&managed, 4 * kMiB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS,
             "cuMemAllocManaged");
        need(cuMemHostAlloc(&pinned, 4096, 0) == CUDA_SUCCESS, "cuMemHostAlloc");
        need(cuMemAllocAsync(&ordered, 5 * kMiB, nullptr) == CUDA_SUCCESS, "cuMemAllocAsync");
        CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
        CUarray array = nullptr;
        need(cuArrayCreate(&array, &shape) == CUDA_SUCCESS, "cuArrayCreate");
        need(cuMemFree(linear) == CUDA_SUCCESS && cuMemFree(pitched) == CUDA_SUCCESS &&
                 cuMemFree(managed) == CUDA_SUCCESS && cuMemFreeHost(pinned) == CUDA_SUCCESS &&
                 cuMemFreeAsync(ordered, nullptr) == CUDA_SUCCESS && cuArrayDestroy(array) == CUDA_SUCCESS,
             "frees");
    } else if (is("handle")) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemGenericAllocationHandle handle = 0;
        need(cuMemCreate(&handle, 2 * kMiB, &properties, 0) == CUDA_SUCCESS, "cuMemCreate");
    } else if (is("past")) {
        // A library whose calls go past the recorder: its own scope comes first.
        void* const library = dlopen(std::getenv("PAST_LIBRARY"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        need(library != nullptr, "PAST_LIBRARY");
        auto keep = reinterpret_cast<CUdeviceptr (*)(std::size_t)>(dlsym(library, "past_keep"));
        auto pass = reinterpret_cast<int (*)(std::size_t)>(dlsym(library, "past_pass"));
        auto free_here = reinterpret_cast<int (*)(CUdeviceptr)>(dlsym(library, "past_free"));
        need(keep(7 * kMiB) != 0 && keep(6 * kMiB) != 0 && pass(10 * kMiB) == 0, "what goes past");
        need(free_here(take(12 * kMiB)) == 0, "a release that goes past");
    } else if (is("variables")) {
        CUmodule module = nullptr;
        need(cuModuleLoadData(&module,
                              "fragscope-sim-module\ncode 1MiB\nvariable table 3MiB\nvariable flag 4\n") ==
                 CUDA_SUCCESS,
             "cuModuleLoadData");
        CUdeviceptr table = 0;
        need(cuModuleGetGlobal(&table, nullptr, module, "table") == CUDA_SUCCESS, "cuModuleGetGlobal");
    } else if (is("managed")) {
        CUdeviceptr managed = 0;
        need(cuMemAllocManaged(&managed, 8 * kMiB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS,
             "cuMemAllocManaged");
        CUmemLocation device{}, host{};
        device.type = CU_MEM_LOCATION_TYPE_DEVICE;
        host.type = CU_MEM_LOCATION_TYPE_HOST;
        need(cuMemPrefetchAsync_v2(managed, 5 * kMiB, device, 0, nullptr) == CUDA_SUCCESS, "to the device");
        need(cuMemPrefetchAsync_v2(managed, 2 * kMiB, host, 0, nullptr) == CUDA_SUCCESS, "to the host");
    } else if (is("many")) {
        for (int i = 0; i < 5000; ++i) need(cuMemFree(take(4096)) == CUDA_SUCCESS, "cuMemFree");
    } else if (is("fork")) {
        const pid_t child = fork();
        if (child == 0) {
            in_child = true;
            cuInit(0);
            void* const library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
            if (library == nullptr || dlsym(library, "cuptiSubscribe") == nullptr) _exit(2);
            std::exit(0);  // the shim's handler, and then look_at_last()
        }
        int status = -1;
        need(waitpid(child, &status, 0) == child && status == 0, "the child");
    } else if (is("profile")) {
        profile(become_client());
    } else if (is("meet")) {
        // A client that comes while the driver is being initialised, and so the recorder is at it.
        Cupti cupti;
        std::thread client([&cupti] {
            while (dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD) == nullptr) std::this_thread::yield();
            cupti = become_client();
        });
        step("init");
        client.join();
        profile(cupti);
    } else if (is("subscribe")) {
        need(cupti_functions().subscribe(&subscriber, no_callback, nullptr) == CUPTI_SUCCESS,
             "cuptiSubscribe");
    } else if (is("unsubscribe")) {
        need(cupti_functions().unsubscribe(subscriber) == CUPTI_SUCCESS,
             "it is still this program that is subscribed");
    } else if (is("open")) {
        need(dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL) != nullptr, "libcupti.so.13");
    } else {
        need(false, word);
    }
}

}  // namespace

int main(int count, char** words) {
    std::atexit(look_at_last);
    for (int i = 1; i < count; ++i) step(words[i]);
    std::printf("done\n");
    return 0;
}
