// A program under test: it allocates from many places and says on stdout what glibc's backtrace() saw at each
// allocation, from inside of the driver: "at BYTES ADDRESS…", innermost first.
//   host shapes LIBRARY…   every shape of each library, in turn; each allocation has a size of its own
//   host threads LIBRARY   the same from four threads at once
//   host again FIRST SECOND   loads FIRST, runs its shapes, unloads it, and so with SECOND: "loaded ADDRESS"
//   each host generated         code that was made at run time, without unwind tables host forked LIBRARY
//   before and after a fork, in both processes
#include <cuda.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../preload/fake_driver.h"
#include "shapes.h"

namespace {

std::atomic<std::size_t> next_bytes{1};
std::mutex output;

void print(const char* what, std::size_t bytes, void* const* frames, int count) {
    std::string line = std::string(what) + " " + std::to_string(bytes);
    char text[32];
    for (int i = 0; i < count; ++i) {
        std::snprintf(text, sizeof text, " %zx", reinterpret_cast<std::size_t>(frames[i]));
        line += text;
    }
    const std::lock_guard<std::mutex> lock(output);
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

}  // namespace

extern "C" void host_at_allocation(std::size_t bytes) {
    static thread_local void* frames[4096];
    print("at", bytes, frames, backtrace(frames, 4096));
}

namespace {

void allocate() {
    CUdeviceptr address = 0;
    cuMemAlloc_v2(&address, next_bytes.fetch_add(1));
}

void* open_library(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::printf("dlopen: %s\n", dlerror());
        std::exit(1);
    }
    return library;
}

void run_shapes(void* library) {
    const auto shapes = reinterpret_cast<const Shape* (*)()>(dlsym(library, "all_shapes"));
    for (const Shape* shape = shapes(); shape->name != nullptr; ++shape) {
        {
            const std::lock_guard<std::mutex> lock(output);
            std::printf("shape %s\n", shape->name);
        }
        shape->run(allocate);
    }
}

// Where the caller of generated code stands, seen by backtrace() from the same function.
[[gnu::noinline]] void call_generated(void (*code)(Leaf)) {
    void* frames[64];
    const int count = backtrace(frames, 64);
    print("around", next_bytes.load(), frames, count);
    code(allocate);
    next_bytes.fetch_add(0);
}

void generated() {
    // push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret
    const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    std::printf("page %zx\n", reinterpret_cast<std::size_t>(page));
    call_generated(reinterpret_cast<void (*)(Leaf)>(page));
    // A frame pointer that leads nowhere: mov $N,%rbp with the old one kept on the stack.
    const unsigned char odd[] = {0x55, 0x48, 0xc7, 0xc5, 0x10, 0x00, 0x00, 0x00, 0xff, 0xd7, 0x5d, 0xc3};
    for (const std::uint32_t value : {0x10u, 0x7ffffff8u, 0xfffffff8u, 0x7u}) {
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        std::memcpy(page, odd, sizeof odd);
        std::memcpy(static_cast<char*>(page) + 4, &value, sizeof value);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        call_generated(reinterpret_cast<void (*)(Leaf)>(page));
    }
}

}  // namespace

int main(int count, char** arguments) {
    void* warm[4];
    backtrace(warm, 4);  // loads libgcc_s
    cuInit(0);
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "shapes") {
        for (int i = 2; i < count; ++i) run_shapes(open_library(arguments[i]));
    } else if (what == "threads") {
        void* library = open_library(arguments[2]);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&] {
                cuCtxSetCurrent(context);
                for (int turn = 0; turn < 20; ++turn) run_shapes(library);
            });
        for (std::thread& thread : threads) thread.join();
    } else if (what == "again") {
        for (int turn = 0; turn < 2; ++turn)
            for (int i = 2; i < count; ++i) {
                void* library = open_library(arguments[i]);
                const auto* map = static_cast<const link_map*>(library);
                std::printf("loaded %zx\n", static_cast<std::size_t>(map->l_addr));
                run_shapes(library);
                dlclose(library);
            }
    } else if (what == "generated") {
        generated();
    } else if (what == "forked") {
        void* library = open_library(arguments[2]);
        run_shapes(library);
        const pid_t child = fork();
        run_shapes(library);
        if (child == 0) std::_Exit(0);
        waitpid(child, nullptr, 0);
    }
    return 0;
}
