"""Which machine this is, and what its management library says beside the driver."""
import ctypes as c
import os
import platform

from .cuda import MIB, Driver

# CUdevice_attribute numbers of cuda.h that say what memory functions there are.
ATTRIBUTES = {"compute_capability_major": 75, "compute_capability_minor": 76, "multiprocessors": 16,
              "virtual_memory_management": 102, "memory_pools": 115, "multicast": 132, "managed_memory": 83,
              "concurrent_managed_access": 89, "posix_handles": 103, "fabric_handles": 128, "host_numa_id": 134}


def text(function, *arguments, size=96):
    buffer = c.create_string_buffer(size)
    return buffer.value.decode(errors="replace") if function(*arguments, buffer, c.c_uint(size)) == 0 else None


def machine(_run):
    driver = Driver(context=False)
    version, count = c.c_int(), c.c_int()
    driver.cuDriverGetVersion(c.byref(version))
    driver.cuDeviceGetCount(c.byref(count))
    devices = []
    for ordinal in range(count.value):
        driver.device = ordinal
        name, total, bus = c.create_string_buffer(128), c.c_size_t(), c.create_string_buffer(32)
        driver.cuDeviceGetName(name, 128, ordinal)
        driver.cuDeviceTotalMem_v2(c.byref(total), ordinal)
        driver.cuDeviceGetPCIBusId(bus, 32, ordinal)
        devices.append({"name": name.value.decode(), "total_bytes": total.value, "bus": bus.value.decode(),
                        **{key: driver.attribute(number) for key, number in ATTRIBUTES.items()}})
    return {"summary": f"CUDA {version.value // 1000}.{version.value % 1000 // 10}, "
                       + ", ".join(f"{d['name']} ({d['total_bytes'] // MIB} MiB)" for d in devices),
            "driver_version": version.value, "devices": devices, "kernel": platform.release(),
            "c_library": " ".join(platform.libc_ver()), "python": platform.python_version(), "cores": os.cpu_count()}


class Memory(c.Structure):
    _fields_ = [("total", c.c_ulonglong), ("free", c.c_ulonglong), ("used", c.c_ulonglong)]


class MemoryV2(c.Structure):
    _fields_ = [("version", c.c_uint), ("total", c.c_ulonglong), ("reserved", c.c_ulonglong), ("free", c.c_ulonglong),
                ("used", c.c_ulonglong)]


class Process(c.Structure):
    _fields_ = [("pid", c.c_uint), ("used", c.c_ulonglong), ("gpu_instance", c.c_uint), ("compute_instance", c.c_uint)]


class Library:
    def __init__(self):
        self.library = c.CDLL("libnvidia-ml.so.1")
        error = self.library.nvmlInit_v2()
        if error != 0:
            raise RuntimeError(f"nvmlInit_v2: error {error}")

    def device(self, bus):
        handle = c.c_void_p()
        error = self.library.nvmlDeviceGetHandleByPciBusId_v2(bus, c.byref(handle))
        if error != 0:
            raise RuntimeError(f"nvmlDeviceGetHandleByPciBusId_v2: error {error}")
        return handle

    def account(self, handle):
        """All numbers that it tells of the device, with the errors of those that it does not tell."""
        first, second = Memory(), MemoryV2()
        second.version = c.sizeof(MemoryV2) | 2 << 24
        out = {"v1": self.library.nvmlDeviceGetMemoryInfo(handle, c.byref(first))}
        if out["v1"] == 0:
            out["v1"] = {"total": first.total, "free": first.free, "used": first.used}
        if hasattr(self.library, "nvmlDeviceGetMemoryInfo_v2"):
            out["v2"] = self.library.nvmlDeviceGetMemoryInfo_v2(handle, c.byref(second))
            if out["v2"] == 0:
                out["v2"] = {key: getattr(second, key) for key in ("total", "reserved", "free", "used")}
        # The form of an entry is a question of its own: whatever the library wrote comes back as it is.
        room = 64
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            if not hasattr(self.library, name):
                continue
            count, buffer = c.c_uint(room), (c.c_ubyte * (room * 32))(*([0xA5] * (room * 32)))
            error = getattr(self.library, name)(handle, c.byref(count), buffer)
            if error != 0:
                out[name] = error
                continue
            written = max((i + 1 for i, byte in enumerate(buffer) if byte != 0xA5), default=0)
            size = next((s for s in (16, 24, 32) if written <= count.value * s), 24)
            entries = [Process.from_buffer_copy(bytes(buffer[i * size:i * size + size]).ljust(24, b"\0"))
                       for i in range(min(count.value, room))]
            out[name] = {"entry_bytes": size, "processes": [{"pid": e.pid, "used": e.used} for e in entries]}
        return out


def nvml(run):
    library = Library()
    driver = Driver(context=False)
    bus = c.create_string_buffer(32)
    driver.cuDeviceGetPCIBusId(bus, 32, 0)
    handle = library.device(bus)
    moments = {"before the context": library.account(handle)}

    def moment(name):
        free, total = driver.free_and_total()
        moments[name] = {**library.account(handle), "cuMemGetInfo": {"free": free, "total": total}}

    driver = Driver()
    moment("context")
    address = driver.allocate(1024 * MIB)
    moment("1 GiB by cuMemAlloc")
    driver.release(address)
    physical = driver.create(1024 * MIB)
    moment("1 GiB by cuMemCreate")
    driver.cuMemRelease(c.c_uint64(physical))
    moment("given back")
    managed, size = c.c_uint64(), 16 * MIB if run.simulated else 1024 * MIB  # the simulation writes real bytes
    if driver.result("cuMemAllocManaged", c.byref(managed), c.c_size_t(size), 1) == 0:
        driver.cuMemsetD8_v2(managed, c.c_ubyte(1), c.c_size_t(size))
        driver.cuCtxSynchronize()
        moment(f"{size // MIB} MiB managed, written on the device")
        driver.cuMemFree_v2(managed)

    last = moments["given back"]
    newest = last.get("v2") or last["v1"]
    lists = [value for key, value in last.items() if key.startswith("nvml") and isinstance(value, dict)]
    pids = [entry["pid"] for each in lists[:1] for entry in each["processes"]]
    summary = "NVML tells no memory"
    if isinstance(newest, dict):
        summary = (f"NVML's total is {(newest['total'] - last['cuMemGetInfo']['total']) / MIB:+.1f} MiB, its free "
                   f"{(newest['free'] - last['cuMemGetInfo']['free']) / MIB:+.1f} MiB against cuMemGetInfo's")
    return {"summary": summary + f"; own pid {'is' if os.getpid() in pids else 'is not'} in its list of {len(pids)}",
            "driver_version": text(library.library.nvmlSystemGetDriverVersion),
            "library_version": text(library.library.nvmlSystemGetNVMLVersion),
            "own_pid": os.getpid(), "own_pid_namespace": os.readlink("/proc/self/ns/pid"), "moments": moments}
