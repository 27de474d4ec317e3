"""Groups 6 and 8: virtual memory in every order, and several devices."""
from registry import check


@check(6, "all orders, ranges, places, exports, with and without context")
def every_order(b):
    plain, traced = b.both(b.host("vmm"))
    b.that(plain.out.count(" | ") > 100, "not many orders were tried")
    for wanted in ("cuMemUnmap two 0", "cuMemUnmap half of one 1", "place 4 0 cuMemCreate 0", "ranges 64"):
        b.that(wanted in plain.out, f"the simulated driver does not do what is to be tried: {wanted}")
    b.books(traced)
    b.nothing_lost()
    # What is mapped, created and reserved at the end: nothing, by the driver's books; so by the trace's.
    live = {"handle": 0, "reserved": 0, "mapped": 0}
    for e in b.events():
        if e["result"] == 0:
            live["handle"] += (e["kind"] == "handle_created") - (e["kind"] == "handle_released") + (e["kind"] == "handle_retained")
            live["reserved"] += (e["kind"] == "reserved") - (e["kind"] == "reservation_freed")
    b.equal((live["handle"], live["reserved"]), (0, 0))


@check(8, "memory freed under another device's context, or none")
def other_contexts(b):
    for devices in (1, 2, 8):
        b.settings["DEVICES"] = devices
        plain, traced = b.both(b.host("devices"))
        b.that(f"devices {devices}\n" in plain.out, plain.out)
        b.books(traced)
        # The device of an allocation is its own, whatever is current when it goes.
        for line in traced.ledger:
            if line[3] == "linear_alloc":
                [event] = [e for e in b.events("--kind", "linear_acquired") if int(e["address"], 16) == int(line[4], 16)]
                b.equal(event["device"], int(line[7]), event)


@check(8, "8 processes that begin together on 4 devices")
def processes_together(b):
    b.settings["DEVICES"] = 4
    b.share_device()
    _, traced = b.both(b.host("devices"), "8")
    b.equal(len(b.processes()), 8)
    b.books(traced)
