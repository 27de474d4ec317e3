"""The soak: families of processes that use GPU memory at random and die at random, recorded on the simulated GPU, round
after round, each round's trace held against the simulated driver's own ledger, event for event (soak_check.cpp).

Usage: soak.py BUILD_ROOT EVENTS [SEED]     ends after the round in which EVENTS records were matched
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

# What one round is: workers, how many at a time, most threads in each, steps in each thread.
PROCESSES, AT_ONCE, THREADS, STEPS = 60, 4, 4, 1500
# Errors that the simulated driver answers now and then, by function.
FAULTS = {"cuMemAlloc_v2": "2@every:997", "cuMemCreate": "2@every:211", "cuMemFreeAsync": "1@every:701",
          "cuMemMap": "1@every:307", "cuMemAllocAsync": "2@every:499"}


def environment(root, ledger):
    env = {name: value for name, value in os.environ.items() if not name.startswith("FRAGSCOPE_SIM")}
    env["LD_LIBRARY_PATH"] = str(root / "tests/simcuda")
    env["FRAGSCOPE_SIM_LEDGER"] = str(ledger)
    env["FRAGSCOPE_SIM_SHARED"] = f"fragscope-soak-{os.getpid()}"
    env["FRAGSCOPE_SIM_CAPACITY"] = "16GiB"
    env.update({f"FRAGSCOPE_SIM_FAULT_{name}": value for name, value in FAULTS.items()})
    return env


def one_round(root, folder, seed, processes=PROCESSES, steps=STEPS):
    trace, ledger = folder / "soak.fst", folder / "ledger.txt"
    for file in (trace, ledger):
        file.unlink(missing_ok=True)
    program = [root / "tests/soak/soak_program", "family", seed, processes, AT_ONCE, THREADS, steps]
    begun = time.monotonic()
    ran = subprocess.run([str(word) for word in [root / "tools/fragscope", "run", "-q", "-o", trace, "--on-full",
                                                 "wait:10s", "--", *program]],
                         env=environment(root, ledger), capture_output=True, text=True)
    took = time.monotonic() - begun
    assert ran.returncode == 0, f"round {seed}: status {ran.returncode}: {ran.stdout}{ran.stderr}"
    print(f"round {seed}: {ran.stdout.strip()} {took:.1f} s, ledger {ledger.stat().st_size >> 20} MiB", flush=True)
    checked = subprocess.run([root / "tests/soak/soak_check", trace, ledger], capture_output=True, text=True)
    print(f"round {seed}: {checked.stdout.strip()}", flush=True)
    if checked.returncode != 0:
        kept = pathlib.Path(os.environ.get("SOAK_KEEP", folder))
        if kept != folder:
            shutil.copy(trace, kept)
            shutil.copy(ledger, kept)
        sys.exit(f"round {seed}: the trace is not what the ledger says:\n{checked.stderr}")
    return json.loads(checked.stdout), took


def without(lines, at):
    return lines[:at] + lines[at + 1:]


def altered(lines, at, column, value):
    words = lines[at].split("\t")
    words[column] = value
    return lines[:at] + ["\t".join(words)] + lines[at + 1:]


def check_the_check(root, folder):
    """The check finds what is wrong: against a ledger that was tampered with in one line, the same trace fails."""
    lines = (folder / "ledger.txt").read_text().splitlines(keepends=True)
    # In the middle of a thread's work: no call can have been under way there when its process was killed or became another
    # program, and what a context's end frees, which the check only counts, is not near.
    later = 30
    places = {}
    for i, line in enumerate(lines):
        places.setdefault(tuple(line.split("\t", 3)[1:3]), []).append(i)
    steady = set()
    for mine in places.values():
        ends = [n for n, i in enumerate(mine) if lines[i].split("\t")[3].startswith("context_")] + [len(mine)]
        for n, i in enumerate(mine):
            while ends[0] < n:
                ends.pop(0)
            if ends[0] - n > later:
                steady.add(i)

    def find(operation):
        found = [i for i, line in enumerate(lines) if line.split("\t")[3] == operation]
        among = [i for i in found if i in steady] or found  # contexts themselves are never in the middle
        return among[len(among) // 2]

    tampered = {}
    for operation in ("linear_alloc", "linear_free", "managed_alloc", "host_free", "create", "release", "map", "unmap",
                      "reserve", "pool_alloc", "pool_free_asked", "context_create", "retain", "import",
                      "graph_node_alloc", "pitch_alloc", "array_create", "array_destroy", "graph_launch", "graph_destroy"):
        at = find(operation)
        tampered[f"{operation} left out"] = without(lines, at)
        if operation != "context_create":  # the ledger's numbers of contexts are its own
            tampered[f"{operation} of another object"] = altered(lines, at, 4, "0x7000beef")
    for operation in ("linear_alloc", "managed_alloc", "create", "map", "reserve", "pool_alloc", "pitch_alloc", "unmap"):
        tampered[f"{operation} of other bytes"] = altered(lines, find(operation), 5, "12345")
    tampered["map of another handle"] = altered(lines, find("map"), 9, "0x7000beef\n")
    tampered["pool_alloc from another pool"] = altered(lines, find("pool_alloc"), 9, "0x7000beef\n")
    at = find("linear_alloc")
    tampered["twice"] = lines[:at] + [lines[at]] + lines[at:]
    tampered["in another thread"] = altered(lines, at, 2, "1")
    tampered["on another device"] = altered(lines, at, 7, str(1 - int(lines[at].split("\t")[7])))
    for what, text in tampered.items():
        (folder / "tampered.txt").write_text("".join(text))
        checked = subprocess.run([root / "tests/soak/soak_check", folder / "soak.fst", folder / "tampered.txt"],
                                 capture_output=True, text=True)
        assert checked.returncode == 1, f"the check did not find {what}"
    print(f"tampered with in {len(tampered)} ways, the ledger was found to be another each time", flush=True)


def main():
    root, wanted = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    sums, seconds, rounds = {}, 0.0, 0
    with tempfile.TemporaryDirectory(prefix="fragscope-soak-") as scratch:
        one_round(root, pathlib.Path(scratch), seed, 12, 400)
        check_the_check(root, pathlib.Path(scratch))
        while sums.get("matched_records", 0) < wanted:
            numbers, took = one_round(root, pathlib.Path(scratch), seed + rounds)
            for name, value in numbers.items():
                sums[name] = sums.get(name, 0) + value
            seconds += took
            rounds += 1
    print(f"{sums['matched_records']} records of {sums['images']} program images in {sums['processes']} processes are the "
          f"ledger's {sums['ledger_lines']} lines, {sums['under_way']} calls having been under way when "
          f"{sums['images'] - sums['whole_images']} images ended early; {sums['failed_calls']} failed calls; "
          f"{rounds} rounds, {seconds:.0f} s")


main()
