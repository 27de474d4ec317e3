"""The driver's books at a moment, from its ledger: what of the simulated devices' memory a process holds, and where.

The ledger (tests/simcuda/README.md) is the truth that a client's own accounts are held against.
"""


class Books:
    """After these lines, of one process: addresses to bytes, by device; the bytes that the driver says are free."""

    def __init__(self, lines, pid=None):
        self.linear, self.mapped, self.pool, self.host = {}, {}, {}, {}
        self.free = {}
        self.calls = 0  # allocations and frees of linear memory
        for line in lines:
            if pid is None or line[1] == pid:
                self.enter(line)

    def enter(self, line):
        what, address, asked, device = line[3], int(line[4], 16), int(line[5]), int(line[7])
        if device >= 0:
            self.free[device] = int(line[8])
        if what == "linear_alloc":
            self.linear[address] = (device, asked)
        elif what == "linear_free":
            del self.linear[address]
        elif what == "map":
            self.mapped[address] = (device, asked)
        elif what == "unmap":
            del self.mapped[address]
        elif what == "pool_alloc":
            self.pool[address] = (device, asked)
        elif what == "pool_free_done":
            del self.pool[address]
        elif what in ("host_alloc", "host_register"):
            self.host[address] = (device, asked)
        elif what in ("host_free", "host_unregister"):
            del self.host[address]

    def segments(self, device):
        """What a caching allocator can call its own: linear allocations, and runs of neighbouring mappings."""
        runs = {}
        for address, (owner, size) in sorted(self.mapped.items()):
            if owner != device:
                continue
            last = next(reversed(runs), None)
            if last is not None and last + runs[last] == address:
                runs[last] += size
            else:
                runs[address] = size
        return {**{a: size for a, (owner, size) in self.linear.items() if owner == device}, **runs}
