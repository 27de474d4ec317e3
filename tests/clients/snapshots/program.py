"""A random allocation program for unmodified PyTorch, reproducible from its seed, that says at random moments what
PyTorch's allocator holds.

Usage: program.py SEED SNAPSHOTS OUT [FEATURE …]     features: see settings.py; CUDA settings come by the environment

At each such moment it sets a mark `snapshot:N` and at once, with no allocation of any thread in between, writes down
torch.cuda.memory._snapshot() and memory_stats() of every device: one JSON object a line in OUT, of only what
compare.py compares. The last line says how often each step was done, and the names of all that PyTorch said. Two threads'
steps interleave as they like; all else is the same in each run of one seed.
"""
import contextlib
import ctypes
import gc
import json
import pathlib
import random
import sys
import threading
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from shapes import all_models  # noqa: E402

GROUPS = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
          "inactive_split_bytes")
COUNTS = ("num_ooms", "num_alloc_retries")
MOST_LIVE = 500  # tensors of one thread


def cannot(text):
    raise SystemExit(f"cannot set the mark {text}: the recorder is not loaded")


def marker(features):
    if "nvtx" in features:
        return torch.cuda.nvtx.mark
    program = ctypes.CDLL(None)
    if not hasattr(program, "fragscope_shim_mark"):
        return cannot
    program.fragscope_shim_mark.argtypes = [ctypes.c_char_p]
    return lambda text: program.fragscope_shim_mark(text.encode())


class Thread:
    """One thread's part: its random numbers, its live tensors, its streams."""

    def __init__(self, world, seed):
        self.world = world
        self.random = random.Random(seed)
        self.live = []
        self.lock = threading.Lock()  # held in each step
        self.done = {}
        self.models = all_models(self.random)
        self.sizes = sorted({size for model in self.models for size in model.parameters}
                            | {step.size for model in self.models for step in model.activations})

    # ---------------------------------------------------------------------------------------------------- sizes

    def size(self):
        kind = self.random.random()
        if kind < 0.45:
            return self.random.choice(self.sizes)
        if kind < 0.65:
            return self.random.randint(1, 8192)
        if kind < 0.8:
            return int(2 ** self.random.uniform(9, 27))
        if kind < 0.9:  # at the allocator's own boundaries
            return max(1, self.random.choice([512, 1 << 20, 2 << 20, 10 << 20, 20 << 20, 32 << 20])
                       + self.random.choice([-513, -512, -1, 0, 1, 512]))
        return self.random.randint(1, 64) * (1 << 20)

    def stream(self, device):
        return self.random.choice(self.world.streams[device])

    def device(self):
        return self.random.randrange(self.world.devices)

    def empty(self, size, device):
        return torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")

    # ---------------------------------------------------------------------------------------------------- steps

    def allocate(self):
        device = self.device()
        with torch.cuda.stream(self.stream(device)):
            self.live.append(self.empty(self.size(), device))

    def free(self):
        if self.live:
            at = self.random.randrange(len(self.live))
            self.live[at] = self.live[-1]
            self.live.pop()

    def free_many(self):
        self.random.shuffle(self.live)
        del self.live[int(len(self.live) * self.random.uniform(0.3, 1)):]

    def use_elsewhere(self):
        """A tensor is used on other streams, and often given up while that work may still run."""
        if not self.live:
            return
        at = self.random.randrange(len(self.live))
        tensor = self.live[at]
        for _ in range(self.random.randint(1, 2)):
            tensor.record_stream(self.stream(tensor.device.index))
        del tensor
        if self.random.random() < 0.7:
            self.live.pop(at)

    def training_step(self):
        """Forward, backward, optimiser: of a few layers of a model."""
        model, device = self.random.choice(self.models), self.device()
        layers = self.random.randint(8, 60)
        first = self.random.randrange(max(1, len(model.activations) - layers))
        with torch.cuda.stream(self.stream(device)):
            kept, passing = [], None
            for step in model.activations[first:first + layers]:
                made = self.empty(step.size, device)
                if step.kept:
                    kept.append(made)
                passing = made
                del made
            passing = None
            gradients = []
            begin = self.random.randrange(max(1, len(model.parameters) - layers))
            parameters = model.parameters[begin:begin + layers]
            while kept:
                temporary = self.empty(kept[-1].numel(), device)
                if parameters:
                    gradients.append(self.empty(parameters.pop(), device))
                kept.pop()
                del temporary
            if self.random.random() < 0.3:  # the optimiser's first step
                for gradient in gradients[:10]:
                    moments = [self.empty(gradient.numel() // model.element * 4, device) for _ in range(2)]
                    if len(self.live) < MOST_LIVE:
                        self.live += moments
                    del moments
            del passing

    def generate(self):
        """A key-value cache that is grown by copying it: the odd sizes of inference."""
        device = self.device()
        with torch.cuda.stream(self.stream(device)):
            width = self.random.choice([1024, 2048, 8192]) * 2
            length = self.random.randint(1, 700)
            cache = self.empty(width * length, device)
            for _ in range(self.random.randint(3, 20)):
                length += 1
                grown = self.empty(width * length, device)
                scores = self.empty(32 * length * 2, device)
                cache = grown
                del grown, scores
            self.live.append(cache)

    def too_much(self):
        device = self.device()
        if self.random.random() < 0.5:
            self.empty(self.world.capacity + self.random.randint(1, 1 << 30), device)
        held = []
        with torch.cuda.stream(self.stream(device)):
            for _ in range(200):
                held.append(self.empty(self.random.choice([3 << 20, 50 << 20, 300 << 20]), device))

    def compute(self):
        """A few operators: their results and temporaries are theirs to allocate."""
        if not self.live:
            return
        tensor = self.random.choice(self.live)
        with torch.cuda.stream(self.stream(tensor.device.index)):
            made = tensor + 1
            made = made.view(torch.uint8)[:made.numel() // 2 or 1].clone()
            if self.random.random() < 0.5 and len(self.live) < MOST_LIVE:
                self.live.append(made)

    def own_events(self):
        """The program's own events, which the allocator has nothing to do with."""
        device = self.device()
        with torch.cuda.device(device):
            event = torch.cuda.Event()
            event.record(self.stream(device))
            self.stream(device).wait_event(event)
            self.free()
            event.query()
            self.stream(device).wait_stream(self.stream(device))
            self.free()

    def from_host(self):
        """Pinned memory, whose own allocator waits for events too."""
        device = self.device()
        with torch.cuda.stream(self.stream(device)):
            pinned = torch.empty(self.random.randint(1, 1 << 20), dtype=torch.uint8, pin_memory=True)
            self.live.append(pinned.to(f"cuda:{device}", non_blocking=True))
            del pinned
            self.free()

    def wait(self):
        torch.cuda.synchronize(self.device())

    def step(self):
        names, weights = self.world.steps
        name = self.random.choices(names, weights)[0]
        if len(self.live) > MOST_LIVE:
            name = "free_many"
        with self.lock:
            self.run(name)

    def run(self, name):
        self.done[name] = self.done.get(name, 0) + 1
        out_of_memory = False
        try:
            getattr(self if hasattr(self, name) else self.world, name)()
        except torch.cuda.OutOfMemoryError:
            # The traceback holds the step's tensors: let go of it first.
            out_of_memory = True
        if out_of_memory:
            self.done["out of memory"] = self.done.get("out of memory", 0) + 1
            if self.random.random() < 0.6:
                self.free_many()


class World:
    """What the threads have in common, and what only the first one does."""

    def __init__(self, seed, out, features):
        self.features = features
        self.devices = min(torch.cuda.device_count(), 2 if "devices" in features else 1)
        self.capacity = torch.cuda.get_device_properties(0).total_memory
        self.streams = [[torch.cuda.default_stream(d)] + [torch.cuda.Stream(d) for _ in range(3)]
                        for d in range(self.devices)]
        self.out = out
        self.mark = marker(features)
        self.taken = 0
        self.names = set()  # of all that PyTorch says in snapshots and statistics
        self.pools, self.graphs = [], []
        # Blocks that were given up in a capture although other streams had used them: addresses by device. PyTorch records
        # the events that they wait for when the capture has ended.
        self.deferred = [set() for _ in range(self.devices)]
        self.ever_deferred = set()
        steps = {"allocate": 30, "free": 25, "use_elsewhere": 10, "free_many": 1, "training_step": 2, "generate": 1,
                 "too_much": 0.4, "wait": 2, "compute": 2, "own_events": 2, "from_host": 1}
        self.threaded_steps = tuple(zip(*steps.items()))
        steps |= {"empty_cache": 1}
        if "pools" in features:
            steps |= {"into_pool": 2, "drop_pool": 0.7}
        if "graphs" in features:
            steps |= {"capture": 1, "drop_graph": 0.7}
        if "fraction" in features:
            steps |= {"fraction": 0.5}
        if "settings" in features:
            steps |= {"change_settings": 0.5}
        if "threads" in features:
            steps |= {"threads": 0.3}
        self.own_steps = tuple(zip(*steps.items()))
        self.steps = self.own_steps
        self.first = Thread(self, seed)
        self.random = self.first.random
        self.others = [Thread(self, seed * 1000 + i) for i in range(1, 3)]

    def empty_cache(self):
        torch.cuda.empty_cache()

    def fraction(self):
        torch.cuda.set_per_process_memory_fraction(self.random.choice([1.0, 0.3, 0.6, 0.9]),
                                                   self.random.randrange(self.devices))

    def change_settings(self):
        # Expandable segments stay as they began: a process that goes from one to the other is of the "mixed" kind.
        names = ["max_split_size_mb:{}".format(self.random.choice([64, 128, 200])),
                 "garbage_collection_threshold:{}".format(self.random.choice([0.3, 0.6, 0.9])),
                 "roundup_power2_divisions:{}".format(self.random.choice([1, 2, 4, 8])),
                 "large_segment_size_mb:{}".format(self.random.choice([20, 40, 64]))]
        if "mixed" in self.features:
            names.append("expandable_segments:{}".format(self.random.choice(["True", "False"])))
        torch._C._accelerator_setAllocatorSettings(self.random.choice(names))

    def into_pool(self):
        if not self.pools or (len(self.pools) < 4 and self.random.random() < 0.4):
            device = self.random.randrange(self.devices)
            with torch.cuda.device(device):
                self.pools.append((torch.cuda.MemPool(), device))
        pool, device = self.random.choice(self.pools)
        with torch.cuda.device(device), torch.cuda.use_mem_pool(pool):
            for _ in range(self.random.randint(1, 8)):
                self.first.live.append(self.first.empty(self.first.size(), device))
            if self.random.random() < 0.5:
                self.first.live.pop()

    def drop_pool(self):
        if self.pools:
            self.pools.pop(self.random.randrange(len(self.pools)))

    def capture(self):
        if len(self.graphs) > 3:
            return self.drop_graph()
        device = self.random.randrange(self.devices)
        shared = [graph for graph, kept, of in self.graphs if of == device]
        pool = self.random.choice(shared).pool() if shared and self.random.random() < 0.4 else None
        graph, kept, dropped = torch.cuda.CUDAGraph(), [], None
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            main, side = torch.cuda.Stream(device), torch.cuda.Stream(device)
            with torch.cuda.graph(graph, pool=pool, stream=main):
                for _ in range(self.random.randint(1, 10)):
                    kept.append(self.first.empty(min(self.first.size(), 64 << 20), device))
                    if self.random.random() < 0.4:
                        kept.pop(self.random.randrange(len(kept)))
                if "side" in self.features:
                    side.wait_stream(main)
                    with torch.cuda.stream(side):
                        dropped = self.first.empty(min(self.first.size(), 64 << 20), device)
                        dropped.record_stream(main)
                        kept.append(self.first.empty(min(self.first.size(), 64 << 20), device))
                    self.defer(dropped)
                    dropped = None
                    if self.first.live:
                        used = self.first.live.pop()
                        for stream in self.streams[used.device.index]:
                            used.record_stream(stream)
                        self.defer(used)
                        del used
                    main.wait_stream(side)
                if self.random.random() < 0.3:
                    self.snapshot()
            graph.replay()
        self.graphs.append((graph, kept, device))

    def defer(self, tensor):
        self.deferred[tensor.device.index].add(tensor.data_ptr())
        self.ever_deferred.add(tensor.device.index)

    def drop_graph(self):
        if self.graphs:
            self.graphs.pop(self.random.randrange(len(self.graphs)))

    def threads(self):
        """The other threads work beside this one; snapshots are taken while none is in a step."""
        self.steps = self.threaded_steps
        failed = []

        def work(thread):
            try:
                for _ in range(150):
                    thread.step()
            except BaseException as error:
                failed.append(error)
                raise
        running = [threading.Thread(target=work, args=(each,)) for each in self.others]
        for each in running:
            each.start()
        for _ in range(3):
            for _ in range(30):
                name = self.random.choices(*self.threaded_steps)[0]
                self.first.run(name)
            self.snapshot()
        for each in running:
            each.join()
        self.steps = self.own_steps
        if failed:
            raise SystemExit(f"a thread failed: {failed[0]!r}")

    # ---------------------------------------------------------------------------------------------------- snapshots

    def snapshot(self):
        if "no_snapshots" in self.features:  # the backend has none
            self.taken += 1
            return
        with contextlib.ExitStack() as stack:
            for thread in self.others:
                stack.enter_context(thread.lock)
            gc.disable()  # no tensor may die in between
            text = f"snapshot:{self.taken}"
            self.mark(text)
            segments = torch.cuda.memory._snapshot()["segments"]
            stats = [torch.cuda.memory_stats(device) for device in range(self.devices)]
            gc.enable()
        self.taken += 1
        self.names.update(*stats, *({f"segment {name}" for name in s} for s in segments),
                          *({f"block {name}" for name in b} for s in segments for b in s["blocks"]))
        devices = {}
        for device in range(self.devices):
            said = stats[device]
            pending = {b["address"] for s in segments if s["device"] == device for b in s["blocks"]
                       if b["state"] == "active_pending_free"}
            self.deferred[device] &= pending
            devices[device] = {
                "segments": [[s["address"], s["total_size"], s["stream"], s["segment_type"], list(s["segment_pool_id"]),
                              s["is_expandable"], [[b["address"], b["size"], b["state"]] for b in s["blocks"]]]
                             for s in segments if s["device"] == device],
                "stats": {f"{group}.{pool}": [said[f"{group}.{pool}.current"], said[f"{group}.{pool}.peak"]]
                          for group in GROUPS for pool in ("all", "small_pool", "large_pool")},
                "deferred": sorted(self.deferred[device]),
                "ever_deferred": device in self.ever_deferred,
                "counts": {name: said[name] for name in COUNTS},
            }
        self.out.write(json.dumps({"mark": text, "devices": devices}, separators=(",", ":")) + "\n")


def main():
    seed, snapshots, path, features = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
    torch.cuda.init()
    with open(path, "w", encoding="utf-8") as out:
        world = World(seed, out, features)
        if "mixture" in features:  # see programs/mixture.py
            print("ready", flush=True)
            sys.stdin.readline()
        while world.taken < snapshots:
            for _ in range(world.random.randint(1, 40)):
                world.first.step()
            world.snapshot()
        done = {}
        for thread in [world.first, *world.others]:
            for name, times in thread.done.items():
                done[name] = done.get(name, 0) + times
        out.write(json.dumps({"done": done, "snapshots": world.taken, "torch": torch.__version__,
                              "names": sorted(world.names)}) + "\n")
        if "mixture" in features:
            world.mark("mixture:end")
            print("done", flush=True)
            sys.stdin.read()


main()
