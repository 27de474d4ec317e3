"""Single calls: what the driver's look-ups hand out, and how long calls take."""
import ctypes as c
import struct
import time

from .cuda import MIB, Driver, Refused

CALLS_LEGACY, CALLS_PER_THREAD = 1, 2


class SymbolInfo(c.Structure):  # Dl_info
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("address", c.c_void_p)]


def exported_names(path):
    """The functions "cu…" in the dynamic symbol table of a 64-bit little-endian library."""
    data = open(path, "rb").read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit ELF file")
    sections_at, = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry_size) for i in range(count)]
    names = set()
    for _, kind, _, _, offset, size, link, _, _, step in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, step):
            name_at, info, _, section = struct.unpack_from("<IBBH", data, at)
            name = data[strings + name_at:data.index(b"\0", strings + name_at)].decode()
            if section != 0 and info & 15 in (2, 10) and name.startswith("cu"):
                names.add(name)
    return names


def base_name(name):
    for suffix in ("_ptsz", "_ptds"):
        name = name.removesuffix(suffix)
    stem, _, version = name.rpartition("_v")
    return stem if version.isdigit() else name


def path_of(library_name):
    for line in open("/proc/self/maps"):
        if library_name in line:
            return line.split(None, 5)[-1].strip()
    raise FileNotFoundError(library_name)


def resolution(_run):
    driver = Driver(context=False)
    names = exported_names(path_of("libcuda.so"))
    bases = sorted({base_name(name) for name in names})
    version = c.c_int()
    driver.cuDriverGetVersion(c.byref(version))
    process = c.CDLL(None)
    found, unnamed, other_name = 0, [], []
    for base in bases:
        for asked in sorted({2000, 3020, 4000, 7000, 10000, 11000, 11020, 12000, 12050, 13000, version.value}):
            for flags in (CALLS_LEGACY, CALLS_PER_THREAD):
                pointer, status = c.c_void_p(), c.c_int()
                result = driver.result("cuGetProcAddress_v2", base.encode(), c.byref(pointer), asked, c.c_uint64(flags),
                                       c.byref(status))
                if result != 0 or not pointer.value:
                    continue
                found += 1
                info = SymbolInfo()
                if process.dladdr(pointer, c.byref(info)) == 0 or info.address != pointer.value or not info.name:
                    unnamed.append([base, asked, flags])
                elif base_name(info.name.decode()) != base:
                    other_name.append([base, asked, flags, info.name.decode()])
    return {"summary": f"{found} of the look-ups of {len(bases)} names gave a pointer, {len(unnamed)} of them no exported symbol, "
                       f"{len(other_name)} one of another name",
            "names": len(bases), "exported": len(names), "found": found, "unnamed": unnamed[:200], "other_name": other_name[:200]}


def percentiles(times):
    times = sorted(times)
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]
    return {"calls": len(times), "p10": at(0.1), "median": at(0.5), "p90": at(0.9), "p99": at(0.99), "longest": times[-1]}


class Watch:
    """Times of calls in nanoseconds by call and size; what Python itself needs for a call is a call of its own."""

    def __init__(self):
        self.times = {}

    def time(self, name, size, call):
        begin = time.perf_counter_ns()
        out = call()
        self.times.setdefault((name, size), []).append(time.perf_counter_ns() - begin)
        return out

    def rows(self):
        return [{"call": name, "bytes": size, **percentiles(times)} for (name, size), times in self.times.items()]


def measure(driver, watch, until, sizes, rounds):
    stream = driver.stream()
    for size in sizes:
        for _ in range(rounds(size)):
            if time.monotonic() > until:
                return
            address = watch.time("cuMemAlloc", size, lambda: driver.allocate(size))
            watch.time("cuMemFree", size, lambda: driver.release(address))
            given = c.c_uint64()
            watch.time("cuMemAllocAsync", size, lambda: driver.cuMemAllocAsync(c.byref(given), c.c_size_t(size), stream))
            watch.time("cuMemFreeAsync", size, lambda: driver.cuMemFreeAsync(given, stream))
            watch.time("cuStreamSynchronize", size, lambda: driver.cuStreamSynchronize(stream))
            if size % driver.granularity() != 0:
                continue
            base = watch.time("cuMemAddressReserve", size, lambda: driver.reserve(size))
            handle = watch.time("cuMemCreate", size, lambda: driver.create(size))
            watch.time("cuMemMap", size, lambda: driver.map(base, size, handle))
            watch.time("cuMemSetAccess", size, lambda: driver.allow(base, size))
            watch.time("cuMemUnmap", size, lambda: driver.unmap(base, size))
            watch.time("cuMemRelease", size, lambda: driver.cuMemRelease(c.c_uint64(handle)))
            watch.time("cuMemAddressFree", size, lambda: driver.cuMemAddressFree(c.c_uint64(base), c.c_size_t(size)))


def latency(run):
    driver, watch = Driver(), Watch()
    limit = 8 if run.simulated else 60
    sizes = [512, 65536, MIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, 1024 * MIB]
    for _ in range(1000):
        watch.time("cuCtxGetCurrent", 0, lambda: driver.cuCtxGetCurrent(c.byref(c.c_void_p())))
    for _ in range(200):
        watch.time("cuMemGetInfo", 0, driver.free_and_total)
        watch.time("cuCtxSynchronize", 0, driver.cuCtxSynchronize)
    try:
        measure(driver, watch, time.monotonic() + limit, sizes, lambda size: 200 if size < 128 * MIB else 40)
        refused = None
    except Refused as problem:
        refused = str(problem)
    rows = watch.rows()
    medians = {(row["call"], row["bytes"]): row["median"] for row in rows}
    shown = [f"{call} of 2 MiB {medians[call, 2 * MIB] / 1000:.1f} us" for call in
             ("cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap") if (call, 2 * MIB) in medians]
    return {"summary": "medians: " + ", ".join(shown), "nanoseconds": rows, "refused": refused}
