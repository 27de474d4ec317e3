"""torch.profiler over a few allocations, as a JSON line: what it counted, by operator."""
import json

import torch
from torch.profiler import ProfilerActivity, profile


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
