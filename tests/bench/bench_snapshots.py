"""Memory snapshots of PyTorch: how fast one is read and walked, and how much memory that takes, beside Python's pickle and
the plainest replay in Python of the same file.

Usage: bench_snapshots.py FRAGSCOPE [ENTRIES]
"""
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import time

# What a reader in Python does at the least: load, then keep what is live after each entry, and the most there ever was.
REPLAY = """
import pickle, sys, time
begun = time.monotonic()
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
loaded = time.monotonic()
live, total, most = {}, 0, 0
for entry in snapshot["device_traces"][0]:
    action = entry["action"]
    if action == "alloc":
        live[entry["addr"]] = entry["size"]
        total += entry["size"]
        most = max(most, total)
    elif action == "free_completed":
        total -= live.pop(entry["addr"], 0)
print(loaded - begun, time.monotonic() - loaded)
"""


def make(path, entries):
    """A training loop's list: blocks of one segment of 1 MiB slots each, taken and given back, with shared stacks."""
    choose = random.Random(1)
    frames = [{"filename": f"/work/layer_{i}.py", "line": i, "name": f"forward_{i}"} for i in range(300)]
    stacks = [choose.sample(frames, 12) for _ in range(500)]
    slots, slot = 4096, 2 << 20
    base = 0x7f0000000000
    unused, live, trace, now = list(range(slots)), {}, [], 1_700_000_000_000_000

    def add(action, address, size):
        trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": now,
                      "compile_context": "N/A", "user_metadata": "", "frames": choose.choice(stacks)})
    while len(trace) < entries:
        now += choose.randint(1, 20)
        if unused and (choose.random() < 0.5 or not live):
            at = unused.pop(choose.randrange(len(unused)))
            live[at] = choose.randint((1 << 20) + 1, slot)
            add("alloc", base + at * slot, live[at])
        else:
            at, size = live.popitem()
            unused.append(at)
            add("free_requested", base + at * slot, size)
            add("free_completed", base + at * slot, size)
    segments = [{"device": 0, "address": base + at * slot, "total_size": slot, "allocated_size": slot * (at in live),
                 "active_size": slot * (at in live), "requested_size": live.get(at, 0), "stream": 0, "segment_type": "large",
                 "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                 "blocks": [{"address": base + at * slot, "size": slot, "requested_size": live.get(at, 0),
                             "state": "active_allocated" if at in live else "inactive", "frames": []}]}
                for at in range(slots)]
    with open(path, "wb") as file:
        pickle.dump({"segments": segments, "device_traces": [trace]}, file)


def timed(*words):
    """Seconds, and the most memory in MiB."""
    begun = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"bench_snapshots: {words}: status {status}")
    return time.monotonic() - begun, used.ru_maxrss / 1024, said


def main(fragscope, entries):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "snapshot.pickle"
        make(path, entries)
        mib = path.stat().st_size / (1 << 20)
        print(f"a snapshot of {entries:,} entries, {mib:.0f} MiB")
        print(f"{'':<34}{'seconds':>9}{'MiB/s':>9}{'M entries/s':>13}{'peak MiB':>10}")

        def row(what, seconds, peak):
            print(f"{what:<34}{seconds:>9.2f}{mib / seconds:>9.1f}{entries / seconds / 1e6:>13.2f}{peak:>10.0f}")
        seconds, peak, _ = timed(fragscope, "import", path, "-o", pathlib.Path(name) / "t.fst")
        row("fragscope import, to a trace", seconds, peak)
        seconds, peak, _ = timed(fragscope, "explain", path, "--json")
        row("fragscope explain", seconds, peak)
        seconds, peak, said = timed(sys.executable, "-c", REPLAY, path)
        loaded, replayed = map(float, said.split())
        row("Python: pickle.load", loaded, peak)
        row("Python: load and replay", loaded + replayed, peak)


main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300_000)
