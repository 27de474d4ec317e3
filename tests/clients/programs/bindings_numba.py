"""numba-cuda's memory functions, as JSON lines of what each array is made of."""
import numpy
from numba import cuda

from claims import got, say


def pointer(array):
    return array.device_ctypes_pointer.value


def info():
    free, total = cuda.current_context().get_memory_info()
    say(free=free, total=total)


def main():
    assert cuda.is_available()
    context = cuda.current_context()
    info()
    empty = cuda.device_array((1000, 1000), dtype=numpy.float32)
    got("linear_acquired", pointer(empty), empty.alloc_size)
    like = cuda.device_array_like(numpy.zeros((3, 5), dtype=numpy.int64))
    got("linear_acquired", pointer(like), like.alloc_size)
    values = numpy.arange(1 << 19, dtype=numpy.int32)
    copied = cuda.to_device(values)
    got("linear_acquired", pointer(copied), copied.alloc_size)
    assert (copied.copy_to_host() == values).all()
    pinned = cuda.pinned_array(3000, dtype=numpy.uint8)
    got("host_acquired", pinned.ctypes.data, pinned.nbytes)
    mapped = cuda.mapped_array(5000, dtype=numpy.uint8)
    got("host_acquired", mapped.ctypes.data, mapped.nbytes)
    managed = cuda.managed_array(7 << 20, dtype=numpy.uint8)
    managed[:] = 7
    got("managed_acquired", pointer(managed), managed.nbytes)
    own = numpy.zeros(1 << 20, dtype=numpy.uint8)
    with cuda.pinned(own):  # registered, and unregistered at the end
        got("host_registered", own.ctypes.data, own.nbytes)
    info()

    # Frees are put off: until the end of the block, and then until enough of them are pending.
    with cuda.defer_cleanup():
        del empty, like
        info()
    context.memory_manager.deallocations.clear()
    info()
    stream = cuda.stream()
    on_stream = cuda.to_device(values, stream=stream)
    got("linear_acquired", pointer(on_stream), on_stream.alloc_size)
    stream.synchronize()
    try:
        cuda.device_array(1 << 40, dtype=numpy.uint8)
    except Exception as refused:  # noqa: BLE001 - what it is called is part of the result
        say(refused=1 << 40, why=type(refused).__name__)
    del copied, pinned, mapped, managed, on_stream
    context.memory_manager.deallocations.clear()
    info()
    cuda.close()  # ends the primary context


main()
