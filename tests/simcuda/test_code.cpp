// Device memory that no call announces: code, variables and limits of a context. The charges are computed by hand
// from the settings and from the formula in README.md.
#include <fstream>

#include "sim_test.h"

using namespace sim_test;

namespace {

constexpr char kImage[] = "fragscope-sim-module\ncode 3MiB\nvariable counter 4\nvariable table 1MiB\n";

CUfunction function_of(CUmodule module) {
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
    return function;
}

CUresult launch(CUfunction function) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

}  // namespace

SIM_TEST("code is loaded at the first launch", "CONTEXT_OVERHEAD=0", "MODULE_BYTES=5MiB") {
    start();
    const std::size_t before = free_bytes();
    CUmoduleLoadingMode mode{};
    CHECK(cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_MODULE_LAZY_LOADING);
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, "some image") == CUDA_SUCCESS);
    const CUfunction function = function_of(module);
    CUfunctionLoadingState state{};
    CHECK(cuFuncIsLoaded(&state, function) == CUDA_SUCCESS);
    CHECK(state == CU_FUNCTION_LOADING_STATE_UNLOADED);
    CHECK(free_bytes() == before);
    CHECK(launch(function) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 6 * kMiB);
    CHECK(launch(function) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 6 * kMiB);
    CHECK(cuFuncIsLoaded(&state, function) == CUDA_SUCCESS);
    CHECK(state == CU_FUNCTION_LOADING_STATE_LOADED);
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(launch(function) == CUDA_ERROR_INVALID_HANDLE);
}

SIM_TEST("code is loaded at once where it is set so", "CONTEXT_OVERHEAD=0", "MODULE_BYTES=5MiB",
         "MODULE_LOADING=eager", "CAPACITY=16MiB") {
    start();
    CUmodule module = nullptr;
    for (int i = 0; i < 2; ++i) CHECK(cuModuleLoadData(&module, "image") == CUDA_SUCCESS);
    CHECK(free_bytes() == 4 * kMiB);
    CHECK(cuModuleLoadData(&module, "image") == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(free_bytes() == 4 * kMiB);
}

SIM_TEST("a launch fails for memory that its code lacks", "CONTEXT_OVERHEAD=0", "MODULE_BYTES=5MiB",
         "CAPACITY=8MiB") {
    start();
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, "image") == CUDA_SUCCESS);
    const CUdeviceptr block = allocate(4 * kMiB);
    CHECK(launch(function_of(module)) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemFree(block) == CUDA_SUCCESS);
    CHECK(launch(function_of(module)) == CUDA_SUCCESS);
}

SIM_TEST("variables of a text module", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, kImage) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CUdeviceptr counter = 0, table = 0;
    std::size_t bytes = 0;
    CHECK(cuModuleGetGlobal(&counter, &bytes, module, "other") == CUDA_ERROR_NOT_FOUND);
    CHECK(free_bytes() == before);
    CHECK(cuModuleGetGlobal(&counter, &bytes, module, "counter") == CUDA_SUCCESS);
    CHECK(bytes == 4);
    CHECK(before - free_bytes() == 6 * kMiB);  // 3 MiB of code, 256 bytes, 1 MiB
    CHECK(cuModuleGetGlobal(&table, &bytes, module, "table") == CUDA_SUCCESS);
    CHECK(bytes == kMiB);
    CHECK(table == counter + 256);
    CHECK(before - free_bytes() == 6 * kMiB);
    int value = 17, back = 0;
    CHECK(cuMemcpyHtoD(counter, &value, sizeof value) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(&back, counter, sizeof back) == CUDA_SUCCESS);
    CHECK(back == 17);
    CHECK(cuMemFree(table) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuModuleLoadData(&module, "fragscope-sim-module\nvariable 4\n") == CUDA_ERROR_INVALID_IMAGE);
    CHECK(cuModuleLoadData(&module, "fragscope-sim-module\nnothing\n") == CUDA_ERROR_INVALID_IMAGE);
}

SIM_TEST("a library is loaded into each context that uses it", "CONTEXT_OVERHEAD=0") {
    const std::string path = temporary_file("library");
    std::ofstream(path) << kImage;
    start(0);
    const std::size_t before = free_bytes();
    CUlibrary library = nullptr;
    REQUIRE(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS);
    ::unlink(path.c_str());
    CUkernel kernel = nullptr;
    REQUIRE(cuLibraryGetKernel(&kernel, library, "kernel") == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(launch(reinterpret_cast<CUfunction>(kernel)) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 6 * kMiB);
    CUdeviceptr here = 0, there = 0;
    CHECK(cuLibraryGetGlobal(&here, nullptr, library, "counter") == CUDA_SUCCESS);
    CUcontext second = nullptr;
    REQUIRE(cuCtxCreate(&second, nullptr, 0, 0) == CUDA_SUCCESS);
    CHECK(cuLibraryGetGlobal(&there, nullptr, library, "counter") == CUDA_SUCCESS);
    CHECK(there != here);
    CHECK(before - free_bytes() == 12 * kMiB);
    CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 6 * kMiB);
    CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("limits above their defaults cost memory where it is set so", "CONTEXT_OVERHEAD=0", "LIMIT_MEMORY=on") {
    start();
    const std::size_t before = free_bytes();
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * kMiB) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 56 * kMiB);  // above 8 MiB
    CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 * kMiB) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 58 * kMiB);  // above 1 MiB
    // 1 KiB more for each of 132 * 2048 threads: 264 MiB.
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2 * kKiB) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == (58 + 264) * kMiB);
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512 * kKiB) == CUDA_ERROR_OUT_OF_MEMORY);
    std::size_t value = 0;
    CHECK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS);
    CHECK(value == 2 * kKiB);
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 58 * kMiB);
    CHECK(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4) == CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    start();
    CHECK(free_bytes() == before);
    CHECK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS);
    CHECK(value == kKiB);
}

SIM_TEST("a kernel makes the stack grow for good", "CONTEXT_OVERHEAD=0", "LIMIT_MEMORY=on") {
    start();
    const std::size_t before = free_bytes();
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, "fragscope-sim-module\ncode 0\nstack 3KiB\n") == CUDA_SUCCESS);
    const CUfunction function = function_of(module);
    CHECK(free_bytes() == before);
    CHECK(launch(function) == CUDA_SUCCESS);
    // 2 KiB more for each of 132 * 2048 threads.
    CHECK(before - free_bytes() == 528 * kMiB);
    std::size_t value = 0;
    CHECK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS);
    CHECK(value == 3 * kKiB);
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 528 * kMiB);
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, kKiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("limits cost nothing by default", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, kGiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}
