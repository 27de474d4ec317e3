"""A model of PyTorch's caching allocator, after its public rules, that writes the snapshots which PyTorch would: what the
importer says of these files is held against what the model itself held. All names and numbers in it are made up."""
MIB = 1 << 20
SMALL, SMALL_SEGMENT, LARGE_SEGMENT = MIB, 2 * MIB, 20 * MIB
FRAMES = [[{"filename": f"/work/train_{i}.py", "line": 10 + i, "name": f"step_{i}"},
           {"filename": "/work/main.py", "line": 7, "name": "main"}] for i in range(4)]


class OutOfMemory(Exception):
    pass


class Block:
    def __init__(self, address, size, requested=0, state="inactive", frames=None):
        self.address, self.size, self.requested, self.state, self.frames = address, size, requested, state, frames or []


class Segment:
    def __init__(self, address, size, stream, large, pool, expandable=False):
        self.address, self.size, self.stream, self.large, self.pool = address, size, stream, large, pool
        self.expandable = expandable
        self.blocks = [Block(address, size)]

    def unused(self):
        return all(block.state == "inactive" for block in self.blocks)


class Allocator:
    def __init__(self, capacity=16 << 30, device=0, entries=None, expandable=False):
        self.capacity, self.device, self.most_entries, self.expandable = capacity, device, entries, expandable
        self.segments, self.entries, self.next, self.time = [], [], 0x7f0000000000 + (device << 40), 1_700_000_000_000_000
        self.lost = 0
        self.totals = []  # active bytes at each of its snapshots

    # ------------------------------------------------------------------------------------------------- the list

    def record(self, action, address, size, stream, pool, frames):
        self.time += 7
        where = {"device_free": address} if action == "oom" else {"addr": address}
        self.entries.append({"action": action, **where, "size": size, "stream": stream, "time_us": self.time,
                             "pool_id": pool, "frames": frames})
        if self.most_entries and len(self.entries) > self.most_entries:
            self.entries.pop(0)
            self.lost += 1

    def device_free(self):
        return self.capacity - sum(segment.size for segment in self.segments)

    def active(self):
        return sum(b.size for s in self.segments for b in s.blocks if b.state != "inactive")

    # ------------------------------------------------------------------------------------------------- requests

    def alloc(self, requested, stream=0, pool=(0, 0), frames=FRAMES[0]):
        size = max(512, (requested + 511) // 512 * 512)
        large = size > SMALL
        found = self.find(size, large, stream, pool) or self.grow(size, large, stream, pool, frames)
        if found is None:
            self.release_unused()
            found = self.grow(size, large, stream, pool, frames)
        if found is None:
            self.record("oom", self.device_free(), size, stream, pool, frames)
            raise OutOfMemory
        segment, block = found
        left = block.size - size
        if left >= 512 if (not large or segment.expandable) else left > SMALL:
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(block.address + size, left))
            block.size = size
        block.requested, block.state, block.frames = requested, "active_allocated", frames
        self.record("alloc", block.address, requested, stream, pool, frames)
        return block.address

    def find(self, size, large, stream, pool):
        fitting = [(block.size, block.address, segment, block) for segment in self.segments
                   if (segment.large, segment.stream, segment.pool) == (large, stream, pool)
                   for block in segment.blocks if block.state == "inactive" and block.size >= size]
        return min(fitting, key=lambda each: each[:2])[2:] if fitting else None

    def grow(self, size, large, stream, pool, frames):
        if self.expandable:
            return self.grow_expandable(size, large, stream, pool, frames)
        take = SMALL_SEGMENT if not large else LARGE_SEGMENT if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        if take > self.device_free():
            return None
        segment = Segment(self.next, take, stream, large, pool)
        self.next += take + 2 * MIB
        self.segments.append(segment)
        self.record("segment_alloc", segment.address, take, stream, pool, frames)
        return segment, segment.blocks[0]

    def grow_expandable(self, size, large, stream, pool, frames):
        """At the end of the one segment of this kind: whole pages, up to what is missing behind its last gap."""
        page = LARGE_SEGMENT if large else SMALL_SEGMENT
        mine = [s for s in self.segments if s.expandable and (s.large, s.stream, s.pool) == (large, stream, pool)]
        segment = mine[0] if mine else None
        tail = segment.blocks[-1].size if segment and segment.blocks[-1].state == "inactive" else 0
        take = (size - tail + page - 1) // page * page
        if take > self.device_free():
            return None
        if segment is None:
            segment = Segment(self.next, 0, stream, large, pool, expandable=True)
            segment.blocks = []
            self.next += 1 << 36
            self.segments.append(segment)
        address = segment.address + segment.size
        self.record("segment_map", address, take, stream, pool, frames)
        segment.size += take
        if tail:
            segment.blocks[-1].size += take
        else:
            segment.blocks.append(Block(address, take))
        return segment, segment.blocks[-1]

    def find_block(self, address):
        return next((s, b) for s in self.segments for b in s.blocks if b.address == address)

    def free(self, address, pending=False, frames=FRAMES[1]):
        segment, block = self.find_block(address)
        self.record("free_requested", address, block.requested, segment.stream, segment.pool, frames)
        block.state = "active_pending_free"
        if not pending:
            self.complete(address, frames)

    def complete(self, address, frames=FRAMES[1]):
        segment, block = self.find_block(address)
        self.record("free_completed", address, block.requested, segment.stream, segment.pool, frames)
        block.state, block.requested, block.frames = "inactive", 0, []
        at = segment.blocks.index(block)
        for other in (at + 1, at):  # the one behind joins, then it joins the one in front
            if 0 < other < len(segment.blocks) and segment.blocks[other - 1].state == segment.blocks[other].state == "inactive":
                segment.blocks[other - 1].size += segment.blocks[other].size
                del segment.blocks[other]

    def release_unused(self):
        for segment in list(self.segments):
            if segment.expandable:
                page = LARGE_SEGMENT if segment.large else SMALL_SEGMENT
                tail = segment.blocks[-1] if segment.blocks[-1].state == "inactive" else None
                give = tail.size // page * page if tail else 0
                if give:
                    tail.size -= give
                    segment.size -= give
                    if tail.size == 0:
                        segment.blocks.pop()
                    self.record("segment_unmap", segment.address + segment.size, give, segment.stream, segment.pool, FRAMES[2])
                if segment.size == 0:
                    self.segments.remove(segment)
            elif segment.unused() and segment.pool == (0, 0):
                self.record("segment_free", segment.address, segment.size, segment.stream, segment.pool, FRAMES[2])
                self.segments.remove(segment)

    def note(self):
        """PyTorch notes each snapshot in its own list, with the active bytes then."""
        self.totals.append(self.active())
        self.record("snapshot", 0, self.active(), 0, (0, 0), [])

    # ------------------------------------------------------------------------------------------------ the file

    def segment_dicts(self):
        out = []
        for s in sorted(self.segments, key=lambda each: each.address):
            sums = {state: sum(b.size for b in s.blocks if b.state == state)
                    for state in ("active_allocated", "active_pending_free")}
            out.append({"device": self.device, "address": s.address, "total_size": s.size,
                        "allocated_size": sums["active_allocated"], "active_size": sum(sums.values()),
                        "requested_size": sum(b.requested for b in s.blocks), "stream": s.stream,
                        "segment_type": "large" if s.large else "small", "segment_pool_id": s.pool,
                        "is_expandable": s.expandable, "frames": FRAMES[3],
                        "blocks": [{"address": b.address, "size": b.size, "requested_size": b.requested,
                                    "state": b.state, "frames": b.frames} for b in s.blocks]})
        return out

    def expected(self):
        """The sums of this device, as the report has to give them."""
        blocks = [b for s in self.segments for b in s.blocks]
        unused = [b.size for b in blocks if b.state == "inactive"]
        return {"segments": len(self.segments), "blocks": len(blocks),
                "reserved_bytes": sum(s.size for s in self.segments),
                "allocated_bytes": sum(b.size for b in blocks if b.state == "active_allocated"),
                "active_bytes": self.active(), "inactive_bytes": sum(unused),
                "largest_inactive_bytes": max(unused, default=0),
                "wholly_free_segment_bytes": sum(s.size for s in self.segments if s.unused()),
                "trace_entries": len(self.entries)}


def snapshot(*allocators):
    return {"segments": [s for a in allocators for s in a.segment_dicts()],
            "device_traces": [a.entries for a in allocators],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                                   "garbage_collection_threshold": 0.0,
                                   "expandable_segments": any(a.expandable for a in allocators),
                                   "roundup_power2_divisions": {"1": 0, "2": 0}},
            "external_annotations": [{"name": "step", "stage": stage, "device": a.device,
                                      "time_us": a.entries[0]["time_us"] + more}
                                     for a in allocators if a.entries for stage, more in (("START", 1), ("END", 5))]}


def run(allocator, random, steps, streams=(0,), pools=((0, 0),), sizes=None):
    """A random program: its requests, with frees that come at once and some that wait for a stream."""
    live, waiting = [], []
    for _ in range(steps):
        kind = random.random()
        if kind < 0.55 or not live:
            size = random.choice(sizes) if sizes else random.choice(
                [random.randint(1, 4096), random.randint(1, MIB), random.randint(MIB, 30 * MIB), 2 * MIB, 20 * MIB])
            try:
                live.append(allocator.alloc(size, random.choice(streams), random.choice(pools), random.choice(FRAMES)))
            except OutOfMemory:
                for address in live[::2]:
                    allocator.free(address)
                live = live[1::2]
        elif kind < 0.9:
            address = live.pop(random.randrange(len(live)))
            pending = random.random() < 0.2
            allocator.free(address, pending)
            if pending:
                waiting.append(address)
        elif waiting:
            allocator.complete(waiting.pop(random.randrange(len(waiting))))
        if random.random() < 0.02:
            allocator.note()
    return live
