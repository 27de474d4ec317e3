"""Group 14: what a process can find out of itself is the same with the recorder."""
from bench import EVERYTHING
from registry import check


@check(14, "signals, masks, descriptors, limits, environment, threads")
def around(b):
    """Beside what every check compares: the process looks around, before its first call and after its last."""
    for program in (("direct", "look"), ("direct_no_plt", "look"), ("signals",)):
        plain, _ = b.both(b.host(program[0]), *program[1:])
        for wanted in ("SigBlk", "SigIgn", "SigCgt", "Threads", "umask", "cwd", "limit 7", "descriptor 2", "variable PATH"):
            b.that(plain.out.count(f"  {wanted}") >= 2, wanted)
    b.that("bad 0 users some" in plain.out and "pending 1" in plain.out, plain.out)


@check(14, "what children see: environment, descriptors, limits, mask")
def children(b):
    b.variables.update({"LD_BIND_NOW": "", "FRAGSCOPE_OWN": "kept", "ODD": "a=b=c", "EMPTY": ""})
    script = "umask 077; cd /; env; ulimit -a; umask; pwd; ls /proc/self/fd; cat /proc/self/comm; " + b.host("direct") + " look; env"
    plain, _ = b.both("sh", "-c", script)
    for wanted in ("ODD=a=b=c", "FRAGSCOPE_OWN=kept", "umask 77", "cwd /"):
        b.that(wanted in plain.out, wanted)


@check(14, "under low limits: address space, descriptors, processes")
def limits(b):
    for limit in ("ulimit -v 200000", "ulimit -n 5", "ulimit -n 4", "ulimit -s 256", "ulimit -c 0; ulimit -l 0"):
        b.both("sh", "-c", f"{limit}; exec {b.host('direct')}")


@check(14, "with stacks, samples, probes and every call recorded")
def everything_on(b):
    for program in (("direct", "look"), ("signals",), ("ends", "return"), ("ends", "segv"), ("families", "fork"), ("families", "exec"),
                    ("families", "threads"), ("families", "clone_vm"), ("devices",), ("vmm",), ("frees",), ("runtime_per_thread",),
                    ("crowd", "threads", "20", "5"), ("plugged", b.host("libplugin_linked.so"), "L", "2")):
        b.both(b.host(program[0]), *program[1:], options=EVERYTHING, status=None)
    b.library_path = [b.hosts / "blank"]
    b.both(b.host("rows"), "blank", options=EVERYTHING)


@check(14, "without a collector: the same, and nothing is said")
def around_without_collector(b):
    for session in ("", "/fragscope-there-is-none", "no-slash"):
        plain = b.plain(b.host("direct"), "look")
        b.compare(plain, b.preloaded(b.host("direct"), "look", session=session), f"session {session!r}")
