"""How the driver rounds, packs and charges memory."""
import ctypes as c
import time

from .cuda import (HOST_NUMA, MIB, MINIMUM, OUT_OF_MEMORY, PTX, RECOMMENDED, Driver, MulticastProperties, Refused)

USED, RESERVED, RELEASE_THRESHOLD = 7, 5, 4  # CU_MEMPOOL_ATTR_…


def granularity(_run):
    driver = Driver()
    out = {"device_minimum": driver.granularity(MINIMUM), "device_recommended": driver.granularity(RECOMMENDED)}
    for name, which in (("host_numa_minimum", MINIMUM), ("host_numa_recommended", RECOMMENDED)):
        try:
            out[name] = driver.granularity(which, HOST_NUMA, 0)
        except Refused as refused:
            out[name] = str(refused)
    for name, which in (("multicast_minimum", MINIMUM), ("multicast_recommended", RECOMMENDED)):
        size, wanted = c.c_size_t(), MulticastProperties(1, 2 * MIB, 1, 0)
        result = driver.result("cuMulticastGetGranularity", c.byref(size), c.byref(wanted), which)
        out[name] = size.value if result == 0 else driver.name_of(result)
    out["summary"] = f"device {out['device_minimum']} and {out['device_recommended']} bytes, multicast {out['multicast_minimum']}"
    return out


def packing(_run):
    """Allocations of one size, one after the other: how far apart they lie, and what each takes off the device."""
    driver = Driver()
    out = {"sizes": []}
    for size, count in ((1, 64), (256, 64), (512, 64), (513, 64), (4096, 64), (65536, 64), (MIB // 2, 8), (MIB - 1, 8), (MIB, 8),
                        (MIB + 1, 8), (2 * MIB - 1, 8), (2 * MIB, 8), (2 * MIB + 1, 8), (3 * MIB, 8), (64 * MIB + 1, 4)):
        free, _ = driver.free_and_total()
        addresses, taken = [], []
        for _ in range(count):
            addresses.append(driver.allocate(size))
            left, _ = driver.free_and_total()
            taken.append(free - left)
            free = left
        spacing = sorted({abs(b - a) for a, b in zip(addresses, addresses[1:])})
        out["sizes"].append({"bytes": size, "count": count, "spacing": spacing[:4], "taken_first": taken[0],
                             "taken_in_all": sum(taken), "aligned_to": min((a & -a for a in addresses))})
        for address in addresses:
            driver.release(address)
    first = out["sizes"][0]
    shared = [each for each in out["sizes"] if each["taken_in_all"] < each["count"] * 2 * MIB]
    out["summary"] = (f"1-byte allocations lie {first['spacing'][0]} bytes apart; up to {max(e['bytes'] for e in shared)} bytes "
                      "they share 2 MiB" if shared else "no allocations share 2 MiB")
    return out


def pool(_run):
    driver = Driver()
    default, stream = driver.pool(), driver.stream()
    driver.cuMemPoolSetAttribute(default, RELEASE_THRESHOLD, c.byref(c.c_uint64(0)))
    grown, kept = [], []
    for size in (12, 12, 16 * MIB, 16 * MIB, 31 * MIB, 33 * MIB, 64 * MIB, 65 * MIB, 100 * MIB, 1000 * MIB + 1):
        address = c.c_uint64()
        driver.cuMemAllocAsync(c.byref(address), c.c_size_t(size), stream)
        driver.cuStreamSynchronize(stream)
        kept.append(address)
        grown.append({"bytes": size, "used": driver.pool_attribute(default, USED),
                      "reserved": driver.pool_attribute(default, RESERVED)})
    for address in kept:
        driver.cuMemFreeAsync(address, stream)
    before = driver.pool_attribute(default, RESERVED)
    driver.cuStreamSynchronize(stream)
    after = driver.pool_attribute(default, RESERVED)
    return {"summary": f"12 bytes reserve {grown[0]['reserved']} and count as {grown[0]['used']}; after the frees {before} stay "
                       f"reserved, after the synchronisation {after}",
            "grown": grown, "reserved_before_synchronisation": before, "reserved_after": after}


def context(_run):
    """What comes off the device's free memory at each step. Other processes' doings are in it too: twice the same step tells."""
    driver = Driver()
    steps = []

    def step(name, act):
        before, _ = driver.free_and_total()
        try:
            act()
            refused = None
        except Refused as problem:
            refused = str(problem)
        after, _ = driver.free_and_total()
        steps.append({"step": name, "taken": before - after, **({"refused": refused} if refused else {})})

    contexts, modules = [], []

    def another_context():
        made = c.c_void_p()
        create = "cuCtxCreate_v2" if driver.has("cuCtxCreate_v2") else "cuCtxCreate"
        getattr(driver, create)(c.byref(made), 0, driver.device)
        driver.cuCtxPopCurrent_v2(c.byref(c.c_void_p()))
        contexts.append(made)

    def load():
        module = c.c_void_p()
        driver.cuModuleLoadData(c.byref(module), PTX)
        modules.append(module)

    def launch(name, parameters=None):
        function = c.c_void_p()
        driver.cuModuleGetFunction(c.byref(function), modules[-1], name)
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
        driver.cuCtxSynchronize()

    def variable():
        address, size = c.c_uint64(), c.c_size_t()
        driver.cuModuleGetGlobal_v2(c.byref(address), c.byref(size), modules[-1], b"fragscope_bytes")

    def limit(number, value):
        driver.cuCtxSetLimit(number, c.c_size_t(value))

    scratch = driver.allocate(4096)
    arguments = (c.c_void_p * 1)(c.cast(c.pointer(c.c_uint64(scratch)), c.c_void_p))
    step("nothing", lambda: None)
    step("a second context", another_context)
    step("a third context", another_context)
    step("a module loaded", load)
    step("its variable of 1 MiB looked up", variable)
    step("its kernel launched first", lambda: launch(b"fragscope_nothing"))
    step("launched again", lambda: launch(b"fragscope_nothing"))
    step("a kernel with 16 KiB of stack launched", lambda: launch(b"fragscope_stack", arguments))
    step("stack limit 32 KiB", lambda: limit(0, 32 << 10))
    step("launched after it", lambda: launch(b"fragscope_nothing"))
    step("printf buffer 64 MiB", lambda: limit(1, 64 * MIB))
    step("heap 256 MiB", lambda: limit(2, 256 * MIB))
    step("launched after them", lambda: launch(b"fragscope_nothing"))
    step("a stream", driver.stream)
    step("a context destroyed", lambda: driver.cuCtxDestroy_v2(contexts.pop()))
    taken = {each["step"]: each["taken"] for each in steps}
    return {"summary": f"a context takes {taken['a second context'] / MIB:.1f} MiB, a small module "
                       f"{(taken['a module loaded'] + taken['its kernel launched first']) / MIB:.1f} MiB", "steps": steps}


def mappings(run):
    """One physical allocation mapped again and again, until that is refused or the time is over."""
    driver = Driver()
    size = driver.granularity()
    handle = driver.create(size)
    most = 20_000 if run.simulated else 1_000_000
    began, mapped, refused = time.monotonic(), 0, None
    block = 1024
    while mapped < most and time.monotonic() - began < 15:
        try:
            base = driver.reserve(block * size)
            for i in range(block):
                driver.map(base + i * size, size, handle)
                mapped += 1
            driver.allow(base, block * size)
        except Refused as problem:
            refused = str(problem)
            break
    return {"summary": f"{mapped} mappings of {size} bytes, " + (refused or "none refused"), "mapped": mapped, "refused": refused,
            "seconds": time.monotonic() - began, "out_of_memory": bool(refused) and f"({OUT_OF_MEMORY})" in refused}
