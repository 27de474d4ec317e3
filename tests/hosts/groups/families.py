"""Group 9: children of every kind. What the parent and each child see is compared line by line; what they did is in the books."""
from registry import check


def family(b, way, processes, changes=6):
    _, traced = b.both(b.host("families"), way)
    b.that(b.books(traced, by_process=way != "clone_vm") >= changes, way)
    found = b.processes()
    b.equal(len(found), processes, way, *found)
    return found


@check(9, "fork, _Fork, clone, clone3, and the bare system call")
def forks(b):
    for way in ("fork", "_fork", "syscall", "clone", "clone3"):
        parent, child = sorted(family(b, way, 2), key=lambda p: p["ended_how"])
        b.equal(parent["ended_how"], "exit 0")
        # Its parent may have asked first, and then nobody else can know.
        b.that(child["ended_how"] in ("exit 3", "unknown"), child["ended_how"])
        b.that(child["parent_pid"] in (parent["pid"], "0"), child)
        asked = [e for e in b.events("--process", "1") if e["kind"] == "linear_acquired"]
        b.equal(len(asked), 2, "the child's own calls")
        # The driver learns of a fork() by its handler, which the others do not call.
        if way == "fork":
            b.that(all(e["result"] != 0 for e in asked), "CUDA does not work in this child", asked)


@check(9, "vfork, posix_spawn, system, popen, clone with shared memory")
def short_children(b):
    for way in ("vfork", "spawn", "system", "popen", "clone_vm"):
        family(b, way, 1, changes=8 if way == "clone_vm" else 6)


@check(9, "double fork and daemon: nobody waits for the grandchild")
def orphans(b):
    for way in ("double", "daemon"):
        family(b, way, 2)


@check(9, "50 forks while three threads are inside of calls")
def forks_among_threads(b):
    plain, _ = b.both(b.host("families"), "threads")
    b.that("good 50" in plain.out, plain.out)


@check(9, "children that come to the driver themselves")
def forked_users(b):
    family(b, "open", 5, changes=2 * (1 + 2 + 3 + 4 + 1))


@check(9, "exec: one process after the other, each with its own end")
def execs(b):
    _, traced = b.both(b.host("families"), "exec")
    found = b.processes()
    b.equal([p["ended_how"] for p in found], ["exec", "exec", "exec", "exit 0"])
    b.equal(len({p["pid"] for p in found}), 1)
    for index in range(4):
        kept = b.events("--process", str(index), "--kind", "linear_acquired")
        b.equal(len(kept), 3, f"image {index}")
    b.books(traced)
