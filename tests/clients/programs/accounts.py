"""For the programs of this folder: says, as one JSON object a line, what PyTorch holds and how far the driver's ledger is.

The check that runs the program has the ledger; the number of its lines at a moment makes the two comparable.
"""
import json
import os

import torch

SEGMENT = ("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "segment_type",
           "segment_pool_id", "is_expandable")
STREAMS = {0: 0}  # numbers for streams: what PyTorch says is an address of the program's own


def say(**values):
    print(json.dumps(values), flush=True)


def ledger_lines():
    with open(os.environ["FRAGSCOPE_SIM_LEDGER"], "rb") as ledger:
        return ledger.read().count(b"\n")


def segments():
    return [{**{key: segment[key] for key in SEGMENT}, "stream": STREAMS.setdefault(segment["stream"], len(STREAMS)),
             "blocks": [
                 {key: block[key] for key in ("address", "size", "requested_size", "state")}
                 for block in segment["blocks"]]}
            for segment in torch.cuda.memory._snapshot()["segments"]]


def counted(device):
    return {key: value for key, value in torch.cuda.memory_stats(device).items() if value != 0}


def moment(name, devices=(0,), **more):
    """All the accounts of the native allocator, once nothing is pending on these devices."""
    for device in devices:
        torch.cuda.synchronize(device)
    say(moment=name, segments=segments(), stats=[counted(device) for device in devices], devices=list(devices),
        free=[torch.cuda.mem_get_info(device)[0] for device in devices], lines=ledger_lines(), **more)


def mebibytes(count, device="cuda"):
    return torch.empty(int(count * (1 << 20)), dtype=torch.uint8, device=device)


def refused(count, device="cuda"):
    """The message of the out-of-memory exception."""
    try:
        mebibytes(count, device)
    except torch.cuda.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"{count} MiB were given out")
