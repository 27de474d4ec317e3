"""Pinned host memory: PyTorch's host allocator, copies through it, memory registered by hand, and its statistics."""
import torch

from accounts import ledger_lines, say


def moment(name, **more):
    torch.cuda.synchronize()
    stats = {key: value for key, value in torch.cuda.host_memory_stats().items() if value and "time" not in key}
    say(moment=name, lines=ledger_lines(), stats=stats, **more)


def main():
    torch.zeros(1, device="cuda")
    pinned = [torch.arange(n, dtype=torch.int32).pin_memory() for n in (100, 1 << 20, 3 << 20)]
    moment("pinned", sizes=[t.numel() * 4 for t in pinned])
    there = [t.to("cuda", non_blocking=True) for t in pinned]
    torch.cuda.synchronize()
    for one, other in zip(pinned, there):
        assert torch.equal(one, other.cpu()), "a copy lost its bytes"
    del pinned[1]
    back = torch.empty(1 << 20, dtype=torch.int32, pin_memory=True)
    back.copy_(there[1], non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, torch.arange(1 << 20, dtype=torch.int32))
    moment("one freed, its block taken again")
    own = torch.empty(1 << 20, dtype=torch.uint8)
    runtime = torch.cuda.cudart()
    assert runtime.cudaHostRegister(own.data_ptr(), own.numel(), 0) == 0 and own.is_pinned()
    assert runtime.cudaHostUnregister(own.data_ptr()) == 0
    torch._C._host_emptyCache() if hasattr(torch._C, "_host_emptyCache") else torch._C._accelerator_emptyHostCache()
    moment("registered and unregistered")


main()
