// What nvcc-compiled code calls: registration, the <<<...>>> configuration, launches.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
}

namespace {

struct Wrapper {
    int magic;
    int version;
    const void* data;
    void* filename_or_fatbins;
};

const char kCode[16] = {};  // never executed: the simulated driver runs no code
Wrapper g_wrapper = {0x466243b1, 1, kCode, nullptr};
char g_host_function;
char g_host_variable;

}  // namespace

TEST_CASE("kernels: a registered kernel can be launched, another cannot") {
    void* arguments[1] = {};
    CHECK(cudaLaunchKernel(&g_host_function, dim3(1), dim3(32), arguments, 0, nullptr) ==
          cudaErrorInvalidDeviceFunction);
    void** binary = __cudaRegisterFatBinary(&g_wrapper);
    char device_name[] = "_Z6kernelv";
    __cudaRegisterFunction(binary, &g_host_function, device_name, device_name, -1, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(binary);
    CHECK(cudaLaunchKernel(&g_host_function, dim3(1), dim3(32), arguments, 0, nullptr) == cudaSuccess);
    cudaKernel_t kernel = nullptr;
    CHECK(cudaGetKernel(&kernel, &g_host_function) == cudaSuccess);
    CHECK(kernel != nullptr);
    __cudaUnregisterFatBinary(binary);
    CHECK(cudaLaunchKernel(&g_host_function, dim3(1), dim3(32), arguments, 0, nullptr) ==
          cudaErrorInvalidDeviceFunction);
}

TEST_CASE("kernels: the size of a registered variable is known") {
    void** binary = __cudaRegisterFatBinary(&g_wrapper);
    char name[] = "table";
    __cudaRegisterVar(binary, &g_host_variable, name, name, 0, 400, 0, 0);
    size_t size = 0;
    CHECK(cudaGetSymbolSize(&size, &g_host_variable) == cudaSuccess);
    CHECK(size == 400);
    CHECK(cudaGetSymbolSize(&size, &g_host_function) == cudaErrorInvalidSymbol);
    __cudaUnregisterFatBinary(binary);
}

TEST_CASE("kernels: launch configurations nest") {
    CHECK(__cudaPushCallConfiguration(dim3(2), dim3(64), 16, nullptr) == 0);
    CHECK(__cudaPushCallConfiguration(dim3(3), dim3(128), 0, nullptr) == 0);
    dim3 grid;
    dim3 block;
    size_t shared = 0;
    cudaStream_t stream = nullptr;
    CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess);
    CHECK(grid.x == 3);
    CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess);
    CHECK(grid.x == 2);
    CHECK(shared == 16);
    CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaErrorMissingConfiguration);
}
