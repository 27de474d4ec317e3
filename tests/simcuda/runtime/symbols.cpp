// Registration by nvcc-compiled programs (see symbols.h). The registration functions are declared in nvcc's
// own crt/host_runtime.h, which is not meant to be included, so that their prototypes are repeated here.
#include "symbols.h"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

using namespace fragscope::simrt;

namespace fragscope::simrt {
namespace {

// What the compiler puts into the .nvFatBinSegment section (fatbinary_section.h).
struct FatBinaryWrapper {
    int magic;
    int version;
    const void* data;
    void* filename_or_fatbins;
};

struct Binary {
    const FatBinaryWrapper* wrapper = nullptr;
    CUlibrary library = nullptr;
    bool load_tried = false;
    cudaError_t load_error = cudaSuccess;
};

struct Function {
    Binary* binary = nullptr;
    std::string name;
    CUkernel kernel = nullptr;
};

struct Variable {
    Binary* binary = nullptr;
    std::string name;
    size_t size = 0;
    bool managed = false;
};

struct Registry {
    std::mutex mutex;
    std::unordered_map<const void*, std::unique_ptr<Binary>> binaries;
    std::unordered_map<const void*, Function> functions;
    std::unordered_map<const void*, Variable> variables;
};

// Never destroyed: programs unregister their code from exit handlers that run after ours would have.
Registry& registry() {
    static Registry* const instance = new Registry;
    return *instance;
}

bool driver_lacks_code(cudaError_t error) {
    return error == cudaErrorNotSupported || error == cudaErrorCallRequiresNewerDriver;
}

void load(Binary* binary) {
    if (binary->load_tried) return;
    binary->load_tried = true;
    binary->load_error =
        driver().LibraryLoadData == nullptr
            ? cudaErrorNotSupported
            : to_runtime_error(driver().LibraryLoadData(&binary->library, binary->wrapper->data, nullptr,
                                                        nullptr, 0, nullptr, nullptr, 0));
}

}  // namespace

KernelLookup find_kernel(const void* host_function, cudaError_t* error) {
    *error = cudaSuccess;
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.functions.find(host_function);
    if (found == all.functions.end()) return {};
    Function& function = found->second;
    if (function.kernel != nullptr) return {true, function.kernel};
    load(function.binary);
    if (function.binary->library != nullptr && driver().LibraryGetKernel != nullptr)
        *error = to_runtime_error(
            driver().LibraryGetKernel(&function.kernel, function.binary->library, function.name.c_str()));
    else
        *error = function.binary->load_error;
    if (driver_lacks_code(*error)) *error = cudaSuccess;
    return {true, function.kernel};
}

cudaKernel_t unloadable_kernel() {
    static int marker;
    return reinterpret_cast<cudaKernel_t>(&marker);
}

KernelLookup find_kernel_handle(cudaKernel_t handle) {
    if (handle == nullptr) return {};
    return {true, handle == unloadable_kernel() ? nullptr : handle};
}

cudaError_t function_of(const void* host_function, CUfunction* function) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    cudaError_t load_error = cudaSuccess;
    const KernelLookup kernel = find_kernel(host_function, &load_error);
    if (!kernel.registered) return record(cudaErrorInvalidDeviceFunction);
    if (load_error != cudaSuccess) return record(load_error);
    if (kernel.kernel == nullptr) return record(cudaErrorNotSupported);
    return call(driver().KernelGetFunction, function, kernel.kernel);
}

cudaError_t symbol_place(const void* symbol, size_t offset, size_t count, char** address) {
    void* base = nullptr;
    size_t size = 0;
    if (const cudaError_t error = cudaGetSymbolAddress(&base, symbol); error != cudaSuccess) return error;
    if (const cudaError_t error = cudaGetSymbolSize(&size, symbol); error != cudaSuccess) return error;
    if (offset > size || count > size - offset) return cudaErrorInvalidValue;
    *address = static_cast<char*>(base) + offset;
    return cudaSuccess;
}

}  // namespace fragscope::simrt

extern "C" {
void** __cudaRegisterFatBinary(void* fatCubin);
void __cudaRegisterFatBinaryEnd(void** fatCubinHandle);
void __cudaUnregisterFatBinary(void** fatCubinHandle);
void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                            const char* deviceName, int thread_limit, uint3* tid, uint3* bid, dim3* bDim,
                            dim3* gDim, int* wSize);
void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char* deviceAddress, const char* deviceName,
                       int ext, size_t size, int constant, int global);
void __cudaRegisterManagedVar(void** fatCubinHandle, void** hostVarPtrAddress, char* deviceAddress,
                              const char* deviceName, int ext, size_t size, int constant, int global);
void __cudaRegisterHostVar(void** fatCubinHandle, const char* deviceName, char* hostVar, size_t size);
void __cudaRegisterUnifiedTable(void** fatCubinHandle, void* table);
char __cudaInitModule(void** fatCubinHandle);
}

namespace {

// The handle that a program holds for its binary is the address of our record of it.
Binary* binary_of(void** handle) { return reinterpret_cast<Binary*>(handle); }

}  // namespace

void** __cudaRegisterFatBinary(void* fatCubin) {
    auto binary = std::make_unique<Binary>();
    binary->wrapper = static_cast<const FatBinaryWrapper*>(fatCubin);
    Binary* const handle = binary.get();
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.binaries.emplace(handle, std::move(binary));
    return reinterpret_cast<void**>(handle);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** fatCubinHandle) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    Binary* const binary = binary_of(fatCubinHandle);
    if (all.binaries.count(binary) == 0) return;
    std::erase_if(all.functions, [&](const auto& entry) { return entry.second.binary == binary; });
    std::erase_if(all.variables, [&](const auto& entry) { return entry.second.binary == binary; });
    // The library is not unloaded: at exit, where this is called, the driver may already be shutting down.
    all.binaries.erase(binary);
}

void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char*, const char* deviceName, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.functions[hostFun] = {binary_of(fatCubinHandle), deviceName, nullptr};
}

void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char*, const char* deviceName, int, size_t size,
                       int, int) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.variables[hostVar] = {binary_of(fatCubinHandle), deviceName, size, false};
}

void __cudaRegisterManagedVar(void** fatCubinHandle, void** hostVarPtrAddress, char*, const char* deviceName,
                              int, size_t size, int, int) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.variables[hostVarPtrAddress] = {binary_of(fatCubinHandle), deviceName, size, true};
}

// Host variables visible to device code and unified tables matter only to running kernels; none runs here.
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}
void __cudaRegisterUnifiedTable(void**, void*) {}

// Called before the first use of a __managed__ variable: the program reads it through a pointer that is set
// here.
char __cudaInitModule(void** fatCubinHandle) {
    if (ensure_context() != cudaSuccess || driver().LibraryGetManaged == nullptr) return 0;
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    Binary* const binary = binary_of(fatCubinHandle);
    load(binary);
    if (binary->library == nullptr) return 0;
    for (auto& [host, variable] : all.variables) {
        if (!variable.managed || variable.binary != binary) continue;
        CUdeviceptr address = 0;
        size_t size = 0;
        if (driver().LibraryGetManaged(&address, &size, binary->library, variable.name.c_str()) ==
            CUDA_SUCCESS)
            *static_cast<void**>(const_cast<void*>(host)) = to_pointer(address);
    }
    return 1;
}

cudaError_t cudaGetSymbolAddress(void** devPtr, const void* symbol) {
    if (devPtr == nullptr) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.variables.find(symbol);
    if (found == all.variables.end()) return record(cudaErrorInvalidSymbol);
    load(found->second.binary);
    if (found->second.binary->library == nullptr) return record(found->second.binary->load_error);
    CUdeviceptr address = 0;
    size_t size = 0;
    const cudaError_t error = call(driver().LibraryGetGlobal, &address, &size, found->second.binary->library,
                                   found->second.name.c_str());
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
    if (size == nullptr) return record(cudaErrorInvalidValue);
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.variables.find(symbol);
    if (found == all.variables.end()) return record(cudaErrorInvalidSymbol);
    *size = found->second.size;
    return cudaSuccess;
}
