"""A random program on PyTorch's caching allocator; what the allocator itself noted of it goes to OUT as JSON, a list of
entries a device.

Usage: torch_blocks.py SEED STEPS THREADS STREAMS OUT
"""
import json
import random
import sys
import threading

import torch

seed, steps, threads, stream_count = (int(word) for word in sys.argv[1:5])
torch.cuda.init()
torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=10_000_000)
streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(stream_count - 1)]
KEPT = ("action", "addr", "size", "stream")


def work(number):
    choose = random.Random(seed * 1000 + number)
    live = []
    event = torch.cuda.Event()
    for _ in range(steps):
        what = choose.random()
        if what < 0.5 or not live:
            with torch.cuda.stream(choose.choice(streams)):
                live.append(torch.empty(int(2 ** choose.uniform(0, 25)), dtype=torch.uint8, device="cuda"))
        elif what < 0.9:
            block = live.pop(choose.randrange(len(live)))
            for _ in range(choose.choice((0, 0, 1, 1, 2, 3))):
                block.record_stream(choose.choice(streams))
            del block
        elif what < 0.95:  # events of the program's own, which no block waits for
            event.record(choose.choice(streams))
            event.query()
        elif what < 0.97:
            torch.cuda.synchronize()
        elif what < 0.98:
            torch.cuda.empty_cache()
        elif what < 0.985:
            try:
                torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                pass


others = [threading.Thread(target=work, args=(number,)) for number in range(1, threads)]
for each in others:
    each.start()
work(0)
for each in others:
    each.join()
torch.cuda.empty_cache()
traces = torch.cuda.memory._snapshot()["device_traces"]
with open(sys.argv[5], "w", encoding="utf-8") as file:
    json.dump([[{key: entry.get(key) for key in KEPT} for entry in trace] for trace in traces], file)
