"""NVIDIA's own static runtime under the shim, as far as it goes without a GPU.

The program is hello.cu linked with NVIDIA's unmodified libcudart_static.a. During start-up that runtime looks its driver
functions up, calls cuInit and cuDeviceGetCount, asks for private tables, and then authenticates the driver through the table
d4082055-…: the simulated driver does not have it, and does not pretend to, so the runtime stops there. Asserted is what
comes before: every look-up went through the shim and got the answer it would have got without, and the wrapped calls were
made through the pointers that the shim gave. How many look-ups there are is known of CUDA 13.0; of another release only
that there are hundreds, and that the shim counts as many as the driver.
Usage: nvidia_runtime.py BUILD_ROOT PROGRAM RELEASE
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Seen with CUDA 13.0.96 on a logging driver, by flags: 366 with 0 and 74 with 2 (per-thread default stream).
LOOKUPS = {"0": 366, "2": 74}
AUTHENTICATION = "d4082055-bde6-704b-8d34-ba123c66e1f2"


def environment(build, log):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}
    env["LD_LIBRARY_PATH"] = str(build / "tests" / "simcuda")
    env["FRAGSCOPE_SIM_LOG"] = str(log)
    return env


def driver_log(log):
    """Lines "pid thread what …" of the simulated driver, without pid and thread."""
    return [line.split()[2:] for line in log.read_text().splitlines()]


def main():
    build, program, release = pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:4]
    fragscope = build / "tools" / "fragscope"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        trace = scratch / "hello.fst"
        plain = subprocess.run([program], env=environment(build, scratch / "plain.log"), capture_output=True, text=True,
                               timeout=120)
        traced = subprocess.run([fragscope, "run", "-q", "-o", trace, "--", program],
                                env=environment(build, scratch / "traced.log"), capture_output=True, text=True, timeout=120)
        assert (traced.returncode, traced.stdout) == (plain.returncode, plain.stdout), (plain, traced)

        lookups = {}
        for name in ("plain", "traced"):
            lines = driver_log(scratch / f"{name}.log")
            lookups[name] = [line[1:] for line in lines if line[0] == "lookup"]
            assert ["table", AUTHENTICATION, "NOT_FOUND"] in lines, f"{name}: the runtime did not come as far as it does"
        assert lookups["traced"] == lookups["plain"], "the shim changed what the runtime asks for or is answered"
        asked = len(lookups["traced"])
        assert asked > 400, f"{asked} look-ups"
        if release == "13.0":
            seen = collections.Counter(line[2] for line in lookups["traced"])
            assert seen == LOOKUPS, f"look-ups by flags: {dict(seen)}, {LOOKUPS} expected"

        dump = subprocess.run([fragscope, "dump", "--json", trace], capture_output=True, text=True, check=True, timeout=60)
        called = [json.loads(line)["function"] for line in dump.stdout.splitlines()]
        for function in ("cuInit", "cuDeviceGetCount"):
            assert function in called, f"{function} was not called through the shim: {called}"
        env = subprocess.run([fragscope, "dump", "--env", "--json", trace], capture_output=True, text=True, check=True,
                             timeout=60)
        process = next(p for p in map(json.loads, env.stdout.splitlines()) if "pid" in p)
        # The shim's own count: those that the driver saw, and the one dlsym by which the runtime starts.
        assert int(process["lookups"]) == asked + 1, (process["lookups"], asked)
        assert int(process.get("lookups_unmatched", 0)) == 0, process
        print(f"{asked} look-ups seen, {process['lookups_hooked']} answered with hooks, then stopped at the "
              f"driver's authentication as without the shim")


main()
