// Arrays: what they cost, levels and planes, sparse and deferred memory, external memory. Sizes are computed by
// hand from the descriptors: elements times their bytes, in whole pages of 2 MiB.
#include <sys/mman.h>

#include <string>

#include "sim_test.h"

using namespace sim_test;

namespace {

CUDA_ARRAY3D_DESCRIPTOR describe(std::size_t width, std::size_t height, std::size_t depth,
                                 CUarray_format format = CU_AD_FORMAT_FLOAT, unsigned channels = 1,
                                 unsigned flags = 0) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = width;
    description.Height = height;
    description.Depth = depth;
    description.Format = format;
    description.NumChannels = channels;
    description.Flags = flags;
    return description;
}

CUarray array(const CUDA_ARRAY3D_DESCRIPTOR& description) {
    CUarray made = nullptr;
    REQUIRE(cuArray3DCreate(&made, &description) == CUDA_SUCCESS);
    return made;
}

CUmipmappedArray mipmap(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels) {
    CUmipmappedArray made = nullptr;
    REQUIRE(cuMipmappedArrayCreate(&made, &description, levels) == CUDA_SUCCESS);
    return made;
}

CUresult try_array(const CUDA_ARRAY3D_DESCRIPTOR& description) {
    CUarray made = nullptr;
    const CUresult result = cuArray3DCreate(&made, &description);
    if (result == CUDA_SUCCESS) CHECK(cuArrayDestroy(made) == CUDA_SUCCESS);
    return result;
}

CUmemGenericAllocationHandle tile_pool(std::size_t bytes, unsigned usage = CU_MEM_CREATE_USAGE_TILE_POOL) {
    CUmemAllocationProp properties = device_memory();
    properties.allocFlags.usage = static_cast<unsigned short>(usage);
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
    return handle;
}

CUarrayMapInfo map_info(CUarray array, CUmemGenericAllocationHandle memory, unsigned width, unsigned height) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel.extentWidth = width;
    info.subresource.sparseLevel.extentHeight = height;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = memory != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = memory;
    info.deviceBitMask = 1;
    return info;
}

// Ledger lines of one operation: their fields.
std::vector<std::vector<std::string>> ledger_lines(const std::string& path, const std::string& operation) {
    std::vector<std::vector<std::string>> lines;
    std::FILE* file = std::fopen(path.c_str(), "r");
    REQUIRE(file != nullptr);
    char text[512];
    while (std::fgets(text, sizeof text, file) != nullptr) {
        std::vector<std::string> fields(1);
        for (const char* at = text; *at != '\0' && *at != '\n'; ++at) {
            if (*at == '\t') fields.emplace_back();
            else fields.back() += *at;
        }
        if (fields.size() > 3 && fields[3] == operation) lines.push_back(fields);
    }
    std::fclose(file);
    return lines;
}

}  // namespace

SIM_TEST("an array costs whole pages", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUarray small = array(describe(1, 0, 0));
    CHECK(before - free_bytes() == 2 * kMiB);
    const CUarray plane = array(describe(1024, 1024, 0));  // 4 MiB
    CHECK(before - free_bytes() == 6 * kMiB);
    const CUarray solid = array(describe(256, 256, 256, CU_AD_FORMAT_UNSIGNED_INT8));  // 16 MiB
    CHECK(before - free_bytes() == 22 * kMiB);
    const CUarray layered = array(describe(512, 512, 5, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_LAYERED));  // 10 MiB
    CHECK(before - free_bytes() == 32 * kMiB);
    const CUarray cube = array(describe(256, 256, 6, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_CUBEMAP));  // 1.5 MiB
    CHECK(before - free_bytes() == 34 * kMiB);
    for (const CUarray each : {small, plane, solid, layered, cube}) CHECK(cuArrayDestroy(each) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuArrayDestroy(small) == CUDA_ERROR_INVALID_HANDLE);
}

SIM_TEST("descriptors are checked and told back", "CONTEXT_OVERHEAD=0") {
    start();
    CHECK(try_array(describe(0, 1, 0)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(try_array(describe(8, 8, 0, CU_AD_FORMAT_FLOAT, 3)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(try_array(describe(8, 8, 0, static_cast<CUarray_format>(0x77))) == CUDA_ERROR_INVALID_VALUE);
    CHECK(try_array(describe(131072, 0, 0)) == CUDA_SUCCESS);
    CHECK(try_array(describe(131073, 0, 0)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(try_array(describe(8, 0, 8)) == CUDA_ERROR_INVALID_VALUE);  // 1D with a depth, but not layered
    CHECK(try_array(describe(8, 0, 8, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED)) == CUDA_SUCCESS);
    CHECK(try_array(describe(8, 4, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(try_array(describe(8, 8, 7, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(try_array(describe(8, 8, 12, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)) ==
          CUDA_SUCCESS);
    CHECK(try_array(describe(8, 8, 0, CU_AD_FORMAT_YUY2, 2)) == CUDA_ERROR_NOT_SUPPORTED);
    CUDA_ARRAY3D_DESCRIPTOR back{};
    const CUarray layered = array(describe(16, 8, 3, CU_AD_FORMAT_SIGNED_INT16, 2, CUDA_ARRAY3D_LAYERED));
    CHECK(cuArray3DGetDescriptor(&back, layered) == CUDA_SUCCESS);
    CHECK(back.Width == 16);
    CHECK(back.Height == 8);
    CHECK(back.Depth == 3);
    CHECK(back.Format == CU_AD_FORMAT_SIGNED_INT16);
    CHECK(back.NumChannels == 2);
    CHECK(back.Flags == CUDA_ARRAY3D_LAYERED);
}

SIM_TEST("compressed formats cost a block for 4 by 4 elements", "CONTEXT_OVERHEAD=0", "PAGE_SIZE=4KiB") {
    start();
    const std::size_t before = free_bytes();
    const CUarray bc1 = array(describe(256, 256, 0, CU_AD_FORMAT_BC1_UNORM, 4));  // 64 * 64 blocks of 8
    CHECK(before - free_bytes() == 32 * kKiB);
    CHECK(cuArrayDestroy(bc1) == CUDA_SUCCESS);
    const CUarray bc7 = array(describe(257, 4, 0, CU_AD_FORMAT_BC7_UNORM, 4));  // 65 * 1 blocks of 16
    CHECK(before - free_bytes() == 4 * kKiB);
    CHECK(cuArrayDestroy(bc7) == CUDA_SUCCESS);
}

SIM_TEST("levels of a chain are aliases", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    // 4 MiB and 1 MiB and 256 KiB...: 4/3 of 4 MiB is less than 6 MiB. 11 levels are all there are.
    const CUmipmappedArray chain = mipmap(describe(1024, 1024, 0), 99);
    CHECK(before - free_bytes() == 6 * kMiB);
    CUarray level = nullptr, again = nullptr;
    CHECK(cuMipmappedArrayGetLevel(&level, chain, 11) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMipmappedArrayGetLevel(&level, chain, 3) == CUDA_SUCCESS);
    CHECK(cuMipmappedArrayGetLevel(&again, chain, 3) == CUDA_SUCCESS);
    CHECK(level == again);
    CUDA_ARRAY3D_DESCRIPTOR back{};
    CHECK(cuArray3DGetDescriptor(&back, level) == CUDA_SUCCESS);
    CHECK(back.Width == 128);
    CHECK(back.Height == 128);
    CHECK(back.Depth == 0);
    CHECK(before - free_bytes() == 6 * kMiB);
    CHECK(cuArrayDestroy(level) == CUDA_ERROR_INVALID_HANDLE);
    // What is written to a level is read from it, and its neighbours stay as they were.
    unsigned value = 0x1234'5678, read = 0;
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = &value;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = level;
    copy.dstXInBytes = 508;
    copy.dstY = 127;
    copy.WidthInBytes = 4;
    copy.Height = 1;
    CHECK(cuMemcpy2D(&copy) == CUDA_SUCCESS);
    copy.dstY = 128;
    CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY2D out{};
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    out.srcArray = level;
    out.srcXInBytes = 508;
    out.srcY = 127;
    out.dstMemoryType = CU_MEMORYTYPE_HOST;
    out.dstHost = &read;
    out.WidthInBytes = 4;
    out.Height = 1;
    CHECK(cuMemcpy2D(&out) == CUDA_SUCCESS);
    CHECK(read == value);
    CHECK(cuMipmappedArrayGetLevel(&out.srcArray, chain, 4) == CUDA_SUCCESS);
    out.srcXInBytes = 0;
    out.srcY = 0;
    CHECK(cuMemcpy2D(&out) == CUDA_SUCCESS);
    CHECK(read == 0);
    CHECK(cuMipmappedArrayDestroy(chain) == CUDA_SUCCESS);
    CHECK(cuMipmappedArrayDestroy(chain) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuArray3DGetDescriptor(&back, level) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(free_bytes() == before);
}

SIM_TEST("planes of NV12 are aliases of the documented sizes", "CONTEXT_OVERHEAD=0", "PAGE_SIZE=4KiB") {
    start();
    const std::size_t before = free_bytes();
    const CUarray frame = array(describe(1920, 1080, 0, CU_AD_FORMAT_NV12, 3));
    // 1920 * 1080 bytes of luma, half as many of chroma: 3110400 bytes, 760 pages of 4 KiB.
    CHECK(before - free_bytes() == 760 * 4 * kKiB);
    CUarray luma = nullptr, chroma = nullptr, none = nullptr;
    CHECK(cuArrayGetPlane(&luma, frame, 0) == CUDA_SUCCESS);
    CHECK(cuArrayGetPlane(&chroma, frame, 1) == CUDA_SUCCESS);
    CHECK(cuArrayGetPlane(&none, frame, 2) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuArrayGetPlane(&none, array(describe(8, 8, 0)), 0) == CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR back{};
    CHECK(cuArray3DGetDescriptor(&back, luma) == CUDA_SUCCESS);
    CHECK(back.Width == 1920);
    CHECK(back.NumChannels == 1);
    CHECK(back.Format == CU_AD_FORMAT_UNSIGNED_INT8);
    CHECK(cuArray3DGetDescriptor(&back, chroma) == CUDA_SUCCESS);
    CHECK(back.Width == 960);
    CHECK(back.Height == 540);
    CHECK(back.NumChannels == 2);
}

SIM_TEST("the end of a context frees its arrays", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CUcontext context = nullptr;
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
    array(describe(1024, 1024, 0));
    mipmap(describe(1024, 1024, 0), 2);
    const CUmemGenericAllocationHandle pool = tile_pool(2 * kMiB);
    CUarrayMapInfo info = map_info(array(describe(128, 128, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE)), pool, 128,
                                   128);
    REQUIRE(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuMemRelease(pool) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == (4 + 6 + 2) * kMiB);  // the mapping alone keeps the pool
    CHECK(cuCtxDestroy(context) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("a sparse array owns no memory until tiles are mapped", "CONTEXT_OVERHEAD=0",
         "LEDGER=" + temporary_file("sparse")) {
    start();
    const std::size_t before = free_bytes();
    // 300 by 200 floats: 3 by 2 tiles of 128 by 128.
    const CUarray sparse = array(describe(300, 200, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE));
    CHECK(free_bytes() == before);
    CUDA_ARRAY_SPARSE_PROPERTIES properties{};
    CHECK(cuArrayGetSparseProperties(&properties, sparse) == CUDA_SUCCESS);
    CHECK(properties.tileExtent.width == 128);
    CHECK(properties.tileExtent.height == 128);
    CHECK(properties.tileExtent.depth == 1);
    CHECK(properties.miptailSize == 0);
    CHECK(cuArrayGetSparseProperties(&properties, array(describe(8, 8, 0))) == CUDA_ERROR_INVALID_VALUE);
    const std::size_t with_plain = free_bytes();

    const CUmemGenericAllocationHandle pool = tile_pool(2 * kMiB);
    CUarrayMapInfo info = map_info(sparse, pool, 384, 256);
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_SUCCESS);
    info.subresource.sparseLevel.extentWidth = 512;  // beyond the array
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    info.subresource.sparseLevel.extentWidth = 100;  // not whole tiles
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    info = map_info(sparse, pool, 384, 256);
    info.offset = 2 * kMiB - 64 * kKiB;  // 6 tiles do not fit behind it
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    info.offset = 0;
    info.deviceBitMask = 2;
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CUarrayMapInfo plain = map_info(sparse, tile_pool(2 * kMiB, 0), 384, 256);
    CHECK(cuMemMapArrayAsync(&plain, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);

    CHECK(cuMemRelease(pool) == CUDA_SUCCESS);
    CHECK(with_plain - free_bytes() == 4 * kMiB);  // `pool` and the one that was refused
    CUarrayMapInfo part = map_info(sparse, 0, 128, 256);
    CHECK(cuMemMapArrayAsync(&part, 1, nullptr) == CUDA_SUCCESS);
    CHECK(with_plain - free_bytes() == 4 * kMiB);
    CUarrayMapInfo rest = map_info(sparse, 0, 384, 256);
    CHECK(cuMemMapArrayAsync(&rest, 1, nullptr) == CUDA_SUCCESS);
    CHECK(with_plain - free_bytes() == 2 * kMiB);

    const std::string path = std::getenv("FRAGSCOPE_SIM_LEDGER");
    const auto mapped = ledger_lines(path, "array_map");
    const auto unmapped = ledger_lines(path, "array_unmap");
    ::unlink(path.c_str());
    REQUIRE(mapped.size() == 1);
    REQUIRE(unmapped.size() == 2);
    CHECK(mapped[0][5] == std::to_string(6 * 64 * kKiB));
    CHECK(unmapped[0][5] == std::to_string(2 * 64 * kKiB));
    CHECK(unmapped[1][5] == std::to_string(4 * 64 * kKiB));
    CHECK(mapped[0][9] == unmapped[0][9]);  // the handle
}

SIM_TEST("the tail of a sparse chain begins where a level is smaller than a tile", "CONTEXT_OVERHEAD=0") {
    start();
    const CUmipmappedArray chain = mipmap(describe(512, 512, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE), 10);
    CUDA_ARRAY_SPARSE_PROPERTIES properties{};
    CHECK(cuMipmappedArrayGetSparseProperties(&properties, chain) == CUDA_SUCCESS);
    // Levels of 512, 256 and 128 span tiles of 128; 64 and smaller are 16384 + 4096 + ... bytes: one tile.
    CHECK(properties.miptailFirstLevel == 3);
    CHECK(properties.miptailSize == 64 * kKiB);
    const CUmemGenericAllocationHandle pool = tile_pool(2 * kMiB);
    CUarrayMapInfo info = map_info(nullptr, pool, 128, 128);
    info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    info.resource.mipmap = chain;
    info.subresource.sparseLevel.level = 2;
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_SUCCESS);
    info.subresource.sparseLevel.level = 3;
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    info.subresource.miptail = {0, 0, 64 * kKiB};
    info.offset = 64 * kKiB;
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_SUCCESS);
    info.subresource.miptail = {0, 64 * kKiB, 64 * kKiB};
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("a deferred array is mapped as a whole", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUarray deferred = array(describe(1000, 1000, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING));
    CHECK(free_bytes() == before);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed{};
    CHECK(cuArrayGetMemoryRequirements(&needed, deferred, 0) == CUDA_SUCCESS);
    CHECK(needed.size == 62 * 64 * kKiB);  // 4000000 bytes in units of 64 KiB
    CHECK(needed.alignment == 64 * kKiB);
    int value = 7;
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = &value;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = deferred;
    copy.WidthInBytes = sizeof value;
    copy.Height = 1;
    CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
    CUarrayMapInfo info = map_info(deferred, tile_pool(2 * kMiB), 0, 0);
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);  // too small
    info = map_info(deferred, tile_pool(4 * kMiB), 0, 0);
    CHECK(cuMemMapArrayAsync(&info, 1, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemcpy2D(&copy) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 6 * kMiB);
}

SIM_TEST("external memory charges nothing and outlives its object while mapped", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const int fd = ::memfd_create("external", MFD_CLOEXEC);
    REQUIRE(::ftruncate(fd, 8 * kMiB) == 0);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
    description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    description.handle.fd = fd;
    description.size = 16 * kMiB;
    CUexternalMemory memory = nullptr;
    CHECK(cuImportExternalMemory(&memory, &description) == CUDA_ERROR_INVALID_HANDLE);  // the file is smaller
    description.size = 8 * kMiB;
    REQUIRE(cuImportExternalMemory(&memory, &description) == CUDA_SUCCESS);
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
    buffer.offset = 4 * kMiB;
    buffer.size = 8 * kMiB;
    CUdeviceptr address = 0;
    CHECK(cuExternalMemoryGetMappedBuffer(&address, memory, &buffer) == CUDA_ERROR_INVALID_VALUE);
    buffer.size = 4 * kMiB;
    REQUIRE(cuExternalMemoryGetMappedBuffer(&address, memory, &buffer) == CUDA_SUCCESS);
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC chain{};
    chain.arrayDesc = describe(1024, 1024, 0);
    chain.numLevels = 1;
    CUmipmappedArray mapped = nullptr;
    REQUIRE(cuExternalMemoryGetMappedMipmappedArray(&mapped, memory, &chain) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuDestroyExternalMemory(memory) == CUDA_SUCCESS);
    CHECK(cuDestroyExternalMemory(memory) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(::fcntl(fd, F_GETFD) >= 0);
    CHECK(cuMipmappedArrayDestroy(mapped) == CUDA_SUCCESS);
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
    CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
    CHECK(::fcntl(fd, F_GETFD) == -1);  // the driver owned the descriptor
    CHECK(free_bytes() == before);
}

SIM_TEST("an exported allocation imported as external memory stays", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CUmemAllocationProp properties = device_memory();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMemCreate(&handle, 2 * kMiB, &properties, 0) == CUDA_SUCCESS);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
    description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    description.size = 2 * kMiB;
    REQUIRE(cuMemExportToShareableHandle(&description.handle.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         0) == CUDA_SUCCESS);
    CUexternalMemory memory = nullptr;
    REQUIRE(cuImportExternalMemory(&memory, &description) == CUDA_SUCCESS);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(cuDestroyExternalMemory(memory) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}
