"""Group 10: calls before main() and after it, and every way to end."""
import signal

from groups.crowds import lost_records
from registry import check

WAYS = {"return": 5, "exit": 5, "_exit": 5, "quick_exit": 5, "abort": -signal.SIGABRT, "kill": -signal.SIGKILL,
        "segv": -signal.SIGSEGV, "thread": 5}


@check(10, "8 ways to end, calls in constructors, destructors, atexit")
def ways_to_end(b):
    for way, status in WAYS.items():
        plain, traced = b.both(b.host("ends"), way, status=status)
        b.that("constructor\n" in plain.out and "static constructor\n" in plain.out and "thread\n" in plain.out, plain.out)
        if status == 5 and way not in ("_exit", "quick_exit"):
            b.that("static destructor\n" in plain.out and "atexit\n" in plain.out, plain.out)
        b.books(traced)
        [process] = b.processes()
        b.equal(process["ended_how"], f"exit {status}" if status > 0 else f"signal {-status}", way)


@check(10, "exit() in a constructor")
def exit_in_constructor(b):
    b.variables["HOST_WAY"] = "constructor"
    _, traced = b.both(b.host("ends"), "return", status=5)
    b.books(traced)


@check(10, "a driver that is shut down before the program's destructors")
def driver_shut_down(b):
    """As the real one: from the beginning of exit() on every call answers CUDA_ERROR_DEINITIALIZED (4)."""
    b.settings["DEINITIALIZE_AT_EXIT"] = "on"
    for way in ("return", "exit", "thread"):
        plain, traced = b.both(b.host("ends"), way, status=5)
        b.that("cuMemAlloc_v2 4 errno" in plain.out, plain.out)
        b.books(traced)
        late = [e for e in b.events("--function", "cuMemAlloc_v2") if e["result"] == 4]
        b.that(late, "the late calls are not in the trace")


@check(10, "a call that a signal handler leaves by a jump, one that it makes itself, captures that end unsaid")
def jumps(b):
    """After the jump the thread is recorded again. What was not recorded is counted as lost. No capture is said to go on."""
    b.settings["SIGNAL_cuCtxSynchronize"] = str(int(signal.SIGALRM))
    for word in ("jump", "handler", "stream", "context"):
        plain, _ = b.both(b.host("jumps"), word)
        expected = {"jump": "\nleft\n", "handler": "\nthe handler's allocation 0\n", "stream": "\ncuStreamDestroy 0 ",
                    "context": "\ncuDevicePrimaryCtxReset 0 "}
        b.that(expected[word] in plain.out, plain.out)
        made = [e["result"] for e in b.events("--kind", "linear_acquired")]
        b.equal(made, [0, 0, 0, 0, 2], word)
        ends = b.events("--kind", "failure_snapshot_end")
        b.equal(["captured" in e["flags"] for e in ends], [False], word)
        b.equal(sum(lost_records(b).values()), 1 if word in ("jump", "handler") else 0, word)


@check(10, "a capture goes on when a stream that joined it or another device's context ends")
def captures_go_on(b):
    """The first failure is in the capture and is not looked into; the second one is after it and is."""
    b.settings["DEVICES"] = "2"
    for word in ("joined", "others"):
        plain, _ = b.both(b.host("jumps"), word)
        ended = "cuStreamDestroy" if word == "joined" else "cuDevicePrimaryCtxReset"
        b.that(f"\n{ended} 0 " in plain.out and "\nunsafe 0\n" in plain.out, plain.out)
        ends = b.events("--kind", "failure_snapshot_end")
        b.equal(["captured" in e["flags"] for e in ends], [True, False], word)


@check(10, "a jump out of each question that the recorder asks of the driver after a failure")
def jumps_out_of_questions(b):
    """Nothing of it stays: context, capture mode, pools that are said to be read. What one jump leaves is the same for every
    program, so the numbers that are left go up until no question is interrupted any more."""
    b.settings["DEVICES"] = "2"
    for function in ("cuMemGetInfo_v2", "cuMemPoolGetAttribute", "cuDeviceGetGraphMemAttribute", "cuCtxPopCurrent_v2",
                     "cuMemAddressReserve"):
        b.settings[f"SIGNAL_{function}"] = str(int(signal.SIGALRM))
    left = []
    for number in (1, 2, 6, 7, 8, 12, 14, 20, 25, 30):
        plain, _ = b.both(b.host("jumps"), "asked", number, options=("--probe-on-oom",))
        b.that("\nmode 0\n" in plain.out and "\nat once: 1\n" in plain.out, plain.out)
        left.append(sum(lost_records(b).values()))
    b.equal((left[0], left[-1]), (1, 0), f"the first question was left, and there are fewer than 30: {left}")
