"""What a program says it was given: its kind as the trace names it, its place, the bytes that it asked for.

On stdout, where two runs are compared, without the places that differ in each run of any program: its own heap and
libraries. In full in the file `claims`, one JSON object a line.
"""
import json

DEVICE = 0x800000000000  # the simulated driver's device addresses begin here, and its handles of memory are small
OWN = 0x550000000000

_file = open("claims", "w", encoding="utf-8", buffering=1)


def got(kind, where, size, **more):
    place = int(where)
    print(json.dumps({"kind": kind, "where": "own" if OWN <= place < DEVICE else place, "bytes": size, **more}), flush=True)
    print(json.dumps({"kind": kind, "where": place, "bytes": size}), file=_file)


def say(**values):
    print(json.dumps(values), flush=True)
