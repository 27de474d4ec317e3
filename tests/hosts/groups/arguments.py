"""Groups 4 and 5: arguments and answers that no good program or driver gives, and frees of what is not there."""
from groups.drivers import exported, rows
from registry import check


def lines_of(b, what):
    return b.plain(b.host("rows"), what).out.split()


@check(4, "every row: no, small and impossible arguments; 11 answers")
def blank_driver(b):
    """On a driver that does nothing but answer, and writes rubbish where it may."""
    b.library_path = [b.hosts / "blank"]
    plain, _ = b.both(b.host("rows"), "blank")
    b.that(plain.out.count("\n") > 100 * len(rows(b)), "not every row was called")
    b.that("errno 4242" in plain.out and "dlerror 0" not in plain.out, "the program did not see its own errno and dlerror")


@check(4, "every row with zeros, in a process of its own")
def zeros_alone(b):
    plain, _ = b.both(b.host("rows"), "alone")
    b.equal(plain.out.count(" ends "), len(rows(b)))


@check(4, "every function of the simulated driver fails, 5 errors")
def everything_fails(b):
    config = b.folder / "faults"
    b.variables["FRAGSCOPE_SIM_CONFIG"] = str(config)
    for error in (2, 3, 700, 801, 999):
        config.write_text("".join(f"fault.{name} = {error}@every:1\n" for name in exported(b)))
        plain, _ = b.both(b.host("rows"), "zeros")
        b.that(f": {error} errno" in plain.out, plain.out[:1000])
        b.both(b.host("direct"), status=None)


@check(4, "each hooked function fails in a program that uses it")
def one_fails(b):
    for name in ("cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync",
                 "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve", "cuMemGetInfo_v2"):
        b.variables = {f"FRAGSCOPE_SIM_FAULT_{name}": "2@every:1"}
        _, traced = b.both(b.host("direct"), status=None)
        if name != "cuMemFree_v2":  # what it leaves, the end of the context frees without a call
            b.books(traced)
        failed = [e for e in b.events("--function", name) if e["result"] == 2]
        b.that(failed, f"no failure of {name} in the trace")


@check(4, "what the shim asks by itself fails: the program does not notice")
def questions_fail(b):
    asked = [name for name in lines_of(b, "asked") if name in exported(b)]
    b.that(len(asked) > 5, asked)
    for error in (1, 4, 999):
        b.variables = {f"FRAGSCOPE_SIM_FAULT_{name}": f"{error}@every:1" for name in asked if name != "cuDriverGetVersion"}
        plain, traced = b.both(b.host("direct"))
        b.that("cuMemAlloc_v2 0 errno" in plain.out, plain.out)
        b.books(traced)


@check(5, "unknown, absent, inner, foreign, imported and double frees")
def strange_frees(b):
    _, traced = b.both(b.host("frees"))
    b.books(traced)
    events = b.events()
    b.that(sum(e["result"] != 0 for e in events) > 30, "failed frees are not recorded as failed")
    b.report()
