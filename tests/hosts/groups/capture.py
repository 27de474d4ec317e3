"""Group 7: a capture is not disturbed. The simulated driver counts the calls that one forbids, whoever makes them."""
from bench import EVERYTHING
from registry import check


def unsafe(outcome):
    return [line for line in outcome.out.splitlines() if line.startswith("unsafe ")]


@check(7, "three modes, failures inside, other threads, a second context")
def captures(b):
    for options in ((), ("--no-touches",), EVERYTHING):
        plain, traced = b.both(b.host("capturing"), options=options)
        b.that(len(unsafe(plain)) > 10, plain.out)
        b.equal(unsafe(traced), unsafe(plain), "calls that a capture forbids")
    captured = [e for e in b.events() if "captured" in e["flags"] and e["kind"] == "pool_acquired"]
    b.that(captured, "captured allocations are not marked")
    b.books(traced)
