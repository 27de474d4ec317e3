"""What the shim adds to an allocator that reports its blocks: instructions of one thing done, by valgrind's callgrind.

Usage: bench_blocks.py --fragscope PATH --blocks PROGRAM --framework FOLDER
PROGRAM is tests/preload/blocks, FOLDER holds the stand-ins of PyTorch's libraries; the driver is a fake that does nothing.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile

WHAT = {
    "pair": "a block taken and given back",
    "waiting": "the same, used on another stream: event, query",
    "event": "another event recorded in the allocator's library",
    "query": "a query of an event that no block waits for",
    "stream": "CUDAStream::stream() of anybody else's",
}


def instructions(before, arguments, what, times):
    command = [*before, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", arguments.blocks, "cost",
               arguments.framework, "local", what, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        sys.exit(f"bench_blocks: {' '.join(map(str, command))}:\n{done.stderr}")
    return int(found.group(1))


def each(before, arguments, what):
    few, many = 1000, 11000
    return (instructions(before, arguments, what, many) - instructions(before, arguments, what, few)) / (many - few)


def main():
    parser = argparse.ArgumentParser()
    for name in ("fragscope", "blocks", "framework"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("bench_blocks: valgrind is not installed, nothing was measured")
        sys.exit(77)
    print(f"{'instructions of':<52} {'alone':>8} {'recorded':>9} {'added':>8}")
    with tempfile.TemporaryDirectory() as folder:
        recorder = [arguments.fragscope, "run", "-q", "--force", "-o", f"{folder}/t.fst", "--sample=off", "--"]
        for what, words in WHAT.items():
            alone, recorded = each([], arguments, what), each(recorder, arguments, what)
            print(f"{words:<52} {alone:>8.0f} {recorded:>9.0f} {recorded - alone:>8.0f}", flush=True)


main()
