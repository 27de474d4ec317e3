"""torch.profiler with memory profiling, and the allocator's own history, around the same allocations."""
import torch
from torch.profiler import ProfilerActivity, profile

from accounts import mebibytes, say


def main():
    torch.zeros(1, device="cuda")
    torch.cuda.memory._record_memory_history(stacks="python")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
        kept = [mebibytes(n) for n in (1, 7, 30)]
        del kept[1]
        host = kept[0].cpu()
        del host
    seen = [event.device_memory_usage for event in profiler.events() if event.device_memory_usage]
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    say(profiled=sorted(seen), history=[[entry["action"], entry["size"]] for entry in trace],
        framed=all(entry["frames"] for entry in trace))


main()
