"""PyTorch of CUDA 12 and of CUDA 13 on the simulated GPU: its own accounts against the simulated driver's ledger and settings."""
from registry import check_in_each
from simulated import said

MIB = 1 << 20


def bytes_by_address(ledger, gained="linear_alloc", lost="linear_free"):
    """Live allocations at the ledger's end: address to bytes asked."""
    live = {}
    for line in ledger:
        if line[3] == gained:
            live[int(line[4], 16)] = int(line[5])
        elif line[3] == lost:
            del live[int(line[4], 16)]
    return live


@check_in_each("torch12", "torch13")
def basics(client, torch):
    client.settings = {"CAPACITY": "4GiB", "CONTEXT_OVERHEAD": "100MiB"}
    plain, traced = client.with_and_without(torch, "torch_basics.py")
    device, streams, full, stats, cleared = said(plain)
    # The simulated driver's settings, default or as above (tests/simcuda/README.md).
    client.equal(device["count"], 2)
    client.equal(device["total"], 4096 * MIB)
    client.equal(device["name"], "Simulated GPU 4 GiB")
    client.equal(device["free_total"], [3996 * MIB, 4096 * MIB])
    client.that(streams["done"], streams)
    # PyTorch's segments are what it asked of the driver; its totals are their sums.
    allocated = {int(line[4], 16): int(line[5]) for line in plain.ledger if line[3] == "linear_alloc"}
    client.equal({s["address"]: s["total_size"] for s in stats["snapshot"]}, allocated)
    client.equal(stats["stats"]["reserved_bytes.all.current"], sum(allocated.values()))
    client.equal(full["free_total"][0], device["free_total"][0] - sum(allocated.values()))
    client.equal({s["address"]: s["total_size"] for s in cleared["snapshot"]}, bytes_by_address(plain.ledger))
    client.equal(cleared["free_total"][0],
                 device["free_total"][0] - cleared["stats"]["reserved_bytes.all.current"])
    live = {block[0] for s in stats["snapshot"] for block in s["blocks"] if block[3] == "active_allocated"}
    client.equal(sorted(live), sorted(full["addresses"]))
    client.books(traced)
    client.nothing_lost()
