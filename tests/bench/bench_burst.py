"""What is lost when threads call the driver without a pause: THREADS threads, by size of the buffer and by --on-full.

Usage: bench_burst.py --fragscope PATH --driver FOLDER --burst PROGRAM [--threads N] [--pairs N] [--rounds N]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile


def once(arguments, folder, options):
    trace = os.path.join(folder, "t.fst")
    shared = f"burst-{os.getpid()}"
    env = {**os.environ, "LD_LIBRARY_PATH": arguments.driver, "FRAGSCOPE_SIM_SHARED": shared}
    command = [arguments.fragscope, "run", "-q", "--force", "-o", trace, "--no-touches", "--stacks=off", "--sample=off", *options, "--",
               arguments.burst, str(arguments.threads), str(arguments.pairs)]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    os.unlink(f"/dev/shm/fragscope-sim-{shared}")
    listing = subprocess.run([arguments.fragscope, "dump", "--env", "--json", trace], capture_output=True, text=True, check=True).stdout
    end = json.loads(listing.splitlines()[-1])
    recorded = int(end["events"])
    whole = 2 * arguments.threads * arguments.pairs
    return float(re.match(r"[0-9.]+", said)[0]), 100 * max(0, whole - recorded) / whole


def main():
    parser = argparse.ArgumentParser()
    for name in ("fragscope", "driver", "burst"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    kinds = [("8 MiB, drop", ["--buffer", "8MiB", "--on-full=drop"]), ("128 MiB, drop", ["--on-full=drop"]),
             ("512 MiB, drop", ["--buffer", "512MiB", "--on-full=drop"]), ("128 MiB, wait:5ms", ["--on-full=wait:5ms"])]
    print(f"bench_burst: {arguments.threads} threads, {arguments.pairs} pairs of calls each, median of {arguments.rounds} rounds")
    print(f"{'buffer, when full':<22} {'million calls/s':>16} {'events lost':>12}")
    with tempfile.TemporaryDirectory() as folder:
        results = {name: [] for name, _ in kinds}
        for _ in range(arguments.rounds):
            for name, options in kinds:
                results[name].append(once(arguments, folder, options))
        for name, _ in kinds:
            speed, lost = (statistics.median(column) for column in zip(*results[name]))
            print(f"{name:<22} {speed:>16.2f} {lost:>11.1f}%")


main()
