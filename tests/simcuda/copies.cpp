// cuMemcpy* and cuMemset*: bytes move between host memory and what backing.h keeps of device memory.
//
// An asynchronous copy is done at once, which a program that orders its work properly cannot tell.
#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "capture.h"
#include "driver.h"
#include "pools.h"
#include "small_heap.h"
#include "streams.h"
#include "vmm.h"

namespace fragscope::sim {
namespace {

bool is_host(Region::Kind kind) {
    return kind == Region::Kind::Host || kind == Region::Kind::Registered || kind == Region::Kind::Managed;
}

// A run of bytes in one place.
struct Span {
    unsigned char* host = nullptr;
    Backing* backing = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

enum class Place { Host, Device, Either };

// What lies at `address`, at most `bytes` of it. False when a device address is not accessible memory.
bool resolve(std::uint64_t address, std::uint64_t bytes, Place place, bool write, Span& span) {
    Region* region = find_region_locked(address);
    if (region == nullptr) {
        if (place == Place::Device) return false;
        const Settings& s = driver().settings;
        if (address >= s.va_base && address - s.va_base < s.va_bytes) return false;
        span = {reinterpret_cast<unsigned char*>(address), nullptr, 0, bytes};
        // Up to where memory that the driver knows begins.
        const auto next = driver().regions.lower_bound(address);
        if (next != driver().regions.end()) span.bytes = std::min(bytes, next->first - address);
        return true;
    }
    const std::uint64_t left = std::min(bytes, region->size - (address - region->base));
    if (is_host(region->kind)) {
        if (place == Place::Device && region->kind == Region::Kind::Registered &&
            (region->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 && write) {
            return false;
        }
        span = {reinterpret_cast<unsigned char*>(address), nullptr, 0, left};
        return true;
    }
    if (place == Place::Host) return false;
    std::uint64_t base = 0, size = 0;
    switch (region->kind) {
        case Region::Kind::Reservation: {
            Mapping* mapping = find_mapping(*region, address, base);
            if (mapping == nullptr) return false;
            const unsigned needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
            const bool open = std::any_of(mapping->access.begin(), mapping->access.end(),
                                          [&](const auto& each) { return (each.second & needed) == needed; });
            if (!open) return false;
            span = {nullptr, &mapping->handle->memory->backing, mapping->offset + (address - base),
                    std::min(left, mapping->size - (address - base))};
            return true;
        }
        case Region::Kind::SmallBlock:
            if (!small_find(*region, address, base, size)) return false;
            break;
        case Region::Kind::PoolChunk:
            if (!pool_find(*region, address, base, size)) return false;
            break;
        default: base = region->base; size = region->requested; break;
    }
    if (address - base >= size) return false;
    span = {nullptr, &region->backing, address - region->base, std::min(left, size - (address - base))};
    return true;
}

void move(const Span& to, const Span& from, std::uint64_t bytes) {
    const bool kept = driver().settings.backing;
    if (to.host != nullptr && from.host != nullptr) {
        std::memmove(to.host, from.host, bytes);
    } else if (to.host != nullptr) {
        if (kept) from.backing->read(from.offset, to.host, bytes);
        else std::memset(to.host, 0, bytes);
    } else if (!kept) {
        return;
    } else if (from.host != nullptr) {
        to.backing->write(to.offset, from.host, bytes);
    } else {
        unsigned char buffer[16 << 10];
        for (std::uint64_t done = 0; done < bytes;) {
            const std::uint64_t part = std::min<std::uint64_t>(bytes - done, sizeof buffer);
            from.backing->read(from.offset + done, buffer, part);
            to.backing->write(to.offset + done, buffer, part);
            done += part;
        }
    }
}

CUresult copy_locked(std::uint64_t to, Place to_place, std::uint64_t from, Place from_place, std::uint64_t bytes) {
    // Twice over the range: a wrong address must be found before the first byte moves.
    for (const bool really : {false, true}) {
        for (std::uint64_t done = 0; done < bytes;) {
            Span target, source;
            if (!resolve(to + done, bytes - done, to_place, true, target) ||
                !resolve(from + done, bytes - done, from_place, false, source)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const std::uint64_t part = std::min(target.bytes, source.bytes);
            if (really) move(target, source, part);
            done += part;
        }
    }
    return CUDA_SUCCESS;
}

CUresult fill_locked(std::uint64_t to, std::uint32_t pattern, std::uint64_t bytes) {
    for (const bool really : {false, true}) {
        for (std::uint64_t done = 0; done < bytes;) {
            Span target;
            if (!resolve(to + done, bytes - done, Place::Device, true, target)) return CUDA_ERROR_INVALID_VALUE;
            if (really && target.host != nullptr) {
                unsigned char unit[4];
                std::memcpy(unit, &pattern, sizeof unit);
                for (std::uint64_t i = 0; i < target.bytes; ++i) target.host[i] = unit[(to + done + i) % 4];
            } else if (really && driver().settings.backing) {
                target.backing->fill(target.offset, pattern, target.bytes);
            }
            done += target.bytes;
        }
    }
    return CUDA_SUCCESS;
}

// Runs `body` with the lock as work on `stream`; in a capture it is a node of that type instead, whose launch moves nothing.
template <typename Body>
CUresult work(Function function, bool synchronous, CUstream handle, CUgraphNodeType type, Body body) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (synchronous) {
        if (const CUresult error = check_unsafe(function); error != CUDA_SUCCESS) return error;
    }
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(handle, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ++stream->issued;
    if (stream->capture) return capture_work_locked(*stream, type);
    return body();
}

std::uint64_t host(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
std::uint32_t bytes4(unsigned char value) { return value * 0x01010101U; }
std::uint32_t halves(unsigned short value) { return value * 0x00010001U; }

CUresult fill_rows(CUdeviceptr to, size_t pitch, std::uint32_t pattern, size_t width, size_t height) {
    if (height > 1 && pitch < width) return CUDA_ERROR_INVALID_VALUE;
    for (size_t row = 0; row < height; ++row) {
        if (const CUresult error = fill_locked(to + row * pitch, pattern, width); error != CUDA_SUCCESS) return error;
    }
    return CUDA_SUCCESS;
}

// One side of a 2D or 3D copy.
struct Side {
    CUmemorytype type;
    std::uint64_t address;  // of linear memory
    CUarray array;
    std::uint64_t x, y, z, pitch, height;
};

CUresult row_span(const Side& side, std::uint64_t y, std::uint64_t z, std::uint64_t bytes, bool write, Span& span) {
    if (side.type == CU_MEMORYTYPE_ARRAY) {
        Array* array = find_array_locked(side.array);
        if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const ArrayShape& shape = array->shape;
        if (side.x > shape.row_bytes || bytes > shape.row_bytes - side.x || side.y + y >= shape.rows ||
            side.z + z >= shape.depth * shape.layers) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (array->storage->deferred() && array->storage->tiles.empty()) return CUDA_ERROR_INVALID_VALUE;
        span = {nullptr, &array->storage->backing,
                array->offset + ((side.z + z) * shape.rows + side.y + y) * shape.row_bytes + side.x, bytes};
        return CUDA_SUCCESS;
    }
    const Place place = side.type == CU_MEMORYTYPE_HOST     ? Place::Host
                        : side.type == CU_MEMORYTYPE_DEVICE ? Place::Device
                                                            : Place::Either;
    const std::uint64_t at = side.address + ((side.z + z) * side.height + side.y + y) * side.pitch + side.x;
    if (!resolve(at, bytes, place, write, span) || span.bytes < bytes) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult copy_box_locked(const Side& to, const Side& from, std::uint64_t width, std::uint64_t height,
                         std::uint64_t depth) {
    for (std::uint64_t z = 0; z < depth; ++z) {
        for (std::uint64_t y = 0; y < height; ++y) {
            Span target, source;
            if (const CUresult error = row_span(to, y, z, width, true, target); error != CUDA_SUCCESS) return error;
            if (const CUresult error = row_span(from, y, z, width, false, source); error != CUDA_SUCCESS) return error;
            move(target, source, width);
        }
    }
    return CUDA_SUCCESS;
}

std::uint64_t address_of(CUmemorytype type, const void* host_pointer, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? host(host_pointer) : device;
}

CUresult copy_2d(Function function, bool synchronous, const CUDA_MEMCPY2D* p, CUstream stream) {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return work(function, synchronous, stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&] {
        const Side to{p->dstMemoryType, address_of(p->dstMemoryType, p->dstHost, p->dstDevice), p->dstArray,
                      p->dstXInBytes, p->dstY, 0, p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes, p->Height};
        const Side from{p->srcMemoryType, address_of(p->srcMemoryType, p->srcHost, p->srcDevice), p->srcArray,
                        p->srcXInBytes, p->srcY, 0, p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes, p->Height};
        return copy_box_locked(to, from, p->WidthInBytes, p->Height, 1);
    });
}

CUresult copy_3d(Function function, bool synchronous, const CUDA_MEMCPY3D* p, CUstream stream) {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return work(function, synchronous, stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&] {
        const Side to{p->dstMemoryType, address_of(p->dstMemoryType, p->dstHost, p->dstDevice), p->dstArray,
                      p->dstXInBytes, p->dstY, p->dstZ, p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes,
                      p->dstHeight != 0 ? p->dstHeight : p->Height};
        const Side from{p->srcMemoryType, address_of(p->srcMemoryType, p->srcHost, p->srcDevice), p->srcArray,
                        p->srcXInBytes, p->srcY, p->srcZ, p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes,
                        p->srcHeight != 0 ? p->srcHeight : p->Height};
        return copy_box_locked(to, from, p->WidthInBytes, p->Height, p->Depth);
    });
}

bool is_order(CUmemcpySrcAccessOrder order) {
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

// `failed`: the copy that is at fault, where it is one.
CUresult copy_batch(Function function, const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes,
                    size_t count, const CUmemcpyAttributes* attributes, const size_t* starts, size_t number,
                    size_t& failed, CUstream stream) {
    // "Must not be legacy NULL stream."
    if (to == nullptr || from == nullptr || sizes == nullptr || count == 0 || attributes == nullptr ||
        starts == nullptr || number == 0 || number > count || stream == nullptr || stream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < number; ++i) {
        const bool begins = i == 0 ? starts[0] == 0 : starts[i] > starts[i - 1] && starts[i] < count;
        if (!begins || !is_order(attributes[i].srcAccessOrder)) return CUDA_ERROR_INVALID_VALUE;
    }
    return work(function, false, stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&] {
        for (size_t i = 0; i < count; ++i) {
            const CUresult result = copy_locked(to[i], Place::Either, from[i], Place::Either, sizes[i]);
            if (result != CUDA_SUCCESS) return failed = i, result;
        }
        return CUDA_SUCCESS;
    });
}

// One operand of a batched 3D copy; lengths in its list are elements of `unit` bytes.
Side side_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent, std::uint64_t unit) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        const CUoffset3D& offset = operand.op.array.offset;
        return {CU_MEMORYTYPE_ARRAY, 0, operand.op.array.array, offset.x * unit, offset.y, offset.z, 0, 0};
    }
    const auto& pointer = operand.op.ptr;
    return {CU_MEMORYTYPE_UNIFIED, pointer.ptr, nullptr, 0, 0, 0,
            (pointer.rowLength != 0 ? pointer.rowLength : extent.width) * unit,
            pointer.layerHeight != 0 ? pointer.layerHeight : extent.height};
}

// Bytes of an element of the arrays in a copy, 1 where there are none; 0 when they differ or one is unknown.
std::uint64_t element_of(const CUDA_MEMCPY3D_BATCH_OP& op) {
    std::uint64_t unit = 0;
    for (const CUmemcpy3DOperand* each : {&op.src, &op.dst}) {
        if (each->type == CU_MEMCPY_OPERAND_TYPE_POINTER) continue;
        const Array* array = each->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? find_array_locked(each->op.array.array)
                                                                        : nullptr;
        if (array == nullptr || array->shape.rows == 0) return 0;
        const std::uint64_t bytes = array->shape.row_bytes / array->shape.width;
        if (bytes == 0 || (unit != 0 && unit != bytes)) return 0;
        unit = bytes;
    }
    return unit == 0 ? 1 : unit;
}

CUresult copy_3d_batch(Function function, size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags,
                       size_t& failed, CUstream stream) {
    if (flags != 0 || ops == nullptr || count == 0 || stream == nullptr || stream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return work(function, false, stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&] {
        for (size_t i = 0; i < count; ++i) {
            const CUDA_MEMCPY3D_BATCH_OP& op = ops[i];
            failed = i;
            const std::uint64_t unit = element_of(op);
            if (unit == 0 || op.extent.width == 0 || op.extent.height == 0 || op.extent.depth == 0 ||
                !is_order(op.srcAccessOrder)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const CUresult result = copy_box_locked(side_of(op.dst, op.extent, unit), side_of(op.src, op.extent, unit),
                                                    op.extent.width * unit, op.extent.height, op.extent.depth);
            if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    });
}

CUresult copy(Function function, bool synchronous, CUstream stream, std::uint64_t to, Place to_place,
              std::uint64_t from, Place from_place, std::uint64_t bytes) {
    return work(function, synchronous, stream, CU_GRAPH_NODE_TYPE_MEMCPY,
                [&] { return copy_locked(to, to_place, from, from_place, bytes); });
}

CUresult fill(Function function, bool synchronous, CUstream stream, CUdeviceptr to, std::uint32_t pattern,
              std::uint64_t count, std::uint64_t unit) {
    if (to % unit != 0 || count > driver().settings.va_bytes) return CUDA_ERROR_INVALID_VALUE;
    return work(function, synchronous, stream, CU_GRAPH_NODE_TYPE_MEMSET,
                [&] { return fill_locked(to, pattern, count * unit); });
}

CUresult fill_2d(Function function, bool synchronous, CUstream stream, CUdeviceptr to, size_t pitch,
                 std::uint32_t pattern, size_t width, size_t height, std::uint64_t unit) {
    if (to % unit != 0 || width > driver().settings.va_bytes) return CUDA_ERROR_INVALID_VALUE;
    return work(function, synchronous, stream, CU_GRAPH_NODE_TYPE_MEMSET,
                [&] { return fill_rows(to, pitch, pattern, width * unit, height); });
}

}  // namespace

namespace impl {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    return copy(Function::cuMemcpy, true, nullptr, dst, Place::Either, src, Place::Either, n);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return copy(Function::cuMemcpyAsync, false, stream, dst, Place::Either, src, Place::Either, n);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t n) {
    return copy(Function::cuMemcpyHtoD_v2, true, nullptr, dst, Place::Device, host(src), Place::Either, n);
}
CUresult cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t n) {
    return copy(Function::cuMemcpyDtoH_v2, true, nullptr, host(dst), Place::Either, src, Place::Device, n);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    return copy(Function::cuMemcpyDtoD_v2, true, nullptr, dst, Place::Device, src, Place::Device, n);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t n, CUstream stream) {
    return copy(Function::cuMemcpyHtoDAsync_v2, false, stream, dst, Place::Device, host(src), Place::Either, n);
}
CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t n, CUstream stream) {
    return copy(Function::cuMemcpyDtoHAsync_v2, false, stream, host(dst), Place::Either, src, Place::Device, n);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return copy(Function::cuMemcpyDtoDAsync_v2, false, stream, dst, Place::Device, src, Place::Device, n);
}
CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t n) {
    return copy(Function::cuMemcpyPeer, true, nullptr, dst, Place::Device, src, Place::Device, n);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t n, CUstream stream) {
    return copy(Function::cuMemcpyPeerAsync, false, stream, dst, Place::Device, src, Place::Device, n);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* p) { return copy_2d(Function::cuMemcpy2D_v2, true, p, nullptr); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* p) {
    return copy_2d(Function::cuMemcpy2DUnaligned_v2, true, p, nullptr);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* p, CUstream stream) {
    return copy_2d(Function::cuMemcpy2DAsync_v2, false, p, stream);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* p) { return copy_3d(Function::cuMemcpy3D_v2, true, p, nullptr); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* p, CUstream stream) {
    return copy_3d(Function::cuMemcpy3DAsync_v2, false, p, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char uc, size_t n) {
    return fill(Function::cuMemsetD8_v2, true, nullptr, dst, bytes4(uc), n, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short us, size_t n) {
    return fill(Function::cuMemsetD16_v2, true, nullptr, dst, halves(us), n, 2);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int ui, size_t n) {
    return fill(Function::cuMemsetD32_v2, true, nullptr, dst, ui, n, 4);
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char uc, size_t n, CUstream stream) {
    return fill(Function::cuMemsetD8Async, false, stream, dst, bytes4(uc), n, 1);
}
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short us, size_t n, CUstream stream) {
    return fill(Function::cuMemsetD16Async, false, stream, dst, halves(us), n, 2);
}
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int ui, size_t n, CUstream stream) {
    return fill(Function::cuMemsetD32Async, false, stream, dst, ui, n, 4);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char uc, size_t width, size_t height) {
    return fill_2d(Function::cuMemsetD2D8_v2, true, nullptr, dst, pitch, bytes4(uc), width, height, 1);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short us, size_t width, size_t height) {
    return fill_2d(Function::cuMemsetD2D16_v2, true, nullptr, dst, pitch, halves(us), width, height, 2);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int ui, size_t width, size_t height) {
    return fill_2d(Function::cuMemsetD2D32_v2, true, nullptr, dst, pitch, ui, width, height, 4);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char uc, size_t width, size_t height,
                           CUstream stream) {
    return fill_2d(Function::cuMemsetD2D8Async, false, stream, dst, pitch, bytes4(uc), width, height, 1);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short us, size_t width, size_t height,
                            CUstream stream) {
    return fill_2d(Function::cuMemsetD2D16Async, false, stream, dst, pitch, halves(us), width, height, 2);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int ui, size_t width, size_t height,
                            CUstream stream) {
    return fill_2d(Function::cuMemsetD2D32Async, false, stream, dst, pitch, ui, width, height, 4);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream) {
    size_t failed = 0;
    return copy_batch(Function::cuMemcpyBatchAsync_v2, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failed,
                      hStream);
}
CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                            CUstream hStream) {
    size_t failed = SIZE_MAX;
    const CUresult result = copy_batch(Function::cuMemcpyBatchAsync, dsts, srcs, sizes, count, attrs, attrsIdxs,
                                       numAttrs, failed, hStream);
    if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
    return result;
}
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
                                 CUstream hStream) {
    size_t failed = 0;
    return copy_3d_batch(Function::cuMemcpy3DBatchAsync_v2, numOps, opList, flags, failed, hStream);
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
    size_t failed = SIZE_MAX;
    const CUresult result = copy_3d_batch(Function::cuMemcpy3DBatchAsync, numOps, opList, flags, failed, hStream);
    if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
    return result;
}

}  // namespace impl
}  // namespace fragscope::sim
