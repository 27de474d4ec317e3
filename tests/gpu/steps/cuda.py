"""The driver API by ctypes: no more than the questions need. A call that fails is a Refused with its number and name."""
import ctypes as c

MIB = 1 << 20
SUCCESS, OUT_OF_MEMORY, NOT_SUPPORTED = 0, 2, 801


class Refused(Exception):
    def __init__(self, function, result, name):
        super().__init__(f"{function}: {name} ({result})")
        self.result = result


class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]


class AllocationProperties(c.Structure):  # CUmemAllocationProp
    _fields_ = [("type", c.c_int), ("handle_types", c.c_int), ("location", Location), ("win32", c.c_void_p),
                ("compression", c.c_ubyte), ("rdma", c.c_ubyte), ("usage", c.c_ushort), ("reserved", c.c_ubyte * 4)]


class Access(c.Structure):  # CUmemAccessDesc
    _fields_ = [("location", Location), ("flags", c.c_int)]


class MulticastProperties(c.Structure):  # CUmulticastObjectProp
    _fields_ = [("devices", c.c_uint), ("size", c.c_size_t), ("handle_types", c.c_ulonglong), ("flags", c.c_ulonglong)]


DEVICE, HOST_NUMA = 1, 3  # CU_MEM_LOCATION_TYPE_…
MINIMUM, RECOMMENDED = 0, 1


class Driver:
    """`driver.cuMemAlloc_v2(…)` calls and raises; `driver.result("cuMemAlloc_v2", …)` returns the number."""

    def __init__(self, device=0, context=True):
        self.library = c.CDLL("libcuda.so.1")
        self.device = device
        self.cuInit(0)
        if context:
            primary = c.c_void_p()
            self.cuDevicePrimaryCtxRetain(c.byref(primary), device)
            self.cuCtxSetCurrent(primary)

    def result(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def has(self, name):
        return hasattr(self.library, name)

    def name_of(self, result):
        text = c.c_char_p()
        if self.library.cuGetErrorName(result, c.byref(text)) != SUCCESS or not text.value:
            return "an error without a name"
        return text.value.decode()

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result != SUCCESS:
                raise Refused(name, result, self.name_of(result))
        return call

    def free_and_total(self):
        free, total = c.c_size_t(), c.c_size_t()
        self.cuMemGetInfo_v2(c.byref(free), c.byref(total))
        return free.value, total.value

    def allocate(self, size):
        address = c.c_uint64()
        self.cuMemAlloc_v2(c.byref(address), c.c_size_t(size))
        return address.value

    def release(self, address):
        self.cuMemFree_v2(c.c_uint64(address))

    def attribute(self, number):
        value = c.c_int()
        self.cuDeviceGetAttribute(c.byref(value), number, self.device)
        return value.value

    def properties(self, location=DEVICE, identity=None):
        made = AllocationProperties()
        made.type = 1  # pinned
        made.location = Location(location, self.device if identity is None else identity)
        return made

    def granularity(self, which=MINIMUM, location=DEVICE, identity=None):
        size = c.c_size_t()
        made = self.properties(location, identity)
        self.cuMemGetAllocationGranularity(c.byref(size), c.byref(made), which)
        return size.value

    def create(self, size):
        handle, made = c.c_uint64(), self.properties()
        self.cuMemCreate(c.byref(handle), c.c_size_t(size), c.byref(made), c.c_uint64(0))
        return handle.value

    def reserve(self, size, alignment=0):
        address = c.c_uint64()
        self.cuMemAddressReserve(c.byref(address), c.c_size_t(size), c.c_size_t(alignment), c.c_uint64(0), c.c_uint64(0))
        return address.value

    def map(self, address, size, handle):
        self.cuMemMap(c.c_uint64(address), c.c_size_t(size), c.c_size_t(0), c.c_uint64(handle), c.c_uint64(0))

    def allow(self, address, size):
        access = Access(Location(DEVICE, self.device), 3)
        self.cuMemSetAccess(c.c_uint64(address), c.c_size_t(size), c.byref(access), c.c_size_t(1))

    def unmap(self, address, size):
        self.cuMemUnmap(c.c_uint64(address), c.c_size_t(size))

    def stream(self):
        made = c.c_void_p()
        self.cuStreamCreate(c.byref(made), 1)  # does not wait for the default stream
        return made

    def pool(self):
        made = c.c_void_p()
        self.cuDeviceGetDefaultMemPool(c.byref(made), self.device)
        return made

    def pool_attribute(self, pool, number):
        value = c.c_uint64()
        self.cuMemPoolGetAttribute(pool, number, c.byref(value))
        return value.value


# A kernel that does nothing, for all devices from compute capability 5.2 on: the driver translates it.
PTX = b""".version 6.4
.target sm_52
.address_size 64
.visible .global .align 8 .b8 fragscope_bytes[1048576];
.visible .entry fragscope_nothing()
{
    ret;
}
.visible .entry fragscope_stack(.param .u64 where)
{
    .local .align 8 .b8 room[16384];
    .reg .b64 %a<4>;
    ld.param.u64 %a1, [where];
    mov.u64 %a2, room;
    cvta.local.u64 %a3, %a2;
    st.local.u64 [%a2], %a1;
    st.global.u64 [%a1], %a3;
    ret;
}
"""
