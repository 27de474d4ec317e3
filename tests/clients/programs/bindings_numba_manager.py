"""A memory manager of the program's own under numba-cuda (its documented interface): one block of the device, cut up."""
import numpy
from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer
from cuda.bindings import driver as cu

from claims import got, say

BLOCK = 32 << 20


class Bump(HostOnlyCUDAMemoryManager):
    """Gives pieces of one block and never takes them back."""

    def __init__(self, *words, **named):
        super().__init__(*words, **named)
        self.base = self.used = 0

    def initialize(self):
        super().initialize()

    def memalloc(self, size):
        if not self.base:
            error, pointer = cu.cuMemAlloc(BLOCK)
            assert error == cu.CUresult.CUDA_SUCCESS, error
            self.base = int(pointer)
            got("linear_acquired", self.base, BLOCK)
        place = self.base + self.used
        self.used += -(-size // 256) * 256
        return MemoryPointer(self.context, cu.CUdeviceptr(place), size, finalizer=None)

    def get_memory_info(self):
        return MemoryInfo(free=BLOCK - self.used, total=BLOCK)

    def get_ipc_handle(self, memory):
        raise NotImplementedError

    def defer_cleanup(self):
        return super().defer_cleanup()

    @property
    def interface_version(self):
        return 1


def main():
    cuda.set_memory_manager(Bump)
    first = cuda.to_device(numpy.arange(1000, dtype=numpy.int64))
    second = cuda.device_array(1 << 20, dtype=numpy.uint8)
    assert (first.copy_to_host() == numpy.arange(1000)).all()
    pinned = cuda.pinned_array(4096, dtype=numpy.uint8)
    got("host_acquired", pinned.ctypes.data, pinned.nbytes)
    base = first.device_ctypes_pointer.value
    say(inside=second.device_ctypes_pointer.value - base, free=cuda.current_context().get_memory_info().free)


main()
