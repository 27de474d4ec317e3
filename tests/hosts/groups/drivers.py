"""Groups 2, 3 and 15: what a program gets where it looks, on today's driver, on older and on newer ones."""
import re
import subprocess

from groups.clients import seen
from registry import check


def rows(b):
    """The driver's functions that the recorder hooks, from the build."""
    text = (b.build / "interpose" / "exports.map").read_text()
    names = re.findall(r"^\s+(cu[A-Z]\w*);$", text, re.MULTILINE)
    b.that(len(names) > 100, "the build's list of exports is not what it was")
    return names


def exported(b, name="exports.map"):
    return re.findall(r"^\s+(cu\w+);$", (b.simulated / name).read_text(), re.MULTILINE)


def ask(b, names):
    path = b.folder / "names"
    path.write_text("\n".join(names) + "\n")
    plain, traced = b.both(b.host("asked"), path)
    [process] = b.processes()
    return plain.out.splitlines(), process


@check(2, "every row by dlsym and by the resolver, 13 versions, 4 flags")
def every_lookup(b):
    """The result, the status and the name of the function that is found are the driver's own, for every name."""
    names = rows(b)
    lines, process = ask(b, names + ["cuNoSuchFunction"])
    b.that(len(lines) > 20 * len(names), len(lines))
    b.that(any(line.startswith("'' 2000 0:") for line in lines), "the empty name was not asked for")
    b.that(not any("ANOTHER" in line for line in lines), "a look-up without status found something else")
    # Swapped, that is: at least each row by dlsym, and its base name by the resolver.
    b.that(int(process["lookups_hooked"]) > 3 * len(names), process["lookups_hooked"])
    b.equal(int(process.get("lookups_unmatched", 0)), 0, "functions of the driver that match no symbol")


@check(2, "every function of the driver, hooked or not")
def every_export(b):
    ask(b, exported(b))


@check(3, "drivers of CUDA 11.2 and 11.8: work, and what is absent")
def older_drivers(b):
    for version, doors in (("11.2", ["handle"]), ("11.8", ["handle", "resolver:11030", "resolver:11080"])):
        b.library_path = [b.simulated / f"driver-{version}"]
        for door in doors:
            seen(b, b.host("opener"), "libcuda.so.1", "nL", door)
            [process] = b.processes()
            b.that("cuGetProcAddress_v2" in process["hooks_missing"], "the report does not say what the driver lacks")
            b.that("The driver lacks" in b.report(), "nor does the text")
        lines, _ = ask(b, rows(b))
        b.that(any("absent" in line for line in lines), "nothing is absent")
        b.equal([line for line in lines if line.startswith("resolvers")], ["resolvers - -" if version == "11.2" else
                                                                          "resolvers - old"])


@check(3, "today's code on an older version: absent by the resolver")
def older_by_setting(b):
    b.settings["DRIVER_VERSION"] = 12000
    ask(b, rows(b))
    seen(b, b.host("opener"), "libcuda.so.1", "nL", "resolver:12000")


@check(3, "a driver newer than the shim: unknown functions and variants")
def newer_driver(b):
    b.library_path = [b.hosts / "driver-14.0"]
    seen(b, b.host("opener"), "libcuda.so.1", "nL", "handle")
    seen(b, b.host("opener"), "libcuda.so.1", "nL", "resolver:13000")
    plain, _ = b.both(b.host("newer"))
    for name in ("cuMemAlloc@14000", "cuMemFree@14000", "cuMemAlloc_v3", "cuFutureAlloc", "cuMemAlloc by the newer resolver"):
        b.that(f"{name} 0 errno" in plain.out, plain.out)
    [process] = b.processes()
    # cuMemFree@14000 is exported under no name: counted, so that the report can say what it cannot see.
    b.that(int(process.get("lookups_unmatched", 0)) >= 1, process)
    names = exported(b) + ["cuMemAlloc_v3", "cuFutureAlloc", "cuMemFree_v3", "cuGetProcAddress_v3"]
    ask(b, names)


@check(15, "what the shim exports: the rows and dlsym, needing libc only")
def exports(b):
    b.need("readelf")
    said = subprocess.run(["readelf", "-W", "--dyn-syms", "-d", b.shim], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
    b.that(set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, needed)
    defined = {m.group(2) for m in re.finditer(r"(GLOBAL|WEAK)\s+\S+\s+\d+\s+([\w.]+)", said)}
    for name in rows(b):
        b.that(name in defined, f"{name} is not exported")
    undefined = re.findall(r"UND\s+([\w]+)", said)
    b.equal([name for name in undefined if re.match("cu(da)?[A-Z]", name)], [], "would not load without the driver")


@check(15, "every row is a function of the simulated driver")
def rows_exist(b):
    known = set(exported(b))
    for name in rows(b):
        b.that(name in known or name.startswith("cuGL") or name.startswith("cuEGL") or name.startswith("cuVDPAU"), name)


@check(15, "the C library that the shim needs is not newer than 2.34")
def old_c_library(b):
    b.need("readelf")
    said = subprocess.run(["readelf", "-W", "-V", b.shim], capture_output=True, text=True, check=True).stdout
    versions = sorted({tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([0-9.]+)", said)})
    # Built on an older system it needs less; this is what Debian 12's headers make of dlsym, shm_open and the like.
    b.that(versions and versions[-1] <= (2, 34), versions)
    b.equal(re.findall(r"Name: (GLIBCXX_\S+|CXXABI_\S+)", said), [], "a C++ library that may be older there")
