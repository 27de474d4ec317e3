"""PyTorch of CUDA 12 and of CUDA 13 on the simulated GPU: its own accounts against the driver's ledger and settings.

What PyTorch documents is in its "CUDA semantics" notes (docs.pytorch.org/docs/stable/notes/cuda.html, "Memory management")
and in the documentation of torch.cuda.memory_stats and torch.profiler.
"""
import pathlib
import subprocess
import sys

from books import Books
from registry import check_in_each
from simulated import said

KIB, MIB = 1 << 10, 1 << 20

# The variable with the allocator's settings. PyTorch 2.9 knows the new name and takes nothing from it at start-up; later
# releases warn of the old one.
ALLOC_CONF = {"torch12": "PYTORCH_CUDA_ALLOC_CONF", "torch13": "PYTORCH_ALLOC_CONF"}


def held(client, moment, ledger):
    """At a moment of PyTorch's native allocator: segments are what the driver gave, blocks tile them, totals are sums."""
    books = Books(ledger[:moment["lines"]])
    for device, stats, free in zip(moment["devices"], moment["stats"], moment["free"]):
        mine = [s for s in moment["segments"] if s["device"] == device]
        where = f"{moment['moment']}, device {device}"
        client.equal({s["address"]: s["total_size"] for s in mine}, books.segments(device), "segments", where)
        client.equal(free, books.free[device], "free bytes", where)
        client.equal(stats.get("reserved_bytes.all.current", 0), sum(books.segments(device).values()), "reserved", where)
        sums = {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
        requested = 0
        for segment in mine:
            at = segment["address"]
            for block in segment["blocks"]:
                client.equal(block["address"], at, "block", where)
                at += block["size"]
                sums[block["state"]] += block["size"]
                requested += block["requested_size"] if block["state"] != "inactive" else 0
            client.equal(at, segment["address"] + segment["total_size"], "end of the last block", where)
        client.equal(stats.get("allocated_bytes.all.current", 0), sums["active_allocated"], "allocated", where)
        client.equal(stats.get("active_bytes.all.current", 0), sums["active_allocated"] + sums["active_pending_free"],
                     "active", where)
        client.equal(stats.get("requested_bytes.all.current", 0), requested, "requested", where)


def moments(client, outcome):
    """By name, each held against the ledger."""
    found = {}
    for values in said(outcome):
        if "segments" in values and "moment" in values:
            held(client, values, outcome.ledger)
        if "moment" in values:
            client.that(values["moment"] not in found, values["moment"])
            found[values["moment"]] = values
    return found


def recorded_whole(client, outcome):
    client.books(outcome)
    client.nothing_lost()
    client.report()


def blocks(moment, state):
    return [b for s in moment["segments"] for b in s["blocks"] if b["state"] == state]


@check_in_each("torch12", "torch13")
def basics(client, torch):
    client.settings = {"CAPACITY": "4GiB", "CONTEXT_OVERHEAD": "100MiB"}
    plain, traced = client.with_and_without(torch, "torch_basics.py")
    device, streams, addresses, peers = [values for values in said(plain) if "moment" not in values]
    # The simulated driver's settings, default or as above (tests/simcuda/README.md).
    client.equal(device["count"], 2)
    client.equal(device["total"], 4096 * MIB)
    client.equal(device["name"], "Simulated GPU 4 GiB")
    client.equal(device["free_total"], [3996 * MIB, 4096 * MIB])
    client.that(streams["done"], streams)
    found = moments(client, plain)
    full, fewer = found["seven tensors"], found["one tensor left, cache emptied"]
    client.equal(sorted(b["address"] for b in blocks(full, "active_allocated")), sorted(addresses["addresses"]))
    client.equal([b["address"] for b in blocks(fewer, "active_allocated")], addresses["addresses"][:1])
    client.equal(fewer["stats"][0]["allocation.all.freed"], 6)
    client.that("allocated memory" in found["said"]["summary"].lower(), found["said"])
    client.equal(peers, {"peers": True})
    client.equal({s["device"] for s in found["two devices"]["segments"]}, {0, 1})
    recorded_whole(client, traced)


def rounded(size, divisions):
    """PyTorch's notes: "we do 4 divisions between them": up to the next of equal steps between two powers of two."""
    low = 1 << (size.bit_length() - 1)
    step = low // divisions
    return size if size == low else -(-size // step) * step


@check_in_each("torch12", "torch13")
def settings(client, torch):
    client.settings = {"CAPACITY": "4GiB"}
    plain, traced = client.with_and_without(torch, "torch_settings.py", options=("--calls", "--stacks", "all"))
    found = moments(client, plain)

    moment = found["roundup_power2_divisions:4"]
    client.equal([b["size"] for b in blocks(moment, "active_allocated")], [rounded(n, 4) for n in moment["asked"]])
    client.equal([b["requested_size"] for b in blocks(moment, "active_allocated")], moment["asked"])
    moment = found["roundup_power2_divisions by size"]
    # 2 from 1 MiB on, 4 from 2 MiB, 8 from 4 MiB; none above, and 9 MiB is a multiple of 512 bytes. In PyTorch 2.9 "above"
    # begins with the last size that was named.
    divided = [rounded(size, steps) for size, steps in zip(moment["asked"], (2, 4, 8))] + moment["asked"][3:]
    if torch == "torch12":
        divided[2] = -(-moment["asked"][2] // 512) * 512
    client.equal(sorted(b["size"] for b in blocks(moment, "active_allocated")), sorted(divided))

    # 512 MiB allowed, 300 held, 400 asked: PyTorch refuses by itself.
    before, after = found["fraction: before"], found["fraction: after"]
    client.equal(after["lines"], before["lines"], "the driver was asked")
    client.that("Tried to allocate 400.00 MiB" in after["message"] and "512.00 MiB allowed" in after["message"],
                after["message"])
    client.equal(found["no fraction any more"]["lines"], before["lines"] + 1)
    message = found["out of memory"]["message"]
    client.that("Tried to allocate 4.88 GiB" in message and "total capacity of 4.00 GiB" in message, message)
    client.equal(found["out of memory"]["stats"][0]["num_ooms"], 2)

    moment = found["max_split_size_mb: a large block is not split"]
    client.equal([(b["size"], b["state"]) for s in moment["segments"] for b in s["blocks"]],
                 [(64 * MIB, "inactive"), (20 * MIB, "active_allocated")])
    moment = found["max_split_size_mb: but taken whole by a large request"]
    client.equal(sorted((b["size"], b["requested_size"]) for b in blocks(moment, "active_allocated")),
                 [(20 * MIB, 20 * MIB), (64 * MIB, 60 * MIB)])

    # More than half of what is allowed is in use, so cached memory is given back before more is asked for, without a failure.
    before, after = (found[f"garbage_collection_threshold: {when}"] for when in ("before", "after"))
    between = [line[3] for line in plain.ledger[before["lines"]:after["lines"]]]
    client.equal(between, ["linear_free"] * 3 + ["linear_alloc"])
    client.equal(after["stats"][0]["num_alloc_retries"], before["stats"][0]["num_alloc_retries"])
    client.equal(found["cleared after collecting"]["segments"], [])
    recorded_whole(client, traced)


@check_in_each("torch12", "torch13")
def expandable(client, torch):
    client.settings = {"CAPACITY": "1GiB", "CONTEXT_OVERHEAD": "64MiB", "DEVICES": "4"}
    client.variables = {ALLOC_CONF[torch]: "expandable_segments:True"}
    plain, traced = client.with_and_without(torch, "torch_expandable.py")
    found = moments(client, plain)
    client.that(all(s["is_expandable"] for m in found.values() for s in m["segments"]), "not all segments are expandable")
    # Only whole pages of 20 MiB inside of the gap of 50 MiB go back to the driver; the rest stays.
    gap, given, more = (found[name] for name in
                        ("a gap of 50 MiB", "whole pages of the gap given back", "45 MiB more"))
    unmapped = [int(line[5]) for line in plain.ledger[gap["lines"]:given["lines"]] if line[3] == "unmap"]
    client.that(unmapped and set(unmapped) == {20 * MIB} and sum(unmapped) < 50 * MIB, unmapped)
    client.equal(given["free"][0] - gap["free"][0], sum(unmapped))
    client.equal([line[3] for line in plain.ledger[given["lines"]:more["lines"]]], ["create", "map", "access"])
    copies = found["copies between devices"]
    client.equal({s["device"] for s in copies["segments"]}, {0, 1, 2, 3})
    [peers] = [values["peers"] for values in said(plain) if "peers" in values]
    client.equal(peers, [[True] * 3] * 4)
    client.equal(len({tuple(s["segment_pool_id"]) for s in found["a private pool"]["segments"]}), 2)
    client.equal(found["filled"]["stats"][0]["num_ooms"], 2)
    client.equal(found["cleared"]["segments"], [])
    client.equal(Books(plain.ledger).mapped, {})
    recorded_whole(client, traced)


@check_in_each("torch12", "torch13")
def async_backend(client, torch):
    client.settings = {"CAPACITY": "4GiB", "CONTEXT_OVERHEAD": "100MiB"}
    client.variables = {ALLOC_CONF[torch]: "backend:cudaMallocAsync"}
    plain, traced = client.with_and_without(torch, "torch_async.py")
    client.equal(said(plain)[0], {"backend": "cudaMallocAsync"})
    found = moments(client, plain)
    for moment in found.values():
        books = Books(plain.ledger[:moment["lines"]])
        client.equal(moment["free"], books.free[0], moment["moment"])
        if "graph" not in moment["moment"] and moment["moment"] != "all freed":
            client.equal(moment["allocated"], sum(size for _, size in books.pool.values()), moment["moment"])
    client.equal(found["three tensors"]["allocated"], 131 * MIB)
    # Grown by chunks of 32 MiB (tests/simcuda/README.md), or by what a request needs where none fits.
    client.equal(found["three tensors"]["reserved"],
                 sum(int(line[5]) for line in plain.ledger if line[3] == "pool_grow"))
    if torch == "torch12":  # whose message ends before its numbers
        client.equal({found[name]["message"] for name in ("out of memory", "fraction")}, {"Allocation on device "})
    else:
        client.that("Currently allocated     : 101.00 MiB" in found["out of memory"]["message"], found["out of memory"])
        client.that("409.60 MiB" in found["fraction"]["message"], found["fraction"])
    launches = [line for line in plain.ledger if line[3] == "graph_launch"]
    client.equal(len(launches), 2)
    client.equal(sum(line[3] == "graph_alloc" for line in plain.ledger), 4, "two allocations, two launches")
    # PyTorch 2.9 keeps the seed and the offset of the random numbers of graphs, two integers.
    kept = [8, 8] if torch == "torch12" else []
    client.equal([size for _, size in Books(plain.ledger).pool.values()], kept)
    recorded_whole(client, traced)


@check_in_each("torch12", "torch13")
def uncached(client, torch):
    client.variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    plain, traced = client.with_and_without(torch, "torch_uncached.py")
    for values in said(plain)[:2]:
        client.equal(dict(zip(values["addresses"], values["sizes"])), Books(plain.ledger[:values["lines"]]).segments(0))
    client.that("out of memory" in said(plain)[2]["message"], plain.out)
    recorded_whole(client, traced)


def graphs(client, torch):
    client.settings = {"CAPACITY": "4GiB"}
    plain, traced = client.with_and_without(torch, "torch_graphs.py")
    found = moments(client, plain)
    pools = [{tuple(s["segment_pool_id"]) for s in found[name]["segments"]} - {(0, 0)} for name in
             ("a graph with a pool of its own", "a second graph in that pool", "a third with a handle")]
    client.equal([len(ids) for ids in pools], [1, 1, 2])
    client.equal(pools[0], pools[1])
    client.equal({tuple(found[name]["pool"]) for name in found if "pool" in found[name] and "graph" in name}, pools[0])
    # Used by another stream inside of the capture, so it stays taken until the capture ends.
    pending = blocks(found["a graph with a pool of its own"], "active_pending_free")
    client.equal([b["requested_size"] for b in pending], [4 * MIB])
    client.equal(sum(line[3] == "graph_launch" for line in plain.ledger), 2)
    for name in ("graphs gone", "pool gone"):
        client.equal({tuple(s["segment_pool_id"]) for s in found[name]["segments"]}, {(0, 0)})
    [pool] = [values for values in said(plain) if "moment" not in values]
    client.equal({s["address"]: s["total_size"] for s in found["a memory pool"]["segments"]
                  if s["segment_pool_id"] == pool["pool"]}, dict(pool["segments"]))
    recorded_whole(client, traced)


@check_in_each("torch12", "torch13")
def graphs_and_pools(client, torch):
    graphs(client, torch)


@check_in_each("torch12", "torch13")
def graphs_and_pools_expandable(client, torch):
    client.variables = {ALLOC_CONF[torch]: "expandable_segments:True"}
    graphs(client, torch)


@check_in_each("torch12", "torch13")
def host_memory(client, torch):
    plain, traced = client.with_and_without(torch, "torch_host.py")
    found = moments(client, plain)
    first, second, last = found.values()
    live = Books(plain.ledger[:first["lines"]]).host
    # PyTorch rounds to powers of two.
    client.equal([size for _, size in live.values()], [1 << (size - 1).bit_length() for size in first["sizes"]])
    client.equal(first["stats"]["allocated_bytes.current"], sum(size for _, size in live.values()))
    client.equal(Books(plain.ledger[:second["lines"]]).host, live, "a freed block was not taken again")
    registered = [line[3] for line in plain.ledger[second["lines"]:last["lines"]] if "regist" in line[3]]
    client.equal(registered, ["host_register", "host_unregister"])
    recorded_whole(client, traced)


def processes(client, torch):
    client.settings = {"CAPACITY": "4GiB", "CONTEXT_OVERHEAD": "100MiB"}
    client.share_device()
    # The thread that pins batches has as many blocks as its consumer is late.
    plain, traced = client.with_and_without(torch, "torch_processes.py", leaving_out=("host_alloc",))
    sent, received, ended, loaded = said(plain)
    client.equal((sent["index"], sent["shape"], sent["same_type"]), (0, [1 << 20], True))
    # One segment of 20 MiB and a context of 100 MiB in each process; what is shared is held once.
    client.equal(sent["free"], (4096 - 100 - 20) * MIB)
    client.equal(sent["child_reserved"], 0)
    client.equal(sent["child_free"], (4096 - 2 * 100 - 20) * MIB)
    client.equal(received["shape"], [2 << 20])
    client.equal(received["free"], (4096 - 2 * 100 - 2 * 20) * MIB)
    client.that(not any(s["address"] <= received["address"] < s["address"] + s["total_size"] for s in received["segments"]),
                "received memory is among the own segments")
    client.equal((ended["exit"], ended["free"]), (0, sent["free"]))
    client.equal(loaded["sums"], [1000.0 * (4 * i * 4 + 6) for i in range(4)])
    client.equal(len({line[1] for line in plain.ledger}), 2, "processes at the driver: workers have no business there")
    client.nothing_lost()
    return plain, traced


@check_in_each("torch12", "torch13")
def between_processes(client, torch):
    plain, traced = processes(client, torch)
    client.equal(sum(line[3] == "ipc_open" for line in plain.ledger), 2)
    client.books(traced)


@check_in_each("torch12", "torch13")
def between_processes_expandable(client, torch):
    client.variables = {ALLOC_CONF[torch]: "expandable_segments:True"}
    plain, traced = processes(client, torch)
    client.equal([sum(line[3] == what for line in plain.ledger) for what in ("export", "import")], [2, 2])
    client.books(traced)


@check_in_each("torch12", "torch13")
def neighbour(client, torch):
    """PyTorch's message names the processes that have the memory; it asks the management library, and that the devices."""
    client.settings = {"CAPACITY": "1GiB", "CONTEXT_OVERHEAD": "100MiB"}
    client.share_device()
    plain, traced = client.with_and_without(torch, "torch_neighbour.py")
    # A context of 100 MiB each, and 300 and 200 MiB of 1024.
    client.equal(said(plain), [{"others": [["neighbour", "400.00 MiB"]], "own": ["300.00 MiB"], "exit": 0,
                                "free": ["324.00 MiB"]}])
    recorded_whole(client, traced)


@check_in_each("torch12", "torch13")
def profiler(client, torch):
    plain, traced = client.with_and_without(torch, "torch_profiler.py")
    [values] = said(plain)
    client.equal(values["profiled"], [-7 * MIB, 1 * MIB, 7 * MIB, 30 * MIB])
    client.equal([entry for entry in values["history"] if not entry[0].startswith("segment")],
                 [["alloc", 1 * MIB], ["alloc", 7 * MIB], ["alloc", 30 * MIB], ["free_requested", 7 * MIB],
                  ["free_completed", 7 * MIB]])
    given = [int(line[5]) for line in plain.ledger if line[3] == "linear_alloc"]
    client.equal([size for action, size in values["history"] if action == "segment_alloc"], given[1:])
    client.that(values["framed"], "entries without frames")
    recorded_whole(client, traced)


def symbols(library):
    """Names with their symbol versions that a library defines, by its dynamic symbol table."""
    said_by_nm = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)], check=True,
                                capture_output=True, text=True).stdout
    return {line.split()[-1] for line in said_by_nm.splitlines()}


def runtime_version(library):
    """What cudaRuntimeGetVersion says, which needs no driver."""
    said_by_library = subprocess.run(
        [sys.executable, "-c", "import ctypes, sys; version = ctypes.c_int(); "
         "sys.exit(ctypes.CDLL(sys.argv[1]).cudaRuntimeGetVersion(ctypes.byref(version)) or print(version.value))",
         str(library)], check=True, capture_output=True, text=True).stdout
    return int(said_by_library)


@check_in_each("torch12", "torch13")
def runtime_symbols(client, torch):
    """The stand-in has every symbol that NVIDIA's library of the same name has, under the same version; and no other, where
    the headers that it is made from are of the same release: a later one adds symbols."""
    stand_in = pathlib.Path(client.preload(torch))
    [real] = client.python(torch).parents[1].glob(f"lib/python3*/site-packages/nvidia/*/lib/{stand_in.name}")
    theirs, ours = symbols(real), symbols(stand_in)
    client.that(len(theirs) > 400, len(theirs))
    client.equal(sorted(theirs - ours), [], "missing")
    if runtime_version(stand_in) == runtime_version(real):
        client.equal(sorted(ours - theirs), [], "unexpected")
