"""What a recording costs, and how it compares with CUPTI's and PyTorch's own accounts."""
import collections
import json
import sys

TIMES = """
import ctypes as c, json, sys, time
sys.path.insert(0, sys.argv[1])
from steps.calls import percentiles
from steps.cuda import Driver
driver = Driver()
stream, block = driver.stream(), c.c_uint64()
library = driver.library
size, rounds = c.c_size_t(int(sys.argv[2])), int(sys.argv[3])
calls = {
    "cuMemAlloc_v2 and cuMemFree_v2": lambda: (library.cuMemAlloc_v2(c.byref(block), size), library.cuMemFree_v2(block)),
    "cuMemAllocAsync and cuMemFreeAsync": lambda: (library.cuMemAllocAsync(c.byref(block), size, stream),
                                                   library.cuMemFreeAsync(block, stream)),
    "cuCtxGetCurrent": lambda: library.cuCtxGetCurrent(c.byref(block)),
}
out = {}
for name, call in calls.items():
    times = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    driver.cuCtxSynchronize()
    out[name] = percentiles(times[rounds // 10:])
print(json.dumps(out))
"""


def cost(run):
    """The same loop without and with a recording, in turns, so that both meet the machine in the same states."""
    rounds = 500 if run.simulated else 3000
    medians = collections.defaultdict(lambda: {"without": [], "with": []})
    rows = []
    for turn in range(2 if run.simulated else 3):
        for size in (1 << 20, 4 << 20):
            command = [sys.executable, "-c", TIMES, str(run.folder), str(size), str(rounds)]
            done = {"without": run.command(command), "with": run.recorded(command, f"cost_{turn}_{size}")[0]}
            for which, result in done.items():
                if result.returncode != 0:
                    return {"problem": result.stderr.decode(errors="replace")[-300:]}
                for call, row in json.loads(result.stdout.splitlines()[-1]).items():
                    medians[f"{call}, {size >> 20} MiB"][which].append(row["median"])
                    rows.append({"turn": turn, "recorded": which == "with", "bytes": size, "call": call, **row})
    more = {call: min(each["with"]) - min(each["without"]) for call, each in medians.items()}
    return {"summary": "more at the median: " + ", ".join(f"{call} {ns} ns" for call, ns in more.items()),
            "more_ns": more, "rows": rows}


EVERY_KIND = """
import ctypes as c, sys
sys.path.insert(0, sys.argv[1])
from steps.cuda import Driver, MIB, PTX
driver = Driver()
stream = driver.stream()
linear = driver.allocate(3 * MIB)
module, address, size = c.c_void_p(), c.c_uint64(), c.c_size_t()
driver.cuModuleLoadData(c.byref(module), PTX)
driver.result("cuModuleGetGlobal_v2", c.byref(address), c.byref(size), module, b"fragscope_bytes")
pooled = c.c_uint64()
driver.cuMemAllocAsync(c.byref(pooled), c.c_size_t(5 * MIB), stream)
managed = c.c_uint64()
driver.result("cuMemAllocManaged", c.byref(managed), c.c_size_t(7 * MIB), 1)
grain = driver.granularity()
base = driver.reserve(8 * grain)
handle = driver.create(8 * grain)
driver.map(base, 8 * grain, handle)
driver.allow(base, 8 * grain)
driver.cuStreamSynchronize(stream)
driver.cuMemFreeAsync(pooled, stream)
driver.cuStreamSynchronize(stream)
captured, graph, executable = c.c_uint64(), c.c_void_p(), c.c_void_p()
driver.cuStreamBeginCapture_v2(stream, 0)
driver.cuMemAllocAsync(c.byref(captured), c.c_size_t(9 * MIB), stream)
driver.cuMemFreeAsync(captured, stream)
driver.cuStreamEndCapture(stream, c.byref(graph))
driver.cuGraphInstantiateWithFlags(c.byref(executable), graph, c.c_ulonglong(0))
driver.cuGraphLaunch(executable, stream)
driver.cuStreamSynchronize(stream)
print("free", driver.free_and_total()[0])
driver.release(linear)
driver.unmap(base, 8 * grain)
driver.cuMemRelease(c.c_uint64(handle))
driver.cuCtxSynchronize()
"""


def cupti(run):
    """Which kinds of memory CUPTI reports beside the intercepted calls, by a program that uses each once."""
    help_text = run.fragscope("run", "--help").stdout.decode(errors="replace")
    if "--cupti" not in help_text:
        return {"not_here": "this build has no option --cupti"}
    command = [sys.executable, "-c", EVERY_KIND, str(run.folder)]
    free, traces = [], []  # bytes free at the same point of the program, by cuMemGetInfo
    for which in ("off", "on", "off"):
        done, trace = run.recorded(command, f"cupti_{len(free)}", [f"--cupti={which}"])
        if done.returncode != 0:
            return {"problem": f"--cupti={which}: " + done.stderr.decode(errors="replace")[-500:]}
        free.append(int(done.stdout.split()[-1]))
        traces.append(trace)
    # Three processes at three times: a difference is CUPTI's only where nothing else changed meanwhile.
    fewer = free[0] - free[1] if free[0] == free[2] else None
    said = f"not known, as before and after it without CUPTI {free[0]} and {free[2]} bytes were free" if fewer is None else \
        f"{fewer} bytes, and before and after it without CUPTI equally many were free"
    trace = traces[1]
    events = run.json_lines(run.fragscope("dump", "--json", trace))
    kinds = collections.Counter(event.get("kind", "") for event in events)
    reported = {kind: count for kind, count in sorted(kinds.items()) if "activity" in kind or "cupti" in kind}
    return {"summary": (", ".join(f"{count} {kind}" for kind, count in reported.items()) or "nothing was reported")
                       + f"; less free memory with CUPTI at the same point of the program: {said}",
            "kinds": dict(sorted(kinds.items())), "reported": [event for event in events if event.get("kind") in reported],
            "free": {"off": free[0], "on": free[1], "off again": free[2]}, "fewer_free": fewer}


# Blocks of many sizes, some freed again; the mark and the snapshot are of the same moment.
TORCH = """
import ctypes, json, random, sys, torch
mark = getattr(ctypes.CDLL(None), "fragscope_shim_mark", None)
random.seed(7)
kept = []
out = []
for step in range(int(sys.argv[1])):
    for _ in range(20):
        kept.append(torch.empty(random.choice([512, 4096, 1 << 16, 3 << 20, 11 << 20, 24 << 20]), dtype=torch.uint8, device="cuda"))
        if len(kept) > 30:
            del kept[random.randrange(len(kept))]
    if step % 5 == 4:
        torch.cuda.empty_cache()
    torch.cuda.synchronize()
    if mark is not None:
        mark(f"gpu-check-{step}".encode())
    out.append([{"address": s["address"], "total_size": s["total_size"],
                 "blocks": [[b["address"], b["size"], b["state"]] for b in s["blocks"]]} for s in torch.cuda.memory._snapshot()["segments"]])
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "snapshots": out}))
"""


# PyTorch's states in the words of `fragscope state`; what it calls otherwise is freed and waits for other streams.
STATES = {"active_allocated": "live", "inactive": "unused"}


def their_segments(segments):
    return {s["address"]: (s["total_size"], [(a, size, STATES.get(state, "waiting")) for a, size, state in s["blocks"]])
            for s in segments}


def our_segments(answer):
    """Of the answer of `fragscope state`, whose numbers of 64 bits are texts."""
    return {int(s["address"]): (int(s["bytes"]), [(int(b["address"]), int(b["bytes"]), b.get("state", "live"))
                                                  for b in s.get("blocks", [])])
            for allocator in answer.get("framework", []) for s in allocator.get("segments", [])}


def torch(run):
    present = run.command([run.python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"],
                          **run.with_torch())
    if present.returncode != 0:
        return {"not_here": f"{run.python} has no PyTorch"}
    if not present.stdout.decode().strip().endswith("True"):
        return {"not_here": f"PyTorch {present.stdout.decode().split()[0]} finds no device"}
    rounds = 5 if run.simulated else 50
    done, trace = run.recorded([run.python, "-c", TORCH, str(rounds)], "torch", **run.with_torch())
    if done.returncode != 0:
        return {"problem": done.stderr.decode(errors="replace")[-500:]}
    theirs = json.loads(done.stdout.splitlines()[-1])
    said = run.fragscope("state", trace, "--at", "mark:gpu-check-*", "--json")
    if said.returncode != 0:
        return {"problem": "fragscope state: " + said.stderr.decode(errors="replace")[-300:], "torch": theirs["version"]}
    ours = run.json_lines(said)
    equal, different = 0, []
    for step, segments in enumerate(theirs["snapshots"]):
        wanted = their_segments(segments)
        got = our_segments(ours[step]) if step < len(ours) else {}
        if wanted == got:
            equal += 1
            continue
        first = next(address for address in sorted({*wanted, *got}) if wanted.get(address) != got.get(address))
        different.append({"snapshot": step, "segment": first, "theirs": wanted.get(first), "ours": got.get(first)})
    return {"summary": f"PyTorch {theirs['version']}: {equal} of {len(theirs['snapshots'])} snapshots have the same segments and blocks",
            "torch": theirs["version"], "cuda": theirs["cuda"], "equal": equal, "snapshots": len(theirs["snapshots"]),
            "different": different[:5]}
