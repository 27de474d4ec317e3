"""Group 1: every way in which a program reaches the driver, by its own books and by the trace's."""
import os
import shutil
import sys

from registry import check

# What the workload of host.h changes in the driver's ledger: 9 acquisitions, as many releases, one map, one unmap.
WORK = 18


def seen(b, *command, changes=WORK, **more):
    _, traced = b.both(*command, **more)
    b.that(b.books(traced) >= changes, f"too little happened: {len(traced.ledger)} lines")
    b.nothing_lost()


@check(1, "runtime: static, shared, per-thread default stream")
def runtime_clients(b):
    for program in ("runtime_static", "runtime_shared", "runtime_per_thread"):
        seen(b, b.host(program), changes=8)


@check(1, "linked to the driver, lazily, at once, without PLT")
def linked_clients(b):
    for program in ("direct", "direct_now", "direct_no_plt", "direct_per_thread"):
        seen(b, b.host(program), changes=WORK + 4)
    b.that(any("per_thread_stream" in e["flags"] for e in traced_by(b, "direct_per_thread")), "no per-thread call")


def traced_by(b, program):
    b.traced(b.host(program))
    return b.events()


@check(1, "dlopen and dlsym in every mode and scope")
def opened_clients(b):
    opener = b.host("opener")
    for modes in ("lL", "nL", "lG", "nG", "nLK", "nLR", "lLR"):
        seen(b, opener, "libcuda.so.1", modes, "handle")
    seen(b, opener, "libcuda.so.1", "nG", "default")
    seen(b, opener, "libcuda.so.1", "nG", "next")
    # Opened with RTLD_LOCAL it is in nobody's scope: nothing is found, with the shim as without.
    for door in ("default", "next"):
        b.both(opener, "libcuda.so.1", "nL", door, status=1)


@check(1, "cuGetProcAddress as runtimes of CUDA 11.3 to 13 ask")
def resolved_clients(b):
    for version in (11030, 11080, 12000, 12080, 13000):
        for flags in (0, 1, 2):
            seen(b, b.host("opener"), "libcuda.so.1", "nL", f"resolver:{version}:{flags}")


@check(1, "an absolute path, a copy found by RPATH, libcuda.so")
def places_of_the_driver(b):
    driver = b.simulated / "libcuda.so.1"
    seen(b, b.host("opener"), driver, "nL", "handle")
    copies = b.folder / "copies"
    copies.mkdir()
    shutil.copy(driver, copies / "libcuda.so.1")
    os.symlink("libcuda.so.1", copies / "libcuda.so")
    b.library_path = [copies]
    seen(b, b.host("opener"), "libcuda.so", "nL", "handle")
    seen(b, b.host("opener"), copies / "libcuda.so", "lL", "resolver:12000")
    b.library_path = []
    seen(b, b.host("direct_rpath"), changes=WORK + 4)
    seen(b, b.host("opener_rpath"), "libcuda.so.1", "nL", "handle")


@check(1, "libraries that are opened, linked to the driver or not")
def plugins(b):
    for plugin in ("libplugin.so", "libplugin_linked.so"):
        for modes in ("L", "G"):
            seen(b, b.host("plugged"), b.host(plugin), modes, "2", changes=2 * WORK)
    for door in ("default", "next"):
        b.variables["HOST_DOOR"] = door
        for modes in ("L", "G"):
            seen(b, b.host("plugged"), b.host("libplugin_linked.so"), modes, "2", changes=2 * WORK)


@check(1, "Python by ctypes")
def ctypes_client(b):
    client = os.path.join(os.path.dirname(__file__), "..", "..", "e2e", "client.py")
    seen(b, sys.executable, client, "churn:5", "alloc:2", "say:done", changes=12)


@check(1, "RTLD_DEEPBIND and dlmopen: declared misses, said so")
def declared_misses(b):
    """They bypass every preloaded library: the program works, the trace is silent, and says that it knows nothing."""
    for plugin, modes in (("libplugin.so", "D"), ("libplugin_linked.so", "D"), ("libplugin.so", "M"),
                          ("libplugin_linked.so", "M")):
        _, traced = b.both(b.host("plugged"), b.host(plugin), modes, "1")
        b.that(len(traced.ledger) >= WORK, "it did not work")
        b.equal(b.events(), [], f"{plugin} {modes}")
        said = b.report()
        b.that("No process used the CUDA driver, as far as could be seen" in said and "reached past it" in said, said)
    # The driver itself opened so: its own symbols come first in its own scope, which changes nothing for who asks it.
    seen(b, b.host("opener"), "libcuda.so.1", "nLD", "handle")
    _, traced = b.both(b.host("opener"), "libcuda.so.1", "nLM", "handle")
    b.that(len(traced.ledger) >= WORK, "it did not work")


@check(1, "half of the memory past us: the report says how much")
def half_seen(b):
    """1000 MiB by a library that bypasses the recorder, and the context, of 256 MiB in the simulated driver's settings."""
    b.both(b.host("halves"), b.host("libplugin.so"))
    [own] = [e for e in b.events("--kind", "linear_acquired") if e["result"] == 0]
    b.equal(own["bytes"], 100 << 20)
    said = b.report()
    b.that(f"explained by no record 1.23 GiB {(1000 + 256) << 20:,} B derived (unattributed)" in said, said)
