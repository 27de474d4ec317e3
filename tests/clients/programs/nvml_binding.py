"""Asks NVIDIA's binding for all that it tells of device 0 while this process holds 8 MiB there; one JSON object."""
import ctypes
import json
import os

import pynvml

driver = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(8 << 20)) == 0
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
uuid = pynvml.nvmlDeviceGetUUID(device)
assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == 0
fabric = pynvml.c_nvmlGpuFabricInfoV_t()
pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(fabric))


def fields(structure, *names):
    return {name: getattr(structure, name) for name in names}


told = {
    "pid": os.getpid(), "driver": [free.value, total.value], "uuid": uuid, "name": pynvml.nvmlDeviceGetName(device),
    "bus": pynvml.nvmlDeviceGetPciInfo(device).busId,
    "memory": fields(pynvml.nvmlDeviceGetMemoryInfo(device), "total", "free", "used"),
    "memory_v2": fields(pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2), "total", "reserved", "free", "used"),
    "processes": {version: [[p.pid, p.usedGpuMemory] for p in ask(device)] for version, ask in
                  (("v2", pynvml.nvmlDeviceGetComputeRunningProcesses_v2), ("v3", pynvml.nvmlDeviceGetComputeRunningProcesses_v3))},
    "mig": pynvml.nvmlDeviceGetMigMode(device), "fabric_state": fabric.state,
}
print(json.dumps(told), flush=True)
