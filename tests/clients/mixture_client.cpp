// One process of a mixture: uses the first device at random by one mechanism, until it is told to stop.
//
// Usage: mixture_client vmm|pools|arrays SEED
// Says "ready" when it has its context, works from one line on its standard input to the next, sets the mark
// "mixture:end", says "done" and lives until its standard input ends (programs/mixture.py). Holds at most a
// gigabyte. Single-threaded. Failures for want of memory are part of the work.
#include <cuda.h>
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kMostBytes = 1024 * kMiB;

class Worker {
  public:
    explicit Worker(unsigned seed) : random_(seed) {}

    void vmm();
    void pools();
    void arrays();

  private:
    std::size_t below(std::size_t limit) { return random_() % limit; }
    struct Piece {
        CUdeviceptr at = 0;
        std::size_t bytes = 0;
        CUmemGenericAllocationHandle handle = 0;
    };
    struct Space {
        CUdeviceptr base = 0;
        std::size_t bytes = 0, used = 0;
        std::vector<Piece> pieces;
    };
    void grow(Space& space);
    void drop(Space& space);

    std::mt19937 random_;
    std::size_t committed_ = 0;  // of spaces_
    std::vector<Space> spaces_;
    std::vector<CUmemoryPool> pools_;
    std::vector<CUdeviceptr> blocks_;
    std::vector<CUarray> arrays_;
};

void Worker::grow(Space& space) {
    Piece piece;
    piece.bytes = (1 + below(20)) * 2 * kMiB;
    piece.at = space.base + space.used;
    if (space.used + piece.bytes > space.bytes || committed_ + piece.bytes > kMostBytes) return;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    if (cuMemCreate(&piece.handle, piece.bytes, &prop, 0) != CUDA_SUCCESS) return;
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (cuMemMap(piece.at, piece.bytes, 0, piece.handle, 0) != CUDA_SUCCESS) {
        cuMemRelease(piece.handle);
        return;
    }
    cuMemSetAccess(piece.at, piece.bytes, &access, 1);
    space.used += piece.bytes;
    committed_ += piece.bytes;
    if (below(2) == 0) {  // the mapping alone keeps it
        cuMemRelease(piece.handle);
        piece.handle = 0;
    }
    space.pieces.push_back(piece);
}

void Worker::drop(Space& space) {
    for (const Piece& piece : space.pieces) {
        cuMemUnmap(piece.at, piece.bytes);
        if (piece.handle != 0) cuMemRelease(piece.handle);
        committed_ -= piece.bytes;
    }
    cuMemAddressFree(space.base, space.bytes);
}

void Worker::vmm() {
    const std::size_t what = below(10);
    if (spaces_.empty() || (what == 0 && spaces_.size() < 6)) {
        Space space;
        space.bytes = (8 + below(120)) * 2 * kMiB;
        if (cuMemAddressReserve(&space.base, space.bytes, 0, 0, 0) == CUDA_SUCCESS) spaces_.push_back(space);
    } else if (what == 1) {
        const std::size_t at = below(spaces_.size());
        drop(spaces_[at]);
        spaces_.erase(spaces_.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (what < 4) {
        Space& space = spaces_[below(spaces_.size())];
        if (space.pieces.empty()) return;
        const Piece last = space.pieces.back();
        space.pieces.pop_back();
        cuMemUnmap(last.at, last.bytes);
        if (last.handle != 0) cuMemRelease(last.handle);
        space.used -= last.bytes;
        committed_ -= last.bytes;
    } else {
        grow(spaces_[below(spaces_.size())]);
    }
}

void Worker::pools() {
    if (pools_.size() < 2) {
        CUmemPoolProps props{};
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
        CUmemoryPool pool = nullptr;
        if (cuMemPoolCreate(&pool, &props) != CUDA_SUCCESS) return;
        cuuint64_t threshold = below(2) * 256 * kMiB;
        cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
        pools_.push_back(pool);
    }
    const std::size_t what = below(20);
    if (what < 10 && blocks_.size() < 80) {
        CUdeviceptr made = 0;
        const std::size_t bytes = below(3) == 0 ? 1 + below(24 * kMiB) : 1 + below(kMiB);
        if (cuMemAllocFromPoolAsync(&made, bytes, pools_[below(pools_.size())], nullptr) == CUDA_SUCCESS)
            blocks_.push_back(made);
    } else if (what < 17) {
        if (blocks_.empty()) return;
        std::swap(blocks_[below(blocks_.size())], blocks_.back());
        cuMemFreeAsync(blocks_.back(), nullptr);
        blocks_.pop_back();
    } else if (what < 19) {
        cuStreamSynchronize(nullptr);
    } else {
        cuMemPoolTrimTo(pools_[below(pools_.size())], 0);
    }
}

void Worker::arrays() {
    if (below(2) == 0 && arrays_.size() < 25) {
        CUDA_ARRAY_DESCRIPTOR of{};
        of.Width = 1 + below(3000);
        of.Height = 1 + below(3000);
        of.Format = CU_AD_FORMAT_UNSIGNED_INT8;
        of.NumChannels = 4;
        CUarray made = nullptr;
        if (cuArrayCreate(&made, &of) == CUDA_SUCCESS) arrays_.push_back(made);
    } else if (!arrays_.empty()) {
        std::swap(arrays_[below(arrays_.size())], arrays_.back());
        cuArrayDestroy(arrays_.back());
        arrays_.pop_back();
    }
}

void mark(const char* text) {
    void* found = dlsym(RTLD_DEFAULT, "fragscope_shim_mark");
    void (*set)(const char*) = nullptr;
    static_assert(sizeof set == sizeof found);
    std::memcpy(&set, &found, sizeof set);
    if (set != nullptr) set(text);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return EXIT_FAILURE;
    const std::string how = argv[1];
    void (Worker::*step)() = how == "vmm"      ? &Worker::vmm
                             : how == "pools"  ? &Worker::pools
                             : how == "arrays" ? &Worker::arrays
                                               : nullptr;
    CUcontext context = nullptr;
    if (step == nullptr || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return EXIT_FAILURE;
    Worker worker(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
    char rest[64];
    std::puts("ready");
    std::fflush(stdout);
    if (read(STDIN_FILENO, rest, sizeof rest) <= 0) return EXIT_FAILURE;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    // The pause paces it: a few thousand calls a second beside the others' work.
    while (poll(&input, 1, 1) == 0) {
        for (int i = 0; i < 3; ++i) (worker.*step)();
    }
    mark("mixture:end");
    std::puts("done");
    std::fflush(stdout);
    while (read(STDIN_FILENO, rest, sizeof rest) > 0) {
    }
    return EXIT_SUCCESS;
}
