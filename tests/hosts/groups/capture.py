"""Group 7: a capture is not disturbed. The simulated driver counts the calls that one forbids, whoever makes them."""
import types

from bench import EVERYTHING, Failed
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


@check(7, "the books themselves: a graph's memory that the driver freed once is in the trace once")
def books_of_graphs(b):
    freed = types.SimpleNamespace(ledger=[["", "7", "", "graph_free", "0x1000", "64", "", "", "", "0x0"]])
    event = {"pid": 7, "result": 0, "flags": [], "kind": "pool_released", "address": "0x1000", "bytes": 0, "object": "0x0"}
    b.books(freed, events=[event])
    b.books(freed, events=[{**event, "kind": "linear_released"}])
    for wrong in ([], [event, event], [event, {**event, "kind": "linear_released"}]):
        try:
            b.books(freed, events=wrong)
        except Failed:
            continue
        b.that(False, f"these pass for one release: {wrong}")
