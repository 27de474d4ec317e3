"""The Python bindings of the driver and what stands on them: cuda.bindings, cuda.core, numba-cuda; how far CuPy comes."""
import collections
import json
import subprocess

from bench import payload
from registry import check
from simulated import said

MIB = 1 << 20


def agrees(client):
    """The trace against the driver's ledger, event for event and both ways (tests/soak/match.h)."""
    result = subprocess.run([client.build / "tests/soak/soak_check", client.trace, client.folder / "ledger"],
                            capture_output=True, text=True, timeout=client.timeout, check=False)
    client.equal(result.returncode, 0, result.stderr)
    numbers = json.loads(result.stdout)
    client.that(numbers["matched_records"], numbers)
    client.checks += numbers["matched_records"]
    client.nothing_lost()


def claims_are_recorded(client):
    """Every allocation that the program says it got is in the trace: its kind, its place, its bytes as asked."""
    recorded = collections.Counter()
    for event in client.events():
        if event["result"] != 0:
            continue
        place, size, handle = payload(event, 0), payload(event, 1), payload(event, 2)
        if event["kind"] in ("handle_created", "pool_created"):
            recorded[(event["kind"], handle, size if event["kind"] == "handle_created" else 0)] += 1
        else:
            recorded[(event["kind"], place, 0 if event["kind"] == "pitch_acquired" else size)] += 1
    claims = [json.loads(line) for line in (client.folder / "claims").read_text().splitlines()]
    client.that(claims, "the program claims no allocation")
    claimed = collections.Counter((line["kind"], line["where"], line["bytes"]) for line in claims)
    client.equal([each for each in claimed if recorded[each] < claimed[each]], [], "claimed, and not in the trace")


def failures(client):
    """Bytes of the failed acquisitions, in the trace's order."""
    return [payload(event, 1) for event in client.events() if event["kind"].endswith("_acquired") and event["result"] == 2]


@check("bindings13")
def driver(client):
    plain, _ = client.with_and_without("bindings13", "bindings_driver.py")
    refused, last = [line for line in said(plain) if "free_total" in line]
    agrees(client)
    claims_are_recorded(client)
    client.equal(failures(client), [refused["refused"]])
    # At the end: 64 MiB leaked; live above it until then 2 + 4 + 4 MiB of pages (1 MiB + 1 byte, 3 MiB, a mapping) and
    # the default pool's chunk.
    context = 256 * MIB
    client.equal(last["free_total"], [8192 * MIB - context - (64 + 2 + 4 + 4 + 32) * MIB, 8192 * MIB])
    leaked = [int(line[6]) for line in plain.ledger if line[3] == "linear_alloc" and int(line[5]) == 64 * MIB]
    client.equal(leaked, [64 * MIB])


@check("bindings13")
def core(client):
    plain, _ = client.with_and_without("bindings13", "bindings_core.py")
    agrees(client)
    claims_are_recorded(client)
    client.equal(failures(client), [512 * MIB])
    grown = [line for line in said(plain) if "grown" in line][0]
    # Grown out of two mappings, the moved one and a new one, side by side.
    maps = {int(line[4], 16): int(line[5]) for line in plain.ledger if line[3] == "map"}
    client.equal((maps[grown["grown"]], maps[grown["grown"] + 4 * MIB]), (4 * MIB, 6 * MIB))
    client.equal(grown["bytes"], 10 * MIB)


@check("bindings13")
def numba(client):
    plain, _ = client.with_and_without("bindings13", "bindings_numba.py")
    agrees(client)
    claims_are_recorded(client)
    # numba frees what is pending and tries once more, so that one refusal to the program is two of the driver.
    client.equal(failures(client), [1 << 40, 1 << 40])
    start, full, deferred, cleared, end = [line["free"] for line in said(plain) if "free" in line]
    client.equal(start, (8192 - 256) * MIB)
    # 4,000,000 bytes are two pages; 120 bytes lie in a shared page; 2 MiB are one.
    client.equal((start - full, start - deferred, start - cleared, start - end), (8 * MIB, 8 * MIB, 2 * MIB, 0))


@check("bindings13")
def numba_manager(client):
    """A memory manager of the program's: the driver sees one block, whatever numba asks of it."""
    plain, _ = client.with_and_without("bindings13", "bindings_numba_manager.py")
    agrees(client)
    claims_are_recorded(client)
    client.equal([int(line[5]) for line in plain.ledger if line[3] == "linear_alloc"], [32 * MIB])
    inside = said(plain)[-1]
    client.equal(inside, {"inside": 8192, "free": 32 * MIB - 8192 - MIB})


def stops(client, name, table, version, tries):
    """NVIDIA's runtime, embedded in the client, asks for a private table that is not there, and ends with error 500."""
    client.settings["LOG"] = client.folder / "log"
    plain, _ = client.both(*client.command("bindings13", "bindings_stops.py", name))
    client.equal(said(plain), [{"version": version, "errors": [500] * tries}])
    lines = [line.split() for line in (client.folder / "log").read_text().splitlines()]
    tables = collections.defaultdict(list)  # by process: the runs without and with the recorder
    for line in lines:
        if line[2] == "table":
            tables[line[0]].append(line[3:])
    client.equal([each[-1] for each in tables.values()], [[table, "NOT_FOUND"]] * 2)
    client.equal([line for line in plain.ledger if line[3].endswith(("_alloc", "_create"))], [])


@check("bindings13")
def bindings_runtime_stops(client):
    stops(client, "runtime", "21318c60-9714-3248-8ca6-41ff7324c8f2", 13040, 1)


@check("bindings13")
def cupy_stops(client):
    # The keyed check by which the runtime authenticates the driver (tests/simcuda/README.md).
    stops(client, "cupy", "d4082055-bde6-704b-8d34-ba123c66e1f2", 13020, 2)
