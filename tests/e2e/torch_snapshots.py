"""PyTorch's memory snapshots from the outside: files that a model of its allocator writes (torch_model.py), in every
protocol and form, against what the model held.

Usage: torch_snapshots.py BUILD CHECK
With FRAGSCOPE_TORCH_CORPUS, a folder of real snapshots with an EXPECTED.tsv above it, the check `corpus` looks at those too.
"""
import copy
import csv
import gzip
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

from torch_model import FRAMES, MIB, Allocator, OutOfMemory, run, snapshot

FRAGSCOPE = pathlib.Path(sys.argv[1]) / "tools" / "fragscope"


def call(*words, status=(0,)):
    result = subprocess.run([FRAGSCOPE, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert result.returncode in status, (words, result.returncode, result.stdout[-2000:], result.stderr[-2000:])
    return result


def report(path, status=(0,)):
    return json.loads(call("report", path, "--json", status=status).stdout)


def sums(device):
    return {key: int(device.get(key, -1)) for key in Allocator().expected()}


def write(path, content, protocol=4, zipped=False):
    data = pickle.dumps(content, protocol=protocol)
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


def program(seed, **options):
    allocator = Allocator(**options)
    run(allocator, random.Random(seed), 400, streams=(0, 0x5500), pools=((0, 0), (0, 0), (0, 1)))
    return allocator


# ---------------------------------------------------------------------------------------------------------- checks

def totals(folder):
    """Every generation of the format, every protocol, gzipped or not: the sums are the model's."""
    first, second = program(1), program(2, device=1)
    whole = snapshot(first, second)
    forms = {"whole": whole, "list": whole["segments"], "segments only": {"segments": whole["segments"]}}
    old = copy.deepcopy(whole["segments"])
    for segment in old:
        for key in ("segment_pool_id", "is_expandable", "frames", "requested_size"):
            del segment[key]
        for block in segment["blocks"]:
            del block["address"]
            frames = block.pop("frames")
            if block["state"] != "inactive":
                block["history"] = [{"addr": 0, "real_size": block["requested_size"], "frames": frames}]
            del block["requested_size"]
            if block["state"] == "active_pending_free":
                block["state"] = "active_awaiting_free"
    entries = [[{k: v for k, v in entry.items() if k not in ("time_us", "pool_id")} for entry in trace]
               for trace in whole["device_traces"]]
    forms["as in 2022"] = {"segments": old, "device_traces": entries}
    extended = copy.deepcopy(whole)
    for entry in extended["device_traces"][0]:
        entry.update(compile_context="1/0", user_metadata="")
    extended["device_traces"][0].append({"action": "user_defined", "addr": 0, "size": 0, "stream": 0, "time_us": first.time,
                                         "user_metadata": "epoch 3", "frames": []})
    extended["host_segments"] = []
    extended["host_traces"] = []
    extended["a_key_of_tomorrow"] = [1, {"x": None}]
    forms["extended"] = extended
    for name, content in forms.items():
        for protocol in range(6):
            for zipped in (False, True):
                devices = report(write(folder / "s.pickle", content, protocol, zipped))["devices"]
                for allocator, device in zip((first, second), devices, strict=True):
                    expected = allocator.expected()
                    if name in ("list", "segments only"):
                        expected["trace_entries"] = 0
                    if name == "extended" and allocator is first:
                        expected["trace_entries"] += 1
                    assert sums(device) == expected, (name, protocol, zipped, sums(device), expected)


def walk(folder):
    """Each sum that the list itself states is what the walk comes to, wherever the ring buffer begins; so is the end."""
    for seed in range(6):
        for kept, expandable in ((None, False), (500, False), (120, False), (None, True), (200, True)):
            # Sizes that fill their segments or leave more than 1 MiB: what an entry asks for then tells the block's size.
            allocator = Allocator(entries=kept, expandable=expandable, capacity=700 * MIB)
            run(allocator, random.Random(seed), 500, streams=(0, 0x5500),
                sizes=[100, 512, 3000, 70_000, 900_000, 2 * MIB, 4 * MIB, 10 * MIB, 12 * MIB, 20 * MIB, 40 * MIB])
            allocator.note()
            path = write(folder / "s.pickle", snapshot(allocator))
            said = report(path)
            assert not said["health"].get("warnings"), (seed, kept, expandable, said["health"])
            assert sums(said["devices"][0]) == allocator.expected()
            noted = [entry["size"] for entry in allocator.entries if entry["action"] == "snapshot"]
            states = [json.loads(line) for line in
                      call("state", path, "--at", "mark:snapshot*", "--json").stdout.splitlines()]
            active = [int(a["totals"].get("live_bytes", 0)) + int(a["totals"].get("waiting_bytes", 0))
                      for state in states for a in state["framework"]]
            assert active == noted, (seed, kept, expandable, active, noted)


def cause(folder, allocator):
    lines = call("explain", write(folder / "s.pickle", snapshot(allocator)), "--json").stdout.splitlines()
    said = json.loads(lines[-1])
    verdict = said["verdict"]
    return verdict.get("cause"), verdict.get("constraint", ""), said


def oom(folder):
    """What the model's allocator gave up, for the reason that the model was brought to."""
    def failing(allocator, size, **where):
        try:
            allocator.alloc(size, **where)
        except OutOfMemory:
            return cause(folder, allocator)
        raise AssertionError("it had room")

    # All in use, and little left on the device: 1,000 MiB of 1,024.
    full = Allocator(capacity=1024 * MIB)
    for _ in range(10):
        full.alloc(100 * MIB)
    assert failing(full, 300 * MIB)[0] == "capacity_exhaustion"
    # Every other block of segments that are shared is free: 50 x 10 MiB, and no gap of more.
    holes = Allocator(capacity=1010 * MIB, expandable=True)
    blocks = [holes.alloc(10 * MIB) for _ in range(100)]
    for address in blocks[::2]:
        holes.free(address)
    assert failing(holes, 100 * MIB)[0] == "allocator_external_fragmentation"
    # The same bytes in one piece, but a private pool's.
    private = Allocator(capacity=1010 * MIB)
    private.alloc(500 * MIB)
    private.free(private.alloc(480 * MIB, pool=(0, 1)))
    got = failing(private, 300 * MIB)
    assert got[:2] == ("other_constraint", "pool_ownership"), got[:2]
    # In one piece, but the program's free waits for another stream.
    waits = Allocator(capacity=1010 * MIB)
    waits.alloc(500 * MIB)
    waits.free(waits.alloc(480 * MIB), pending=True)
    got = failing(waits, 300 * MIB)
    assert got[:2] == ("other_constraint", "pending_frees"), got[:2]
    # The driver has the memory: a limit of the allocator's own, or a refusal, and the file does not say which.
    limited = Allocator(capacity=1010 * MIB)
    limited.alloc(100 * MIB)
    limited.record("oom", 900 * MIB, 200 * MIB, 0, (0, 0), FRAMES[0])
    got = cause(folder, limited)
    assert got[0] == "undetermined" and "get_per_process_memory_fraction" in json.dumps(got[2]), got[:2]


def export(folder):
    """Snapshot, trace, snapshot: the same segments, blocks, list and stacks."""
    for expandable in (False, True):
        allocator = program(3, entries=300, expandable=expandable)
        original = snapshot(allocator)
        path = write(folder / "s.pickle", original)
        call("import", path, "-o", folder / "t.fst", "--force")
        call("export", folder / "t.fst", "--to", "torch-snapshot", "-o", folder / "e.pickle", "--force")
        assert sums(report(folder / "t.fst")["devices"][0]) == allocator.expected()
        assert sums(report(folder / "e.pickle")["devices"][0]) == allocator.expected()
        written = pickle.loads((folder / "e.pickle").read_bytes())
        for segment in (*written["segments"], *original["segments"]):
            segment["frames"] = []
        assert written["segments"] == original["segments"]
        # A block that was gone at once was so at one time.
        strip = [[{k: v for k, v in e.items() if k not in ("pool_id", "frames") and (k, e["action"]) != ("time_us", "free_completed")}
                  for e in t] for t in (written["device_traces"][0], original["device_traces"][0])]
        assert strip[0] == strip[1], next((a, b) for a, b in zip(*strip) if a != b)
        assert ([e["frames"] for e in written["device_traces"][0] if e["action"] == "alloc"]
                == [e["frames"] for e in original["device_traces"][0] if e["action"] == "alloc"])


def bad(folder):
    """Whatever is wrong with a file is said in one sentence with its place, and nothing of it is passed off as an answer."""
    good = pickle.dumps(snapshot(program(4)), protocol=4)

    def refused(data, words):
        (folder / "b.pickle").write_bytes(data)
        result = call("report", folder / "b.pickle", status=(1,))
        assert words in result.stderr and not result.stdout and result.stderr.count("\n") == 1, (words, result.stderr)

    for cut in range(20, len(good), max(1, len(good) // 40)):
        refused(good[:cut], "the file ends at offset")

    class Runs:
        def __reduce__(self):
            return os.system, ("touch " + str(folder / "ran"),)
    for protocol in range(2, 6):
        refused(pickle.dumps({"segments": Runs()}, protocol=protocol), "would import")
    assert not (folder / "ran").exists()
    refused(pickle.dumps({"weights": [1, 2]}), "the dictionary has no 'segments', but 'weights'")
    refused(pickle.dumps(5), "the pickle is a whole number")
    refused(pickle.dumps({"segments": [1]}), "'segments' holds a whole number")
    refused(pickle.dumps({"segments": [{"address": 1, "total_size": "x", "blocks": []}]}), "'total_size' is 'x'")
    refused(pickle.dumps({"segments": [{"address": 1, "total_size": 2 ** 70, "blocks": []}]}), "more than 64 bits")
    refused(pickle.dumps({"segments": [{"total_size": 1, "blocks": []}]}), "a segment without its 'address'")
    # Of one that contradicts itself the answer says so.
    odd = snapshot(program(5))
    odd["segments"][0]["total_size"] += 512
    odd["device_traces"][0].append({"action": "defragment", "addr": 1, "size": 2, "stream": 0, "time_us": 1, "frames": []})
    warnings = " ".join(report(write(folder / "b.pickle", odd), status=(3,))["health"]["warnings"])
    assert "come up to" in warnings and "'defragment', which is not known here" in warnings, warnings


def corpus(folder):
    """Real files, where their folder is given."""
    place = os.environ.get("FRAGSCOPE_TORCH_CORPUS")
    if not place:
        print("FRAGSCOPE_TORCH_CORPUS is not set: no real files were looked at")
        return
    place = pathlib.Path(place)
    with open(place.parent / "EXPECTED.tsv", encoding="utf-8") as table:
        for row in csv.DictReader(table, delimiter="\t"):
            said = report(place / row["file"], status=(0, 3))
            assert not said["health"].get("warnings"), (row["file"], said["health"]["warnings"])
            got = [sums(device) for device in said["devices"]]
            for key in got[0]:
                value = max(g[key] for g in got) if key.startswith("largest") else sum(g[key] for g in got)
                assert value == int(row[key]), (row["file"], key, value, row[key])


CHECKS = {check.__name__: check for check in (totals, walk, oom, export, bad, corpus)}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        CHECKS[sys.argv[2]](pathlib.Path(name))
    print("as it should be")
