"""Group 13: the recorder's other half is absent, slow, dead, or another one."""
import os
import pathlib
import signal
import subprocess
import time

from bench import TIMEOUT
from groups.crowds import existing, lost_of_kinds
from groups.preloads import doctest
from registry import check


@check(13, "absent: shim alone, a session that is not there")
def absent(b):
    for session in ("", "/fragscope-there-is-none", "/", "/../etc/passwd"):
        for program in (("direct",), ("opener", "libcuda.so.1", "nL", "resolver:12000"), ("ends", "return"), ("families", "fork")):
            plain = b.plain(b.host(program[0]), *program[1:])
            b.compare(plain, b.preloaded(b.host(program[0]), *program[1:], session=session), program)


@check(13, "stopped: bounded wait, then counted by kind and bytes")
def stopped(b):
    """The program stops its recorder and goes on; what does not fit is lost, and the sum is right."""
    times = 30000
    plain = b.plain(b.host("steady"), str(times))
    begun = time.monotonic()
    traced = b.traced(b.host("steady"), str(times), str(int(signal.SIGSTOP)),
                      options=["--buffer", "5MiB", "--sample=off"])
    took = time.monotonic() - begun
    b.compare(plain, traced, "steady")
    b.that(took < 20, f"{took} s for {times} pairs of calls")
    recorded = len(b.events("--function", "cuMemAlloc_v2")) + len(b.events("--function", "cuMemFree_v2"))
    # kLinearAcquired, kLinearReleased: in a buffer so small, names and the like may be lost beside them.
    lost = lost_of_kinds(b, 1, 4)
    b.that(lost > times, f"{lost} lost: the ring cannot hold so much")
    b.equal(recorded + lost, 2 * times, f"{recorded} recorded, {lost} said to be lost")
    b.that("lost" in b.report(), b.report()[:2000])
    b.notes.append(f"{recorded} of {2 * times} recorded, {lost} counted as lost, {took:.1f} s")


@check(13, "killed: the program goes on, the file can be read")
def killed(b):
    existing(b, "kill_collector")


@check(13, "killed, and another one started: neither is in the other's way")
def restarted(b):
    env = b.environment("traced")
    first = b.folder / "first.fst"
    # The program is the recorder's own child, and kills it.
    program = subprocess.Popen([str(b.fragscope), "run", "-q", "-o", str(first), "--", b.host("steady"), "2000",
                                str(int(signal.SIGKILL))], env=env, cwd=b.folder, stdout=subprocess.PIPE)
    out, _ = program.communicate(timeout=TIMEOUT)
    b.equal(program.returncode, -signal.SIGKILL)
    b.equal(out, b"bad 0\nchild 300\n")
    left = list(pathlib.Path("/dev/shm").glob(f"fragscope-{program.pid}-*"))
    b.that(left, "the dead recorder's memory is gone already: nothing to find for the next one")
    _, traced = b.both(b.host("direct"))
    b.books(traced)
    b.that(not left[0].exists(), "the next one did not take it away")
    b.tool("dump", first, status=(1, 3))


@check(13, "no ring, no slot, rubbish in the shared memory")
def rubbish(b):
    for case in ("no session, or one that makes no sense, leaves the program alone",
                 "a ring with an impossible tail loses records and nothing else",
                 "without a ring everything is counted", "more processes than slots*",
                 "a dead or closing collector is not waited for"):
        doctest(b, case)


@check(13, "a preload that cannot be found is refused, a relative one found")
def wrong_path(b):
    for options, sentence in ((["--shim", "/no/such/shim.so"], "cannot find the recorder"),
                              (["--shim", "."], "not a 64-bit shared library"),
                              (["--shim", "/etc/passwd"], "not a 64-bit shared library")):
        command = [b.fragscope, "run", *options, "-o", b.trace, "--", b.host("direct")]
        said = b.plain(*command)
        b.that(said.status == 125 and sentence in said.err and said.out == "", options, said)
    # The program goes elsewhere before it starts what uses the driver.
    relative = pathlib.Path(os.path.relpath(b.shim, b.folder.resolve()))
    _, traced = b.both("sh", "-c", f"cd /; {b.host('direct')}", options=["--shim", relative])
    b.books(traced)
