"""Group 14: what a process can find out of itself is the same with the recorder."""
from registry import check


@check(14, "signals, masks, descriptors, limits, environment, threads")
def around(b):
    """Beside what every check compares: the process looks around, before its first call and after its last."""
    for program in ("direct", "direct_no_plt"):
        plain, _ = b.both(b.host(program), "look")
        for wanted in ("SigBlk", "SigIgn", "SigCgt", "Threads", "umask", "cwd", "limit 7", "descriptor 2", "variable PATH"):
            b.equal(plain.out.count(f"  {wanted}") >= 2, True, wanted)


@check(14, "without a collector: the same, and nothing is said")
def around_without_collector(b):
    for session in ("", "/fragscope-there-is-none", "no-slash"):
        plain = b.plain(b.host("direct"), "look")
        b.compare(plain, b.preloaded(b.host("direct"), "look", session=session), f"session {session!r}")
