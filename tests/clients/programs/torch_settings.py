"""The allocator's settings, one after the other in one process (PyTorch takes these at run time)."""
import torch

from accounts import mebibytes, moment, refused


# The second until PyTorch 2.9.
set_settings = (getattr(torch._C, "_accelerator_setAllocatorSettings", None)
                or torch._C._cuda_cudaCachingAllocator_set_allocator_settings)


def setting(text):
    set_settings(text)


def rounding():
    setting("roundup_power2_divisions:4")
    kept = [mebibytes(n / 1024) for n in (1100, 1200, 1281, 2048, 2049, 5000)]
    moment("roundup_power2_divisions:4", asked=[t.numel() for t in kept])
    setting("roundup_power2_divisions:[1:2,2:4,4:8,>:1]")
    kept = [mebibytes(n) for n in (1.3, 2.2, 5.1, 9)]
    moment("roundup_power2_divisions by size", asked=[t.numel() for t in kept])
    setting("roundup_power2_divisions:1")


def splitting():
    setting("max_split_size_mb:32")
    large = mebibytes(64)
    del large
    small = mebibytes(20)
    moment("max_split_size_mb: a large block is not split")
    again = mebibytes(60)
    moment("max_split_size_mb: but taken whole by a large request")
    del small, again


def collecting():
    setting("garbage_collection_threshold:0.5,max_split_size_mb:32")
    torch.cuda.set_per_process_memory_fraction(1 / 8)  # of 4 GiB
    kept = [mebibytes(100) for _ in range(4)]
    del kept[1:]
    moment("garbage_collection_threshold: before")
    kept.append(mebibytes(33))
    moment("garbage_collection_threshold: after")


def refusing():
    torch.cuda.set_per_process_memory_fraction(1 / 8)  # of 4 GiB
    before = mebibytes(300)
    moment("fraction: before")
    message = refused(400)
    moment("fraction: after", message=message)
    torch.cuda.set_per_process_memory_fraction(1.0)
    after = mebibytes(400)
    moment("no fraction any more")
    message = refused(5000)
    moment("out of memory", message=message)
    del before, after


def main():
    for step in (rounding, refusing, splitting, collecting):
        step()
        torch.cuda.empty_cache()
        moment(f"cleared after {step.__name__}")


main()
