"""Expandable segments on four devices: growth, whole pages given back, peer copies, out of memory, a private pool."""
import torch

from accounts import mebibytes, moment, refused, say


def main():
    devices = range(torch.cuda.device_count())
    kept = [mebibytes(n) for n in (0.5, 1, 3, 50, 300)]
    moment("grown")
    del kept[3]
    moment("a gap of 50 MiB")
    torch.cuda.empty_cache()
    moment("whole pages of the gap given back")
    kept.append(mebibytes(45))
    moment("45 MiB more")

    values = torch.arange(100000, dtype=torch.int64)
    here = [values.to(f"cuda:{device}") for device in devices]
    for device in devices:
        there = here[device].to(f"cuda:{(device + 1) % len(devices)}", copy=True)
        assert torch.equal(there.cpu(), values), "a copy between devices lost its bytes"
        here[device] = there
    moment("copies between devices", devices)
    say(peers=[[torch.cuda.can_device_access_peer(a, b) for b in devices if a != b] for a in devices])

    stream = torch.cuda.Stream()
    used = mebibytes(30)
    used.record_stream(stream)
    del used
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        private = mebibytes(7)
    moment("a private pool")
    message = refused(1500)
    moment("out of memory", message=message)
    filled = []
    try:
        while True:
            filled.append(mebibytes(100))
    except torch.cuda.OutOfMemoryError:
        pass
    moment("filled", pieces=len(filled))
    del filled, private, pool, kept, here, there
    torch.cuda.empty_cache()
    moment("cleared", devices)


main()
