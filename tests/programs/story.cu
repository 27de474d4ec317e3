// A small inference server's bad day. It loads its model, warms up, serves requests, and at the first long
// conversation the buffer for its key-value cache fails with "out of memory" - while the server, by its own
// books, uses little more than its weights. Somebody had followed the usual advice and told the memory pool
// to keep freed memory, because that made requests faster. Needs the runtime only: nothing in it knows that
// anybody watches.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Plays an inference server: weights of 25 % of the device, request buffers from the stream-ordered pool "
    "that\n"
    "grow to 28 %, then a key-value cache of 40 % by plain cudaMalloc, which fails. Exit code 1, as real "
    "servers do.\n";

struct Server {
    void* weights = nullptr;
    std::size_t weight_bytes = 0;
    cudaStream_t stream = nullptr;
    std::size_t in_use = 0;  // by the server's own books
};

int fail(const char* what, cudaError_t error) { return demo::no_scene(what, error); }

cudaError_t load_model(Server* server, const demo::DeviceMemory& device) {
    server->weight_bytes = demo::share(device.total, 25, 2 * demo::kMiB);
    if (const cudaError_t error = cudaMalloc(&server->weights, server->weight_bytes)) return error;
    const std::vector<unsigned char> shard(4 * demo::kMiB, 0x3c);
    for (std::size_t done = 0; done < 16 * demo::kMiB && done + shard.size() <= server->weight_bytes;
         done += shard.size()) {
        auto* target = static_cast<unsigned char*>(server->weights) + done;
        const cudaError_t error = cudaMemcpy(target, shard.data(), shard.size(), cudaMemcpyHostToDevice);
        if (error != cudaSuccess) return error;
    }
    server->in_use += server->weight_bytes;
    return cudaStreamCreate(&server->stream);
}

// "Keep freed memory in the pool, it makes allocation fast": what many guides say.
cudaError_t tune_pool() {
    cudaMemPool_t pool = nullptr;
    if (const cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, 0)) return error;
    std::uint64_t keep_everything = UINT64_MAX;
    return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_everything);
}

// A batch needs an input, an activation and an output buffer, and returns them all when it is answered.
cudaError_t serve(Server* server, std::size_t batch_bytes) {
    void* buffers[3] = {};
    const std::size_t sizes[3] = {batch_bytes / 8, batch_bytes / 2,
                                  batch_bytes - batch_bytes / 8 - batch_bytes / 2};
    for (int i = 0; i < 3; ++i)
        if (const cudaError_t error = cudaMallocAsync(&buffers[i], sizes[i], server->stream)) return error;
    if (const cudaError_t error = cudaMemsetAsync(buffers[0], 0, demo::kMiB, server->stream)) return error;
    for (void* buffer : buffers)
        if (const cudaError_t error = cudaFreeAsync(buffer, server->stream)) return error;
    return cudaStreamSynchronize(server->stream);
}

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    demo::DeviceMemory device;
    if (const cudaError_t error = demo::look(&device)) return fail("cudaMemGetInfo", error);
    Server server;

    demo::say("[server] GPU 0: %.2f GiB free of %.2f GiB", demo::gib(device.free), demo::gib(device.total));
    if (const cudaError_t error = load_model(&server, device)) return fail("loading the model", error);
    demo::say("[server] weights loaded: %.2f GiB", demo::gib(server.weight_bytes));
    if (const cudaError_t error = tune_pool()) return fail("tuning the pool", error);
    demo::say("[server] memory pool tuned: keep freed memory (release threshold = max)");

    const unsigned warm_up[] = {2, 5, 10};
    for (const unsigned percent : warm_up) {
        const std::size_t bytes = demo::share(device.total, percent, 2 * demo::kMiB);
        if (const cudaError_t error = serve(&server, bytes)) return fail("warming up", error);
    }
    demo::say("[server] warmed up, ready");
    const unsigned batches[] = {8, 12, 20, 16, 28, 24, 6};
    for (const unsigned percent : batches) {
        const std::size_t bytes = demo::share(device.total, percent, 2 * demo::kMiB);
        if (const cudaError_t error = serve(&server, bytes)) return fail("serving a batch", error);
        demo::say("[server] batch answered, %.2f GiB of buffers used and returned", demo::gib(bytes));
    }

    const std::size_t cache_bytes = demo::share(device.total, 40, 2 * demo::kMiB);
    demo::say("[server] first long conversation: needs a key-value cache of %.2f GiB",
              demo::gib(cache_bytes));
    demo::say("[server] by my books %.2f GiB are in use, so %.2f GiB should be free",
              demo::gib(server.in_use), demo::gib(device.free - server.in_use));
    void* cache = nullptr;
    const cudaError_t error = cudaMalloc(&cache, cache_bytes);
    if (error == cudaSuccess)
        return demo::no_scene("key-value cache", "it fitted: the pool gave its memory back");
    if (error != cudaErrorMemoryAllocation) return fail("cudaMalloc", error);
    if (const cudaError_t looked = demo::look(&device)) return fail("cudaMemGetInfo", looked);
    demo::say("[server] ERROR: cudaMalloc: %s (cudaMemGetInfo: %.2f GiB free of %.2f GiB)",
              cudaGetErrorString(error), demo::gib(device.free), demo::gib(device.total));
    return demo::kOutOfMemory;
}
