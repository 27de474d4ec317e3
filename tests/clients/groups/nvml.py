"""NVIDIA's own binding of the management library on the stand-in, as a witness of its layouts.

The binding (nvidia-ml-py) has the structures and their versions as NVIDIA has them.
"""
from registry import check
from simulated import said

MIB = 1 << 20
RESERVED = 256 * MIB  # nvml.reserved, by default (tests/simcuda/README.md)


@check("nvml")
def binding_reads_all(client):
    outcome = client.recorded("nvml", "nvml_binding.py")
    [told] = said(outcome)
    client.equal(told["uuid"].lower(), "gpu-46524147-5343-4f50-4520-53494d000000", "UUID: FRAGSCOPE SIM and the ordinal")
    client.equal(told["name"], "Simulated GPU 8 GiB", "name")
    client.equal(told["bus"], "00000000:01:00.0", "PCI bus id")
    free, total = told["driver"]
    first, second = told["memory"], told["memory_v2"]
    client.equal(second["total"], total + RESERVED, "total")
    client.equal(second["free"], free, "free")
    client.equal(second["reserved"], RESERVED, "reserved")
    client.equal(second["used"], total - free, "used")
    client.equal((first["total"], first["free"], first["used"]), (second["total"], free, second["used"] + RESERVED),
                 "the first version, which counts what is reserved as used")
    for version in ("v2", "v3"):
        client.equal(told["processes"][version], [[told["pid"], total - free]], f"processes, {version}")
    client.equal(told["mig"], [0, 0], "MIG mode")
    client.equal(told["fabric_state"], 0, "fabric: not supported")
