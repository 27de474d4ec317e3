"""Groups 11 and 16: many processes and threads, strange children, little shared memory, sessions beside and in each other."""
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys

from bench import Skipped, TIMEOUT
from registry import check


def elf32(folder):
    """A 32-bit program, by its bytes: writes "32 bits" and ends with 7, by system calls. No loader, so no preload."""
    text = b"32 bits\n"
    base, header = 0x08048000, 52 + 32
    code = (b"\xb8\x04\x00\x00\x00\xbb\x01\x00\x00\x00\xb9" + struct.pack("<I", base + header + 34) +
            b"\xba" + struct.pack("<I", len(text)) + b"\xcd\x80"        # write(1, text, its length)
            b"\xb8\x01\x00\x00\x00\xbb\x07\x00\x00\x00\xcd\x80")       # exit(7)
    assert len(code) == 34, len(code)
    size = header + len(code) + len(text)
    elf = (b"\x7fELF\x01\x01\x01" + b"\0" * 9 +
           struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + header, 52, 0, 0, 52, 32, 1, 0, 0, 0) +
           struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 0x1000))
    path = folder / "old32"
    path.write_bytes(elf + code + text)
    path.chmod(0o755)
    return path


@check(11, "500 children at once, each comes to the driver")
def five_hundred(b):
    b.both(b.host("crowd"), "processes", "500")
    session, processes, end = b.described()
    refused = int(end.get("processes_refused", 0))
    b.equal(len(processes) + refused, 500, "every one is there or counted")
    b.equal(refused, 0, "there is room for 1024")
    events = b.events("--kind", "linear_acquired")
    lost = sum(int(loss) for loss in lost_records(b).values())
    b.that(len(events) == 1000 or lost > 0, f"{len(events)} of 1000 allocations, and nothing is said to be lost")
    b.notes.append(f"{len(events)} of 1000 allocations recorded, {lost} records said to be lost")


def lost_records(b):
    """Of each process, what the trace says was lost."""
    text = b.tool("dump", b.trace, "--env")
    return {i: sum(int(n) for n in re.findall(r"^(?:acquisitions|releases|others|records_without_ring|records_refused): (\d+)", part, re.MULTILINE))
            for i, part in enumerate(text.split("# losses of process")[1:])}


def lost_of_kinds(b, *kinds):
    """What the trace says was lost of these kinds of records, by their numbers in proto/wire.h."""
    text = b.tool("dump", b.trace, "--env")
    lost = re.findall(r"records_by_kind \{\s*key: (\d+)\s*value: (\d+)", text)
    return sum(int(count) for kind, count in lost if int(kind) in kinds)


@check(11, "a 32-bit program, alone and as a child")
def thirty_two_bits(b):
    if os.uname().machine != "x86_64":
        raise Skipped("a 32-bit x86 program runs on x86-64 only")
    old = elf32(b.folder)
    try:
        subprocess.run([old], capture_output=True, timeout=TIMEOUT)
    except OSError as why:
        raise Skipped(f"this kernel does not run 32-bit programs: {why}") from why
    b.both(old, status=7)
    said = b.report()
    b.that("32-bit program: the recorder cannot be loaded into it" in said, said)
    b.both("sh", "-c", f"{old}; echo $?; {b.host('direct')}")
    b.that(len(b.events("--kind", "linear_acquired")) >= 4, "the other child is not recorded")


@check(11, "children under a sanitizer: link order is a declared miss")
def sanitized_children(b):
    """The shared runtime of AddressSanitizer refuses to be loaded after anybody else; its own option lets it."""
    for name in ("sanitized_undefined", "sanitized_thread", "sanitized_address_static"):
        if (b.hosts / name).exists():
            _, traced = b.both(b.host(name))
            b.books(traced)
    if not (b.hosts / "sanitized_address").exists():
        raise Skipped("this compiler has no AddressSanitizer")
    b.variables["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0"
    _, traced = b.both(b.host("sanitized_address"))
    b.books(traced)
    b.variables["ASAN_OPTIONS"] = "detect_leaks=0"
    said = b.traced(b.host("sanitized_address"))
    b.that(said.status == 1 and "does not come first in initial library list" in said.err, said)


def in_namespace(b, mount, command):
    """The command after `mount`, seen by nobody else."""
    b.need_root()
    b.need("unshare")
    return ["unshare", "-m", "sh", "-c", f"{mount} || exit 77; {command}"]


@check(11, "children without /dev/shm, launcher with a full one")
def shared_memory(b):
    direct = shlex.quote(b.host("direct"))
    for mount in ("mkdir -p empty; mount --bind empty /dev/shm", "mount -t tmpfs -o ro,size=4k tmpfs /dev/shm"):
        plain, _ = b.both(*in_namespace(b, mount, direct), status=None)
        if plain.status == 77:
            raise Skipped("cannot mount here")
        b.equal(plain.status, 0)
        b.equal(b.events(), [], "a child that cannot reach the session cannot be recorded")
        b.that("No process used the CUDA driver" in b.report(), b.report())
    # The whole session inside of it, and the rest filled once the program runs: what is reserved stays usable.
    fill = "head -c 64M /dev/zero > /dev/shm/filler 2>/dev/null; " + direct
    command = f"{b.fragscope} run -q --force -o {b.trace} --buffer 16MiB -- sh -c {shlex.quote(fill)}"
    result = b.plain(*in_namespace(b, "mount -t tmpfs -o size=24m tmpfs /dev/shm", command))
    b.equal(result.status, 0, result)
    b.that(len(b.events("--kind", "linear_acquired")) >= 4, "not recorded")


@check(11, "too little of it for a session: said, or recorded with less")
def little_shared_memory(b):
    existing(b, "shared_memory_too_small")


def existing(b, name):
    """A check of tests/e2e/run_trouble.py."""
    script = pathlib.Path(__file__).parents[2] / "e2e" / "run_trouble.py"
    result = subprocess.run([sys.executable, script, b.build, name], capture_output=True, text=True, timeout=180)
    if result.returncode == 77:
        raise Skipped(result.stdout.strip())
    b.that(result.returncode == 0, f"run_trouble.py {name}", result.stdout[-1000:], result.stderr[-3000:])


@check(16, "a launcher with 64 workers that start helpers and exec")
def launcher(b):
    _, traced = b.both(b.host("crowd"), "workers", "64")
    processes = b.processes()
    b.equal(len(processes), 128, "64 workers and the 64 images that they become")
    b.equal(len({p["pid"] for p in processes}), 64)
    b.equal(sum(p["ended_how"] == "exec" for p in processes), 64)
    b.books(traced)
    # Two that the first image kept and two that the second one freed, in each.
    by_process = {}
    for event in b.events("--kind", "linear_acquired"):
        by_process[event["process"]] = by_process.get(event["process"], 0) + 1
    b.equal(sorted(by_process.values()), [2] * 128)


@check(16, "2000 threads that come and go: rings reused, memory bounded")
def many_threads(b):
    _, traced = b.both(b.host("crowd"), "threads", "40", "50")
    b.books(traced)
    b.nothing_lost()
    threads = {e["thread"] for e in b.events("--kind", "linear_acquired")}
    b.that(len(threads) > 1000, f"{len(threads)} threads")
    # The recorder and its shared memory, at the end of it.
    script = (f"{b.host('crowd')} threads 40 50 > /dev/null; cat /proc/$PPID/status; "
              "stat -c 'session %s' /dev/shm/fragscope-$PPID-*")
    said = b.traced("sh", "-c", script).out
    found = re.search(r"VmHWM:\s+(\d+) kB(?s:.*)session (\d+)", said)
    b.that(found is not None, said)
    resident, shared = int(found.group(1)) >> 10, int(found.group(2)) >> 20
    b.that(resident < 256 and shared <= 136, f"{resident} MiB resident, a session of {shared} MiB")
    b.notes.append(f"{len(threads)} threads; the recorder had at most {resident} MiB resident, its session is of {shared} MiB")


@check(16, "children that outlive the launcher")
def survivors(b):
    _, traced = b.both(b.host("crowd"), "survivors", "8")
    processes = b.processes()
    b.equal(len(processes), 8)
    b.books(traced)


@check(16, "two sessions at once, and a session in a session")
def two_sessions(b):
    names = ("one", "two")
    running = []
    for name in names:
        env = b.environment(name)
        env["FRAGSCOPE_SIM_LEDGER"] = str(b.folder / f"ledger-{name}")
        command = [str(b.fragscope), "run", "-q", "-o", str(b.folder / f"{name}.fst"), "--", b.host("crowd"), "processes", "20"]
        running.append(subprocess.Popen(command, env=env, cwd=b.folder, stdout=subprocess.PIPE))
    for process in running:
        out, _ = process.communicate(timeout=TIMEOUT)
        b.equal((process.returncode, out), (0, b"bad 0\n"))
    seen = []
    for name in names:
        b.trace = b.folder / f"{name}.fst"
        ledger = [line.split("\t") for line in (b.folder / f"ledger-{name}").read_text().splitlines()]
        seen.append({p["pid"] for p in b.processes()})
        b.equal(len(seen[-1]), 20)
        b.equal({line[1] for line in ledger if line[3] == "linear_alloc"}, {str(pid) for pid in seen[-1]})
    b.equal(seen[0] & seen[1], set(), "a process in both")
    # The inner one records what it starts; the outer one, what the inner one's program is not.
    inner = b.folder / "inner.fst"
    b.trace = b.folder / "outer.fst"
    script = f"{b.host('direct')}; {b.fragscope} run -q -o {inner} -- {b.host('direct')} look"
    plain = b.plain("sh", "-c", f"{b.host('direct')}; {b.host('direct')} look")
    traced = b.traced("sh", "-c", script)
    b.compare(plain, traced, script)
    for trace in (b.trace, inner):
        b.trace = trace
        [process] = b.processes()
        b.equal(process["executable"], os.path.realpath(b.host("direct")))
        b.that(len(b.events("--kind", "linear_acquired")) >= 4, "not recorded")


@check(16, "a device that all share, 20 processes")
def shared_device(b):
    existing(b, "many_processes")
