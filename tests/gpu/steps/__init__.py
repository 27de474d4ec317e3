"""The questions, each a function that asks one and returns what was found as a dictionary. STEPS lists them in the order in
which they are asked: name -> (function, seconds that it may take, what it answers)."""
from . import calls, capture, machine, memory, programs, recording

STEPS = {
    "machine": (machine.machine, 30, "which machine this is"),
    "resolution": (calls.resolution, 30, "does an address that the driver hands out name an exported symbol"),
    "lookups": (programs.lookups, 60, "are all look-ups of NVIDIA's runtime wrapped, static and shared"),
    "programs": (programs.unchanged, 90, "does everything still work"),
    "granularity": (memory.granularity, 20, "granularities"),
    "packing": (memory.packing, 20, "how small allocations share memory"),
    "pool": (memory.pool, 20, "by which chunks a pool grows"),
    "context": (memory.context, 40, "what contexts, code and limits take"),
    "capture": (capture.queries, 20, "which queries spoil a capture"),
    "nvml": (machine.nvml, 30, "NVML against cuMemGetInfo"),
    "entry_points": (programs.entry_points, 40, "does the runtime ask for entry points each time"),
    "latency": (calls.latency, 80, "how long calls take, by size"),
    "mappings": (memory.mappings, 25, "how many mappings there can be"),
    "cost": (recording.cost, 60, "what a recorded call costs more"),
    "cupti": (recording.cupti, 60, "which memory CUPTI reports"),
    "torch": (recording.torch, 90, "does PyTorch's own account equal ours"),
}
# These record programs, with what `pack` made.
NEEDS_BUNDLE = {"lookups", "programs", "entry_points", "cost", "cupti", "torch"}
