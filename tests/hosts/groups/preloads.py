"""Group 12: other libraries that are preloaded, or that look names up in ways that went wrong elsewhere."""
import json
import os
import shutil
import subprocess

from bench import Skipped, TIMEOUT
from groups.clients import WORK
from registry import check


def doctest(b, case):
    """One case of tests/preload, with the environment that the build gives it."""
    said = subprocess.run(["meson", "introspect", str(b.build), "--tests"], capture_output=True, text=True, check=True).stdout
    [test] = [test for test in json.loads(said) if test["name"] == "preload"]
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}, **test["env"]}
    result = subprocess.run([*test["cmd"], "--test-case=" + case.replace(",", "*")], env=env, capture_output=True, text=True, timeout=TIMEOUT)
    b.that(result.returncode == 0 and "| 1 passed |" in " ".join(result.stdout.split()), case, result.stdout[-3000:],
           result.stderr[-1000:])


@check(12, "a dlsym overrider that limits memory, behind us and ahead")
def rivals(b):
    doctest(b, "another preloaded library sees what it would see alone*")
    # Where another library stands between, the recorder asks the loader once, and that costs a pending message.
    b.variables["HOST_NO_DLERROR"] = "1"
    for rival in ("librival.so", "librival_without_dlsym.so"):
        path = str(b.build / "tests" / "preload" / rival)
        # It finds the driver only in the global scope, as such tools do.
        for program in (("direct",), ("opener", "libcuda.so.1", "nG", "handle"), ("opener", "libcuda.so.1", "nG", "default"),
                        ("opener", "libcuda.so.1", "nG", "resolver:12000")):
            _, traced = b.both(b.host(program[0]), *program[1:], preload=path)
            b.that(b.books(traced) >= WORK, program)


@check(12, "the driver looks its own names up; every door, once and again")
def own_lookups(b):
    doctest(b, "every door leads a hooked function to the shim and every other one to where it led before")


@check(12, "names that only begin alike, tools that look for the next one")
def alike(b):
    odd = b.folder / "an odd place"
    odd.mkdir()
    library = odd / "liblookers.so"
    shutil.copy(b.host("liblookers.so"), library)
    for mode in ("l", "g"):
        for path in (b.host("liblookers.so"), library):
            plain, _ = b.both(b.host("looking"), path, mode)
            b.that("created 17" in plain.out and "next tool none" in plain.out, plain.out)
    b.both(b.host("looking"), library, "l", preload=b.host("liblookers.so"))


@check(12, "a replacement of malloc; the shim takes nothing from it")
def other_malloc(b):
    counting = b.host("libcounting_malloc.so")
    for program in ("direct", "direct_no_plt", "runtime_static"):
        _, traced = b.both(b.host(program), preload=counting)
        b.books(traced)
    plain, _ = b.both(b.host("counted"), preload=counting)
    b.that("turn 2: " in plain.out and "turn 2: 0\n" not in plain.out, "it does not count", plain.out)


@check(12, "code patched under us: our wrappers' and the driver's")
def patched(b):
    for where in ("driver", "wrapper"):
        for late in ((), ("late",)):
            plain, traced = b.both(b.host("patching"), where, *late, status=None)
            if plain.status == 77:
                raise Skipped("code cannot be written to here")
            b.that("patches reached 6 6" in plain.out or os.uname().machine != "x86_64", plain.out)
            b.books(traced)
