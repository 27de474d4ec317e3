"""A few requests of PyTorch's allocator, on two streams and in a private pool, one that waits for a stream and one that no
device has room for; then PyTorch's own snapshot as a file.

Usage: torch_snapshot.py OUT
"""
import os
import sys

import torch

MIB = 1 << 20
torch.cuda.init()
torch.cuda.memory._record_memory_history("all", stacks="python")


def make(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


kept = [make(size) for size in (100, 3000, 2 * MIB, 5 * MIB, 30 * MIB)]
other = torch.cuda.Stream()
with torch.cuda.stream(other):
    kept.append(make(12 * MIB))
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    kept.append(make(4 * MIB))
del kept[2]
torch.cuda.memory._snapshot()  # it notes itself, with the active bytes then
kept.append(make(3 * MIB))
try:
    make(1 << 50)
except torch.cuda.OutOfMemoryError:
    print("no room")
waits = make(7 * MIB)
waits.record_stream(other)
del waits
torch.cuda.memory._dump_snapshot(sys.argv[1])
# What Python gives back on its way out would come after the moment of the snapshot.
sys.stdout.flush()
os._exit(0)
