// Copies and fills. Compiled twice (see stream_mode.h). One-dimensional copies use the driver function of
// their direction, so that a tracer sees the same calls as under NVIDIA's runtime; two- and three-dimensional
// ones are described to the driver by a structure.
#include "arrays.h"
#include "stream_mode.h"
#include "symbols.h"

using namespace fragscope::simrt;

namespace {

// What the direction of a copy says about one of its ends.
CUmemorytype memory_type(cudaMemcpyKind kind, bool is_source) {
    switch (kind) {
        case cudaMemcpyHostToHost:
            return CU_MEMORYTYPE_HOST;
        case cudaMemcpyHostToDevice:
            return is_source ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        case cudaMemcpyDeviceToHost:
            return is_source ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        case cudaMemcpyDeviceToDevice:
            return CU_MEMORYTYPE_DEVICE;
        default:
            return CU_MEMORYTYPE_UNIFIED;
    }
}

bool is_kind(cudaMemcpyKind kind) {
    return kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost ||
           kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

// One end of a copy, in the driver's terms, as both of its descriptor structures need it.
struct Place {
    CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
    void* host = nullptr;
    CUdeviceptr device = 0;
    CUarray array = nullptr;
    size_t pitch = 0;
    size_t rows = 0;
    size_t x_bytes = 0;
    size_t y = 0;
    size_t z = 0;
};

Place pointer_place(const void* pointer, size_t pitch, cudaMemcpyKind kind, bool is_source) {
    Place place;
    place.type = memory_type(kind, is_source);
    if (place.type == CU_MEMORYTYPE_HOST)
        place.host = const_cast<void*>(pointer);
    else
        place.device = to_device(pointer);
    place.pitch = pitch;
    return place;
}

Place array_place(cudaArray_const_t array, size_t x_bytes, size_t y) {
    Place place;
    place.type = CU_MEMORYTYPE_ARRAY;
    place.array = to_driver_array(const_cast<cudaArray_t>(array));
    place.x_bytes = x_bytes;
    place.y = y;
    return place;
}

CUDA_MEMCPY2D plane(const Place& from, const Place& to, size_t width, size_t height) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = from.type;
    copy.srcHost = from.host;
    copy.srcDevice = from.device;
    copy.srcArray = from.array;
    copy.srcPitch = from.pitch;
    copy.srcXInBytes = from.x_bytes;
    copy.srcY = from.y;
    copy.dstMemoryType = to.type;
    copy.dstHost = to.host;
    copy.dstDevice = to.device;
    copy.dstArray = to.array;
    copy.dstPitch = to.pitch;
    copy.dstXInBytes = to.x_bytes;
    copy.dstY = to.y;
    copy.WidthInBytes = width;
    copy.Height = height;
    return copy;
}

cudaError_t copy_plane(const Place& from, const Place& to, size_t width, size_t height, cudaMemcpyKind kind) {
    if (!is_kind(kind)) return record(cudaErrorInvalidMemcpyDirection);
    if (width == 0 || height == 0) return cudaSuccess;
    const CUDA_MEMCPY2D copy = plane(from, to, width, height);
    return call_on_stream(&StreamFunctions::Memcpy2DUnaligned, &copy);
}

cudaError_t copy_plane_async(const Place& from, const Place& to, size_t width, size_t height,
                             cudaMemcpyKind kind, cudaStream_t stream) {
    if (!is_kind(kind)) return record(cudaErrorInvalidMemcpyDirection);
    if (width == 0 || height == 0) return cudaSuccess;
    const CUDA_MEMCPY2D copy = plane(from, to, width, height);
    return call_on_stream(&StreamFunctions::Memcpy2DAsync, &copy, stream);
}

// In a three-dimensional copy positions and extents count elements as soon as an array takes part, bytes
// otherwise.
cudaError_t describe_box(const cudaMemcpy3DParms& p, CUDA_MEMCPY3D* box) {
    if (!is_kind(p.kind)) return record(cudaErrorInvalidMemcpyDirection);
    size_t unit = 1;
    const cudaArray_t array = p.srcArray != nullptr ? p.srcArray : p.dstArray;
    if (array != nullptr)
        if (const cudaError_t error = array_element_bytes(array, &unit); error != cudaSuccess) return error;
    *box = {};
    if (p.srcArray != nullptr) {
        box->srcMemoryType = CU_MEMORYTYPE_ARRAY;
        box->srcArray = to_driver_array(p.srcArray);
        box->srcXInBytes = p.srcPos.x * unit;
    } else {
        const Place from = pointer_place(p.srcPtr.ptr, p.srcPtr.pitch, p.kind, true);
        box->srcMemoryType = from.type;
        box->srcHost = from.host;
        box->srcDevice = from.device;
        box->srcXInBytes = p.srcPos.x;
    }
    if (p.dstArray != nullptr) {
        box->dstMemoryType = CU_MEMORYTYPE_ARRAY;
        box->dstArray = to_driver_array(p.dstArray);
        box->dstXInBytes = p.dstPos.x * unit;
    } else {
        const Place to = pointer_place(p.dstPtr.ptr, p.dstPtr.pitch, p.kind, false);
        box->dstMemoryType = to.type;
        box->dstHost = to.host;
        box->dstDevice = to.device;
        box->dstXInBytes = p.dstPos.x;
    }
    box->srcPitch = p.srcPtr.pitch;
    box->srcHeight = p.srcPtr.ysize;
    box->srcY = p.srcPos.y;
    box->srcZ = p.srcPos.z;
    box->dstPitch = p.dstPtr.pitch;
    box->dstHeight = p.dstPtr.ysize;
    box->dstY = p.dstPos.y;
    box->dstZ = p.dstPos.z;
    box->WidthInBytes = p.extent.width * unit;
    box->Height = p.extent.height;
    box->Depth = p.extent.depth;
    return cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
    if (!is_kind(kind)) return record(cudaErrorInvalidMemcpyDirection);
    if (count == 0) return cudaSuccess;
    if (dst == nullptr || src == nullptr) return record(cudaErrorInvalidValue);
    switch (kind) {
        case cudaMemcpyHostToDevice:
            return call_on_stream(&StreamFunctions::MemcpyHtoD, to_device(dst), src, count);
        case cudaMemcpyDeviceToHost:
            return call_on_stream(&StreamFunctions::MemcpyDtoH, dst, to_device(src), count);
        case cudaMemcpyDeviceToDevice:
            return call_on_stream(&StreamFunctions::MemcpyDtoD, to_device(dst), to_device(src), count);
        default:
            return call_on_stream(&StreamFunctions::Memcpy, to_device(dst), to_device(src), count);
    }
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (!is_kind(kind)) return record(cudaErrorInvalidMemcpyDirection);
    if (count == 0) return cudaSuccess;
    if (dst == nullptr || src == nullptr) return record(cudaErrorInvalidValue);
    switch (kind) {
        case cudaMemcpyHostToDevice:
            return call_on_stream(&StreamFunctions::MemcpyHtoDAsync, to_device(dst), src, count, stream);
        case cudaMemcpyDeviceToHost:
            return call_on_stream(&StreamFunctions::MemcpyDtoHAsync, dst, to_device(src), count, stream);
        case cudaMemcpyDeviceToDevice:
            return call_on_stream(&StreamFunctions::MemcpyDtoDAsync, to_device(dst), to_device(src), count,
                                  stream);
        default:
            return call_on_stream(&StreamFunctions::MemcpyAsync, to_device(dst), to_device(src), count,
                                  stream);
    }
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t count, size_t offset,
                               cudaMemcpyKind kind) {
    char* target = nullptr;
    if (const cudaError_t error = symbol_place(symbol, offset, count, &target); error != cudaSuccess)
        return record(error);
    return cudaMemcpy(target, src, count, kind);
}

cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, size_t count, size_t offset,
                                 cudaMemcpyKind kind) {
    char* source = nullptr;
    if (const cudaError_t error = symbol_place(symbol, offset, count, &source); error != cudaSuccess)
        return record(error);
    return cudaMemcpy(dst, source, count, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, size_t count, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
    char* target = nullptr;
    if (const cudaError_t error = symbol_place(symbol, offset, count, &target); error != cudaSuccess)
        return record(error);
    return cudaMemcpyAsync(target, src, count, kind, stream);
}

cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t count, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
    char* source = nullptr;
    if (const cudaError_t error = symbol_place(symbol, offset, count, &source); error != cudaSuccess)
        return record(error);
    return cudaMemcpyAsync(dst, source, count, kind, stream);
}

cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
    return copy_plane(pointer_place(src, spitch, kind, true), pointer_place(dst, dpitch, kind, false), width,
                      height, kind);
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_plane_async(pointer_place(src, spitch, kind, true), pointer_place(dst, dpitch, kind, false),
                            width, height, kind, stream);
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src,
                                size_t spitch, size_t width, size_t height, cudaMemcpyKind kind) {
    return copy_plane(pointer_place(src, spitch, kind, true), array_place(dst, wOffset, hOffset), width,
                      height, kind);
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src,
                                     size_t spitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
    return copy_plane_async(pointer_place(src, spitch, kind, true), array_place(dst, wOffset, hOffset), width,
                            height, kind, stream);
}

cudaError_t cudaMemcpy2DFromArray(void* dst, size_t dpitch, cudaArray_const_t src, size_t wOffset,
                                  size_t hOffset, size_t width, size_t height, cudaMemcpyKind kind) {
    return copy_plane(array_place(src, wOffset, hOffset), pointer_place(dst, dpitch, kind, false), width,
                      height, kind);
}

cudaError_t cudaMemcpy2DFromArrayAsync(void* dst, size_t dpitch, cudaArray_const_t src, size_t wOffset,
                                       size_t hOffset, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
    return copy_plane_async(array_place(src, wOffset, hOffset), pointer_place(dst, dpitch, kind, false),
                            width, height, kind, stream);
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst,
                                     cudaArray_const_t src, size_t wOffsetSrc, size_t hOffsetSrc,
                                     size_t width, size_t height, cudaMemcpyKind kind) {
    return copy_plane(array_place(src, wOffsetSrc, hOffsetSrc), array_place(dst, wOffsetDst, hOffsetDst),
                      width, height, kind);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
    CUDA_MEMCPY3D box = {};
    if (p == nullptr) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = describe_box(*p, &box); error != cudaSuccess) return error;
    return call_on_stream(&StreamFunctions::Memcpy3D, &box);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
    CUDA_MEMCPY3D box = {};
    if (p == nullptr) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = describe_box(*p, &box); error != cudaSuccess) return error;
    return call_on_stream(&StreamFunctions::Memcpy3DAsync, &box, stream);
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
    if (count == 0) return cudaSuccess;
    return call_on_stream(&StreamFunctions::MemsetD8, to_device(devPtr), static_cast<unsigned char>(value),
                          count);
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    return call_on_stream(&StreamFunctions::MemsetD8Async, to_device(devPtr),
                          static_cast<unsigned char>(value), count, stream);
}

cudaError_t cudaMemset2D(void* devPtr, size_t pitch, int value, size_t width, size_t height) {
    if (width == 0 || height == 0) return cudaSuccess;
    return call_on_stream(&StreamFunctions::MemsetD2D8, to_device(devPtr), pitch,
                          static_cast<unsigned char>(value), width, height);
}

cudaError_t cudaMemset2DAsync(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    if (width == 0 || height == 0) return cudaSuccess;
    return call_on_stream(&StreamFunctions::MemsetD2D8Async, to_device(devPtr), pitch,
                          static_cast<unsigned char>(value), width, height, stream);
}

static_assert(sizeof(cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes));

// The driver's signature of this ABI takes what it does not change without const.
// Until CUDA 12.8, also says which operation of the batch could not be done.
#if CUDA_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs, const size_t* sizes,
                                 size_t count, cudaMemcpyAttributes* attrs, size_t* attrsIdxs,
                                 size_t numAttrs, cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::MemcpyBatchAsync,
                          reinterpret_cast<CUdeviceptr*>(const_cast<void**>(dsts)),
                          reinterpret_cast<CUdeviceptr*>(const_cast<void**>(const_cast<const void**>(srcs))),
                          const_cast<size_t*>(sizes), count, reinterpret_cast<CUmemcpyAttributes*>(attrs),
                          attrsIdxs, numAttrs, stream);
}

cudaError_t cudaMemcpy3DBatchAsync(size_t numOps, cudaMemcpy3DBatchOp* opList, unsigned long long flags,
                                   cudaStream_t stream) {
    static_assert(sizeof(cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP));
    return call_on_stream(&StreamFunctions::Memcpy3DBatchAsync, numOps,
                          reinterpret_cast<CUDA_MEMCPY3D_BATCH_OP*>(opList), flags, stream);
}
#else
cudaError_t cudaMemcpyBatchAsync(void** dsts, void** srcs, size_t* sizes, size_t count,
                                 cudaMemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                                 size_t* failIdx, cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::MemcpyBatchAsync, reinterpret_cast<CUdeviceptr*>(dsts),
                          reinterpret_cast<CUdeviceptr*>(srcs), sizes, count,
                          reinterpret_cast<CUmemcpyAttributes*>(attrs), attrsIdxs, numAttrs, failIdx, stream);
}

cudaError_t cudaMemcpy3DBatchAsync(size_t numOps, cudaMemcpy3DBatchOp* opList, size_t* failIdx,
                                   unsigned long long flags, cudaStream_t stream) {
    static_assert(sizeof(cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP));
    return call_on_stream(&StreamFunctions::Memcpy3DBatchAsync, numOps,
                          reinterpret_cast<CUDA_MEMCPY3D_BATCH_OP*>(opList), failIdx, flags, stream);
}
#endif
