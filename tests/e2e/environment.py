"""What a trace says of each process's surroundings, and of what the shim could not hook.

The right values are the simulated driver's settings (tests/simcuda/README.md): two devices of 8 GiB, pages of 2 MiB, CUDA
13.0; and for the second run an older driver, which lacks what came after CUDA 11.8.
Usage: environment.py BUILD_ROOT
"""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MIB = 1 << 20


def processes(build, library_path, *program):
    with tempfile.TemporaryDirectory() as scratch:
        trace = pathlib.Path(scratch) / "environment.fst"
        env = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}
        env["LD_LIBRARY_PATH"] = ":".join(map(str, library_path))
        fragscope = build / "tools" / "fragscope"
        subprocess.run([fragscope, "run", "-q", "-o", trace, "--", *program], env=env, capture_output=True, check=True,
                       timeout=120)
        dump = subprocess.run([fragscope, "dump", "--env", "--json", trace], capture_output=True, text=True, check=True,
                              timeout=60)
        return [line for line in map(json.loads, dump.stdout.splitlines()) if "pid" in line]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    simulated = build / "tests" / "simcuda"
    healthy = str(build / "tests" / "programs" / "healthy_shared")

    [process] = processes(build, [simulated, simulated / "runtime"], healthy)
    assert process["command_line"] == [healthy] and process["executable"] == healthy, process
    assert process["driver_version"] == 13000 and process["runtime_version"] == 13000, process
    assert process["driver_path"] == str(simulated / "libcuda.so.1"), process["driver_path"]
    assert process["shim_version"], process
    assert not process.get("hooks_missing"), process["hooks_missing"]
    assert len(process["devices"]) == 2
    assert len({device["uuid"] for device in process["devices"]}) == 2
    for device in process["devices"]:
        assert len(base64.b64decode(device["uuid"])) == 16
        assert device["name"] == "Simulated GPU 8 GiB"
        assert int(device["capacity_bytes"]) == 8192 * MIB
        assert int(device["minimum_granularity_bytes"]) == int(device["recommended_granularity_bytes"]) == 2 * MIB
        # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED and …_MEMORY_POOLS_SUPPORTED
        assert device["attributes"]["102"] == "1" and device["attributes"]["115"] == "1", device["attributes"]

    client = pathlib.Path(__file__).parent / "client.py"
    [process] = processes(build, [simulated / "driver-11.8"], sys.executable, str(client), "churn:3")
    assert process["driver_version"] == 11080, process
    missing = process["hooks_missing"]
    # Both came with CUDA 12 or later; cuMemCreate is from 10.2.
    assert "cuGetProcAddress_v2" in missing and "cuCtxCreate_v4" in missing and "cuMemCreate" not in missing, missing
    print(f"two devices described; {len(missing)} hooks named that a driver of CUDA 11.8 has no place for")


main()
