"""RAPIDS RMM's own resources on the simulated GPU: its CSV log, imported, against the recording of the same run.

RMM is what PyPI has, unchanged; its headers are compiled here against the stand-in runtime. Three books of one run are
compared: the lines of the log, read by the few lines of Python below; what `fragscope import` makes of the log; and the
driver calls in the trace. Where a resource passes each request on (cuda, managed, cuda_async), log and calls agree one by
one. Where it cuts blocks out of larger extents (pool, arena, binning, fixed_size), each block lies in one extent that the
trace has and that is alive as long as the block, and no two live blocks overlap. RMM's statistics and tracking adaptors
are the fourth book: totals, peak, what is left.
"""
import bisect
import collections
import csv
import fcntl
import hashlib
import json
import subprocess

from registry import check
from simulated import HERE, Failed, said

MIB = 1 << 20
# Resources that pass requests on, the driver's kinds of events for them.
DIRECT = {
    "cuda": ("linear_acquired", "linear_released"),
    "managed": ("managed_acquired", "linear_released"),
    "cuda_async": ("pool_acquired", "pool_released"),
    "limiting": ("linear_acquired", "linear_released"),
}
CARVED = ("pool", "pool_managed", "arena", "binning", "fixed_size")
INCLUDE = HERE.parents[1] / "interpose"  # fragscope.h


def built(client, venv):
    """The program, compiled with this environment's RMM; kept beside the environment until something of it changes. Checks
    that run at the same time compile it once: the first one, and the others wait for it."""
    packages = next((client.cache / venv / "lib").glob("python3*/site-packages"))
    source = HERE / "programs" / "rmm_run.cpp"
    include = packages / "librmm" / "include"
    command = ["g++", "-std=c++17", "-O1", "-w", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
               "-DSPDLOG_FMT_EXTERNAL", "-DFMT_HEADER_ONLY=1", f"-I{INCLUDE}"]
    for folder in (include, include / "rapids", include / "rapids" / "libcudacxx", packages / "rapids_logger" / "include",
                   packages / "nvidia" / "cu13" / "include"):
        command += ["-isystem", str(folder)]
    # "complete" has the pins of all packages that are compiled here.
    files = (source, INCLUDE / "fragscope.h", client.cache / venv / "complete")
    key = hashlib.sha256(b"\0".join(["\n".join(command).encode(), *[file.read_bytes() for file in files]])).hexdigest()[:16]
    program = client.cache / f"{venv}-built" / key
    program.parent.mkdir(exist_ok=True)
    with open(program.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            compile_program(client, command, source, packages, program, lock)
    return program, packages


def compile_program(client, command, source, packages, program, lock):
    logger = packages / "rapids_logger" / "lib64" / "librapids_logger.so"
    command += [str(source), "-o", f"{program}.new", str(client.runtime / "libcudart.so.13"), "-pthread", "-ldl"]
    if logger.exists():
        command.append(str(logger))
    try:
        # With the lock, which so lasts as long as the compiler does.
        done = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=[lock.fileno()])
    except OSError as error:
        raise Failed(f"RMM's headers cannot be compiled: {error}") from None
    if done.returncode:
        raise Failed("RMM's headers cannot be compiled", done.stderr[-3000:])
    program.with_suffix(".new").rename(program)


class Block:
    """One line of the log, or what stands for it in another book."""

    def __init__(self, where, thread, action, address, size, stream=None):
        self.where, self.thread, self.action, self.address, self.size = where, thread, action, address, size
        self.stream = stream

    def key(self):
        return self.thread, self.action, self.address, self.size

    def __repr__(self):
        return f"{self.where}: thread {self.thread} {self.action} {self.address:#x} {self.size} B"


def logged(path):
    """The log as it stands there: every line, those of zero bytes too."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [Block(f"line {number}", int(row["Thread"]), row["Action"],
                  0 if row["Pointer"] == "(nil)" else int(row["Pointer"], 16), int(row["Size"]), int(row["Stream"], 16))
            for number, row in enumerate(rows, 2)]


def imported(client, log):
    """What `import` makes of it: blocks with their streams, in order; by way of a trace file, and the same directly."""
    trace = client.folder / "imported.fst"
    client.tool("import", log, "-o", trace, "--force")
    lines = client.tool("dump", trace, "--json")
    client.equal(client.tool("dump", log, "--json"), lines, "dump of the log itself, and of the imported trace")
    blocks, streams = [], {}
    actions = {"block_acquired": "allocate", "block_released": "free", "block_refused": "allocate failure"}
    for event in map(json.loads, lines.splitlines()):
        payload = payload_of(event)
        if event["kind"] == "block_stream":
            streams[event["thread"]] = payload[2]
            continue
        blocks.append(Block(f"imported event {event['sequence']}", event["thread"], actions[event["kind"]], payload[0],
                            payload[1], streams.get(event["thread"])))
    return blocks


def payload_of(event):
    """Address, bytes, object, extra, whatever they are called for this kind."""
    values = list(event.values())
    start = list(event).index("kind") + 1
    return [int(value, 16) if isinstance(value, str) else value for value in values[start:start + 4]]


def same(client, ours, theirs, what):
    """Both lists, one by one; the first difference is shown with both places."""
    client.checks += len(theirs)
    for i in range(max(len(ours), len(theirs))):
        a = ours[i] if i < len(ours) else None
        b = theirs[i] if i < len(theirs) else None
        if a is None or b is None or a.key() != b.key():
            raise Failed(what, f"  {a or 'nothing more'}", f"  {b or 'nothing more'}")


def peak_of(blocks):
    live = highest = 0
    for block in blocks:
        live += {"allocate": block.size, "free": -block.size}.get(block.action, 0)
        highest = max(highest, live)
    return live, highest


def no_overlap(client, blocks):
    """In the log's order no two live blocks share a byte, and what is freed was allocated with that size."""
    live, starts = {}, []  # by address; the addresses in order
    for block in blocks:
        client.checks += 1
        if block.action == "allocate":
            at = bisect.bisect_right(starts, block.address)
            for near in starts[max(0, at - 1):at + 1]:
                if near < block.address + block.size and block.address < near + live[near].size:
                    raise Failed("two live blocks overlap", f"  {live[near]}", f"  {block}")
            starts.insert(at, block.address)
            live[block.address] = block
        elif block.action == "free":
            was = live.pop(block.address, None)
            if was is None or was.size != block.size:
                raise Failed("freed and not allocated so", f"  {was}", f"  {block}")
            starts.remove(block.address)
    return live


def run(client, venv, resource, seed, steps, threads, mode):
    program, packages = built(client, venv)
    client.settings.setdefault("CAPACITY", "1GiB")
    client.library_path.append(packages / "rapids_logger" / "lib64")
    log = client.folder / "log.dev0.csv"
    outcome = client.traced(program, resource, log, seed, steps, threads, mode, options=("--stacks", "off"))
    client.equal(outcome.status, 0, f"{resource} with seed {seed}", outcome)
    # The ledger names pools by numbers of its own.
    pools = ("pool_create", "pool_created", "pool_destroy", "pool_destroyed")
    outcome.ledger = [line for line in outcome.ledger if line[3] not in pools]
    client.books(outcome, events=[event for event in client.events() if event["kind"] not in pools])
    client.nothing_lost()
    rows = logged(log)
    blocks = imported(client, log)
    filled = [row for row in rows if row.size]
    same(client, blocks, filled, "the import of the log against its lines")
    for block, row in zip(blocks, filled):
        client.equal(block.stream, row.stream, row)
    left = no_overlap(client, blocks)
    accounts, = said(outcome)
    # RMM's own account. What fails is in no total; a request of nothing counts as an allocation.
    allocated = [row for row in rows if row.action == "allocate"]
    client.equal(accounts["bytes"][0], sum(block.size for block in left.values()), "bytes left")
    client.equal(accounts["bytes"][2], sum(row.size for row in allocated), "bytes in all")
    client.equal(accounts["allocations"][2], len(allocated), "allocations in all")
    client.equal(accounts["failed_tries"], sum(row.action == "allocate failure" for row in rows), "failed tries")
    client.that(accounts["failures"] > 0, "no allocation failed: the program tries too little")
    if mode == "serial":
        # With threads at once the tracking adaptor miscounts by itself: it gives an address back before it forgets it.
        client.equal(accounts["tracked_bytes"], accounts["bytes"][0], "bytes tracked")
        client.equal(peak_of(blocks), tuple(accounts["bytes"][:2]), "bytes left and peak of the import, and of RMM")
    return rows, blocks, accounts


class Recorded:
    """The trace's events without the program's marks, and how many of them precede each mark."""

    def __init__(self, client):
        self.events, marks = [], []
        for event in client.events():
            if event["kind"] == "mark":
                marks.append(len(self.events))
            else:
                self.events.append(event)
        client.that(len(marks) >= 2, "the trace lacks the marks 'begin' and 'end'")
        self.begin, *self.rows, self.end = marks

    def inside(self):
        return self.events[self.begin:self.end]


def driver_calls(events, kinds):
    """The program's own calls of these two kinds, as blocks. A freed block's size is that of its allocation."""
    sizes, out = {}, []
    for event in events:
        if event["kind"] not in kinds or "by_shim" in event["flags"]:
            continue
        address, size, *_ = payload_of(event)
        where = f"trace event {event['sequence']}"
        if event["kind"] == kinds[1]:
            out.append(Block(where, event["thread"], "free", address, sizes.pop(address, 0)))
        elif event["result"]:
            out.append(Block(where, event["thread"], "allocate failure", 0, size))
        else:
            sizes[address] = size
            out.append(Block(where, event["thread"], "allocate", address, size))
    return out


def one_by_one(client, resource, blocks, serial):
    """Each line of the log is a call of the driver, and the other way round."""
    calls = driver_calls(Recorded(client).inside(), DIRECT[resource])
    if resource == "limiting":  # what it refuses by itself never comes to the driver
        blocks = [block for block in blocks if block.action != "allocate failure"]
        calls = [call for call in calls if call.action != "allocate failure"]
    if serial:
        same(client, calls, blocks, f"{resource}: the recorded calls against the import")
        client.equal(peak_of(calls), peak_of(blocks), "bytes left and peak of the trace, and of the import")
        return
    # Threads at once: RMM writes its line some time after the call, so only the order inside each thread and at each
    # address is the same in both.
    client.equal(peak_of(calls)[0], peak_of(blocks)[0], "bytes left in the trace, and in the import")
    for name, of in (("thread", lambda block: block.thread), ("address", lambda block: block.address)):
        ours, theirs = collections.defaultdict(list), collections.defaultdict(list)
        for call in calls:
            ours[of(call)].append(call)
        for block in blocks:
            theirs[of(block)].append(block)
        for key in sorted(ours.keys() | theirs.keys()):
            if name == "address" and key == 0:
                continue  # failures
            same(client, ours[key], theirs[key], f"{resource}, {name} {key:#x}: the recorded calls against the import")


EXTENTS = {"linear_acquired", "managed_acquired"}


def inside_extents(client, resource, rows):
    """Each live block lies in one extent that the driver gave and has not got back: at every line of the log."""
    trace = Recorded(client)
    client.equal(len(trace.rows), len(rows), "marks in the trace, and lines of the log")
    extents, live, done = {}, {}, 0
    for row, mark in zip(rows, trace.rows):
        for event in trace.events[done:mark]:
            address, size, *_ = payload_of(event)
            if event["result"] or "by_shim" in event["flags"]:
                continue
            if event["kind"] in EXTENTS:
                extents[address] = size
            elif event["kind"] == "linear_released" and address in extents:
                gone = extents.pop(address)
                for block in live.values():
                    if address <= block.address < address + gone:
                        raise Failed(f"{resource}: an extent is given back under a live block",
                                     f"  trace event {event['sequence']}: {address:#x} {gone} B", f"  {block}")
        done = mark
        client.checks += 1
        if row.action == "free":
            live.pop(row.address, None)
        if row.action != "allocate" or not row.size:
            continue
        live[row.address] = row
        if not any(start <= row.address and row.address + row.size <= start + size for start, size in extents.items()):
            raise Failed(f"{resource}: a block outside of all extents", f"  {row}",
                         *[f"  {start:#x} {size} B" for start, size in sorted(extents.items())])


def one(client, venv, resource, seed, steps=400, threads=3, serial=True):
    rows, blocks, _ = run(client, venv, resource, seed, steps, threads, "serial" if serial else "free")
    if resource in DIRECT:
        one_by_one(client, resource, blocks, serial)
    elif serial:
        inside_extents(client, resource, rows)


@check("rmm")
def passed_on(client):
    for seed, resource in enumerate(DIRECT, 1):
        one(client, "rmm", resource, seed)


@check("rmm")
def carved_out(client):
    for seed, resource in enumerate(CARVED, 11):
        one(client, "rmm", resource, seed)


@check("rmm")
def threads_at_once(client):
    for seed, resource in enumerate((*DIRECT, *CARVED), 21):
        one(client, "rmm", resource, seed, steps=300, threads=4, serial=False)


@check("rmm2412")
def logged_by_spdlog(client):
    for seed, resource in enumerate(("cuda", "cuda_async", "pool"), 31):
        one(client, "rmm2412", resource, seed, steps=200)
