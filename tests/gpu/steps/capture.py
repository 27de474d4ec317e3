"""Queries while a stream is captured: which of them are refused, and which spoil the capture."""
import ctypes as c

from .cuda import MIB, Driver

MODES = {"global": 0, "thread_local": 1, "relaxed": 2}


def calls_of(driver, address, stream, pool):
    """Name -> what it does, which returns the driver's number. None of it changes anything."""
    def pointer_attribute(number, kind):
        return lambda: driver.result("cuPointerGetAttribute", c.byref(kind()), number, c.c_uint64(address))

    def granularity():
        size, made = c.c_size_t(), driver.properties()
        return driver.result("cuMemGetAllocationGranularity", c.byref(size), c.byref(made), 0)

    def reserve():
        base = c.c_uint64()
        result = driver.result("cuMemAddressReserve", c.byref(base), c.c_size_t(64 * MIB), c.c_size_t(0), c.c_uint64(0),
                               c.c_uint64(0))
        if result == 0:
            driver.result("cuMemAddressFree", base, c.c_size_t(64 * MIB))
        return result

    def create():
        handle, made = c.c_uint64(), driver.properties()
        result = driver.result("cuMemCreate", c.byref(handle), c.c_size_t(driver.granularity()), c.byref(made), c.c_uint64(0))
        if result == 0:
            driver.result("cuMemRelease", handle)
        return result

    def allocate():
        block = c.c_uint64()
        result = driver.result("cuMemAlloc_v2", c.byref(block), c.c_size_t(512))
        if result == 0:
            driver.result("cuMemFree_v2", block)
        return result

    out = {
        "nothing": lambda: 0,
        "cuMemGetInfo": lambda: driver.result("cuMemGetInfo_v2", c.byref(c.c_size_t()), c.byref(c.c_size_t())),
        "cuPointerGetAttribute(CONTEXT)": pointer_attribute(1, c.c_void_p),
        "cuPointerGetAttribute(MEMORY_TYPE)": pointer_attribute(2, c.c_uint),
        "cuPointerGetAttribute(RANGE_SIZE)": pointer_attribute(12, c.c_size_t),
        "cuCtxGetCurrent": lambda: driver.result("cuCtxGetCurrent", c.byref(c.c_void_p())),
        "cuCtxGetDevice": lambda: driver.result("cuCtxGetDevice", c.byref(c.c_int())),
        "cuStreamIsCapturing": lambda: driver.result("cuStreamIsCapturing", stream, c.byref(c.c_int())),
        "cuStreamGetCtx": lambda: driver.result("cuStreamGetCtx", stream, c.byref(c.c_void_p())),
        "cuMemPoolGetAttribute": lambda: driver.result("cuMemPoolGetAttribute", pool, 5, c.byref(c.c_uint64())),
        "cuDeviceGetDefaultMemPool": lambda: driver.result("cuDeviceGetDefaultMemPool", c.byref(c.c_void_p()), 0),
        "cuDeviceGetGraphMemAttribute": lambda: driver.result("cuDeviceGetGraphMemAttribute", 0, 0, c.byref(c.c_uint64())),
        "cuDeviceGetAttribute": lambda: driver.result("cuDeviceGetAttribute", c.byref(c.c_int()), 16, 0),
        "cuDeviceTotalMem": lambda: driver.result("cuDeviceTotalMem_v2", c.byref(c.c_size_t()), 0),
        "cuMemGetAllocationGranularity": granularity,
        "cuMemGetAddressRange": lambda: driver.result("cuMemGetAddressRange_v2", c.byref(c.c_uint64()), c.byref(c.c_size_t()),
                                                      c.c_uint64(address)),
        "cuMemAddressReserve": reserve,
        "cuMemCreate": create,
        "cuMemAlloc": allocate,
    }
    if driver.has("cuStreamGetDevice"):
        out["cuStreamGetDevice"] = lambda: driver.result("cuStreamGetDevice", stream, c.byref(c.c_int()))
    return out


def queries(_run):
    driver = Driver()
    address, pool = driver.allocate(512), driver.pool()
    rows = []
    for mode, number in MODES.items():
        stream = driver.stream()
        for name, call in calls_of(driver, address, stream, pool).items():
            driver.cuStreamBeginCapture_v2(stream, number)
            answer = call()
            graph = c.c_void_p()
            ended = driver.result("cuStreamEndCapture", stream, c.byref(graph))
            if ended == 0 and graph.value:
                driver.result("cuGraphDestroy", graph)
            rows.append({"mode": mode, "call": name, "answer": answer, "end_of_capture": ended})
    refused = sorted({row["call"] for row in rows if row["answer"] != 0 and row["mode"] == "global"})
    spoilt = sorted({row["call"] for row in rows if row["end_of_capture"] != 0 and row["mode"] == "global"})
    return {"summary": f"refused while a capture is global: {', '.join(refused) or 'none'}; spoil it: {', '.join(spoilt) or 'none'}",
            "rows": rows}
