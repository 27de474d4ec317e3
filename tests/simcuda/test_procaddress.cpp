// cuGetProcAddress against the headers; exports; private tables.
#include <dlfcn.h>

#include <map>

#include "header_names.h"
#include "sim_test.h"

using namespace sim_test;

namespace {

struct Answer {
    CUresult result;
    CUdriverProcAddressQueryResult status;
    std::string symbol;  // "" when no pointer came
};

Answer look_up(const char* name, int version, cuuint64_t flags) {
    void* pointer = reinterpret_cast<void*>(8);
    Answer answer{};
    answer.result = cuGetProcAddress(name, &pointer, version, flags, &answer.status);
    Dl_info info{};
    if (pointer != nullptr && ::dladdr(pointer, &info) != 0 && info.dli_saddr == pointer) answer.symbol = info.dli_sname;
    return answer;
}

// "cuMemAllocAsync_v2_ptsz" -> the number in its name, 1 when there is none.
int variant(const std::string& symbol) {
    const auto at = symbol.rfind("_v");
    return at == std::string::npos ? 1 : std::atoi(symbol.c_str() + at + 2);
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TEST_CASE("every function of the headers is exported") {
    CHECK(std::size(kHeaderFunctions) > 600);
    for (const char* name : kHeaderFunctions) {
        CAPTURE(name);
        CHECK(::dlsym(RTLD_DEFAULT, name) != nullptr);
    }
}

TEST_CASE("every typedef's version has its symbol") {
    CHECK(std::size(kHeaderTypedefs) > 600);
    for (const HeaderTypedef& type : kHeaderTypedefs) {
        CAPTURE(type.base);
        CAPTURE(type.version);
        CAPTURE(type.stream);
        const bool per_thread = *type.stream != '\0';
        const cuuint64_t flags = per_thread ? 2 : 0;
        const Answer answer = look_up(type.base, type.version, flags);
        CHECK(answer.result == CUDA_SUCCESS);
        CHECK(answer.status == CU_GET_PROC_ADDRESS_SUCCESS);
        const std::string base = std::string(type.base) == "cuGraphInstantiate" && type.version >= 12000
                                     ? "cuGraphInstantiateWithFlags"
                                     : type.base;
        std::string expected = base;
        if (variant(answer.symbol) > 1) expected += "_v" + std::to_string(variant(answer.symbol));
        if (per_thread) expected += std::string("_") + type.stream;
        CHECK(answer.symbol == expected);
        // The version before has an older one, or none.
        const Answer before = look_up(type.base, type.version - 1, flags);
        CHECK(before.result == CUDA_SUCCESS);
        CHECK(before.symbol != answer.symbol);
        if (before.symbol.empty()) CHECK(before.status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        // A later program never gets an older one.
        const Answer newest = look_up(type.base, CUDA_VERSION, flags);
        CHECK((variant(newest.symbol) >= variant(answer.symbol) || ends_with(newest.symbol, "WithFlags")));
    }
}

TEST_CASE("known variants") {
    const struct {
        const char* name;
        int version;
        cuuint64_t flags;
        const char* symbol;
    } known[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
        {"cuMemcpyHtoD", 12000, 0, "cuMemcpyHtoD_v2"},
        {"cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemAllocAsync", 12000, 0, "cuMemAllocAsync"},
        {"cuMemAllocAsync", 12000, 2, "cuMemAllocAsync_ptsz"},
        {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
        {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
        {"cuCtxGetDevice", 12090, 0, "cuCtxGetDevice"},
        {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
        {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
        {"cuMemPrefetchAsync", 8000, 2, "cuMemPrefetchAsync_ptsz"},
        {"cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"},
        {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"},
        {"cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2"},
        {"cuProfilerStart", 13000, 0, "cuProfilerStart"},
    };
    for (const auto& each : known) {
        CAPTURE(each.name);
        CAPTURE(each.version);
        CHECK(look_up(each.name, each.version, each.flags).symbol == each.symbol);
    }
}

TEST_CASE("what is not there") {
    for (const char* name : {"", "cuNoSuchThing", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz", "memcpy"}) {
        CAPTURE(name);
        const Answer answer = look_up(name, 0, 0);
        CHECK(answer.result == CUDA_SUCCESS);
        CHECK(answer.symbol.empty());
        CHECK(answer.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    }
    void* pointer = nullptr;
    CHECK(cuGetProcAddress("cuNoSuchThing", &pointer, 12000, 0, nullptr) == CUDA_SUCCESS);
    CHECK(pointer == nullptr);
    CHECK(look_up("cuMemAlloc", 13010, 0).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(look_up("cuMemAlloc", 12000, 8).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGetProcAddress(nullptr, &pointer, 12000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("an older driver does not know what came later", "DRIVER_VERSION=11080") {
    CHECK(look_up("cuLibraryLoadData", 11080, 0).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(look_up("cuGetProcAddress", 11080, 0).symbol == "cuGetProcAddress");
    CHECK(look_up("cuMemAlloc", 12000, 0).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(look_up("cuMemAllocAsync", 11080, 2).symbol == "cuMemAllocAsync_ptsz");
    CHECK(look_up("cuStreamGetCaptureInfo", 11080, 0).symbol == "cuStreamGetCaptureInfo_v2");
}

TEST_CASE("private tables: what is known, and that the keyed check is not answered") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    const auto ask = [](std::initializer_list<unsigned char> bytes, const void** table) {
        CUuuid uuid{};
        std::memcpy(uuid.bytes, std::data(bytes), bytes.size());
        return cuGetExportTable(table, &uuid);
    };
    const void* table = nullptr;
    CHECK(ask({0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
              &table) == CUDA_ERROR_NOT_FOUND);
    CHECK(table == nullptr);
    CHECK(ask({0}, &table) == CUDA_ERROR_NOT_FOUND);
    CHECK(ask({0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
              &table) == CUDA_SUCCESS);
    REQUIRE(table != nullptr);
    CHECK(*static_cast<const std::size_t*>(table) == 80);
}
