"""torch.profiler over a few allocations, as a JSON line: what it counted, by operator.

PyTorch opens its wheel's own libcupti by path, which would be a second one beside the stand-in: here it gets that by its name.
"""
import ctypes
import json


class Library(ctypes.CDLL):
    def __init__(self, name, *arguments, **more):
        super().__init__("libcupti.so.13" if name and "libcupti" in name else name, *arguments, **more)


ctypes.CDLL = Library

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402


def main():
    before = torch.ones(1000, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiled:
        first = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        second = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
    del before, first, second
    averages = profiled.key_averages()
    print(json.dumps({"profiled": {each.key: each.count for each in averages},
                      "device_memory": {each.key: each.self_device_memory_usage for each in averages}}), flush=True)


main()
