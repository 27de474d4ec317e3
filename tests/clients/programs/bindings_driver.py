"""cuda.bindings.driver: every way to get device memory, as JSON lines of what was asked for and where it was given."""
import os

from cuda.bindings import driver as cu

from claims import got, say


def call(function, *arguments):
    """The results of a driver call; an error is an exception."""
    error, *results = function(*arguments)
    if error != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {error.name}")
    return results[0] if len(results) == 1 else results


def given(kind, where, size):
    got(kind, where, size)
    return where


def linear():
    # Also a failure in the middle: it must leave nothing behind.
    sizes = (1, 512, 513, 1 << 20, (1 << 20) + 1, 3 << 20, 64 << 20)
    pointers = [given("linear_acquired", call(cu.cuMemAlloc, size), size) for size in sizes]
    error, _ = cu.cuMemAlloc(1 << 50)
    assert error == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, error
    say(refused=1 << 50, free_total=call(cu.cuMemGetInfo))
    call(cu.cuMemsetD8, pointers[3], 0x5A, 1 << 20)
    back = bytearray(16)
    call(cu.cuMemcpyDtoH, back, pointers[3], len(back))
    assert back == b"\x5a" * 16
    pointer, pitch = call(cu.cuMemAllocPitch, 1000, 7, 4)
    got("pitch_acquired", pointer, 0, pitch=pitch)
    managed = given("managed_acquired", call(cu.cuMemAllocManaged, 5 << 20, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value),
                  5 << 20)
    for each in (*pointers[:4], pointer, managed):
        call(cu.cuMemFree, each)
    return pointers[4:]


def host():
    pinned = given("host_acquired", call(cu.cuMemHostAlloc, 3 << 20, cu.CU_MEMHOSTALLOC_PORTABLE), 3 << 20)
    old = given("host_acquired", call(cu.cuMemAllocHost, 4096), 4096)
    call(cu.cuMemFreeHost, old)
    call(cu.cuMemFreeHost, pinned)


def virtual(device):
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(device)
    shareable = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.requestedHandleTypes = shareable
    unit = call(cu.cuMemGetAllocationGranularity, properties,
                cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    place = given("reserved", call(cu.cuMemAddressReserve, 16 * unit, 0, 0, 0), 16 * unit)
    handles = []
    for i in range(3):
        handle = call(cu.cuMemCreate, unit * (i + 1), properties, 0)
        got("handle_created", int(handle), unit * (i + 1))
        call(cu.cuMemMap, int(place) + 4 * i * unit, unit * (i + 1), 0, handle, 0)
        got("mapped", int(place) + 4 * i * unit, unit * (i + 1))
        handles.append(handle)
    access = cu.CUmemAccessDesc()
    access.location = properties.location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call(cu.cuMemSetAccess, int(place) + 4 * unit, 2 * unit, [access], 1)
    descriptor = call(cu.cuMemExportToShareableHandle, handles[0], shareable, 0)
    again = call(cu.cuMemImportFromShareableHandle, int(descriptor), shareable)
    os.close(int(descriptor))
    for handle in (again, *handles):
        call(cu.cuMemRelease, handle)
    for i in (0, 2):
        call(cu.cuMemUnmap, int(place) + 4 * i * unit, unit * (i + 1))
    return place, unit


def pools(device, stream):
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(device)
    pool = call(cu.cuMemPoolCreate, properties)
    got("pool_created", int(pool), 0)
    attribute = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    call(cu.cuMemPoolSetAttribute, pool, attribute, cu.cuuint64_t(16 << 20))
    own = [given("pool_acquired", call(cu.cuMemAllocFromPoolAsync, size, pool, stream), size)
           for size in (100, 5 << 20, 40 << 20)]
    default = [given("pool_acquired", call(cu.cuMemAllocAsync, size, stream), size) for size in (1000, 2 << 20)]
    for pointer in (*own, default[0]):
        call(cu.cuMemFreeAsync, pointer, stream)
    call(cu.cuStreamSynchronize, stream)
    call(cu.cuMemPoolTrimTo, pool, 0)
    call(cu.cuMemPoolDestroy, pool)
    return default[1]


def main():
    call(cu.cuInit, 0)
    device = call(cu.cuDeviceGet, 0)
    context = call(cu.cuDevicePrimaryCtxRetain, device)
    call(cu.cuCtxSetCurrent, context)
    stream = call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
    kept = linear()
    host()
    place, unit = virtual(device)
    pooled = pools(device, stream)
    say(free_total=call(cu.cuMemGetInfo))
    call(cu.cuMemUnmap, int(place) + 4 * unit, 2 * unit)
    call(cu.cuMemAddressFree, place, 16 * unit)
    call(cu.cuMemFree, pooled)
    for pointer in kept[:-1]:  # the last one is left: the program's leak
        call(cu.cuMemFree, pointer)
    call(cu.cuStreamDestroy, stream)


main()
