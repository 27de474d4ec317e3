"""`fragscope run` and `fragscope dump` in ordinary life and in trouble, on the simulated GPU.

Usage: run_trouble.py BUILD_ROOT [CHECK …]     all checks, or those named
"""
import ctypes
import ctypes.util
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
FRAGSCOPE = BUILD / "tools" / "fragscope"
CLIENT = [sys.executable, str(pathlib.Path(__file__).with_name("client.py"))]
TIMEOUT = 60
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


class Place:
    """A scratch folder and an environment with a simulated GPU of its own."""

    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder)
        self.trace = self.folder / "t.fst"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}
        self.env["LD_LIBRARY_PATH"] = str(BUILD / "tests" / "simcuda")
        self.env["FRAGSCOPE_SIM_SHARED"] = f"e2e-{os.getpid()}-{name}"

    def command(self, *words, options=(), program=None):
        return [str(FRAGSCOPE), "run", "-o", str(self.trace), *options, "--", *(program or CLIENT), *words]

    def run(self, *words, options=(), program=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(self.command(*words, options=options, program=program), env=self.env,
                              capture_output="stdout" not in more, cwd=self.folder, timeout=TIMEOUT, **more)

    def start(self, *words, options=()):
        return subprocess.Popen(self.command(*words, options=options), env=self.env, cwd=self.folder,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def dump(self, *options, status=0, trace=None):
        result = subprocess.run([FRAGSCOPE, "dump", trace or self.trace, *options], capture_output=True, timeout=TIMEOUT)
        assert result.returncode == status, (result.returncode, result.stderr)
        return result.stdout.decode()

    def tool(self, *words, status=0, **more):
        """What it wrote to stdout; where it could not do it, its one sentence on stderr instead."""
        more.setdefault("stdout", subprocess.PIPE)
        result = subprocess.run([FRAGSCOPE, *words], stderr=subprocess.PIPE, timeout=TIMEOUT, **more)
        said = result.stderr.decode()
        assert result.returncode == status, (words, result.returncode, said)
        if status in (0, 3):
            return result.stdout.decode()
        assert not result.stdout and said.startswith("fragscope: ") and said.count("\n") == 1, (words, said)
        return said

    def warnings(self):
        end = json.loads(self.dump("--env", "--json").splitlines()[-1])
        return end.get("warnings", [])

    def events(self, *options, status=0):
        return [json.loads(line) for line in self.dump("--json", *options, status=status).splitlines()]

    def processes(self, status=0):
        lines = [json.loads(line) for line in self.dump("--env", "--json", status=status).splitlines()]
        return [line for line in lines if "ended_how" in line]

    def allocations(self, status=0):
        return len(self.events("--kind", "linear_acquired", status=status))


class Skipped(Exception):
    """This machine does not allow the check: it has not passed, and meson is told so (exit status 77)."""


def until(condition, what):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def expect(result, status, *sentences):
    said = result.stderr.decode()
    assert result.returncode == status, (result.returncode, said, result.stdout)
    for sentence in sentences:
        assert sentence in said, (sentence, said)


@check
def statuses(p):
    for status in (0, 1, 7, 255):
        p.trace.unlink(missing_ok=True)
        expect(p.run("alloc:1", f"exit:{status}"), status, "recorded 1 process", "next: fragscope report")
        assert p.processes()[0]["ended_how"] == f"exit {status}"
    p.trace.unlink()
    expect(p.run("alloc:1", "kill:15"), 128 + 15)
    assert p.processes()[0]["ended_how"] == "signal 15"
    assert p.allocations() == 1


@check
def cannot_start(p):
    expect(p.run(program=["/no/such/program"]), 127, "there is no such program")
    expect(p.run(program=["/etc/passwd"]), 126, "it is not executable")
    bad = p.folder / "bad"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    expect(p.run(program=[str(bad)]), 126, "the interpreter or loader that it names is missing")
    assert not p.trace.exists(), "a trace of a program that never ran"
    usage = [([], "which program"), (["--bogus", "x"], "no option --bogus"), (["--on-full=never", "x"], "--on-full never: expected drop")]
    for words, sentence in usage:
        expect(subprocess.run([FRAGSCOPE, "run", *words], capture_output=True, env=p.env, cwd=p.folder), 2, sentence)
    expect(subprocess.run([FRAGSCOPE, "fly"], capture_output=True), 2, "no command 'fly'")
    expect(p.run("alloc:1", options=["--shim", "/no/shim.so"]), 125, "cannot find the recorder")
    for size in ("1", "9999TiB", "99999999999999999999", "12potatoes", "MiB"):
        expect(p.run("say:started", options=["--buffer", size]), 2, f"--buffer {size}: expected a size such as 256MiB")
    expect(p.run("say:started", options=["--linger", "-1"]), 2, "--linger -1: expected 0 to 1000000 seconds")
    expect(p.run("say:started", options=["--linger", "soon"]), 2, "--linger soon: expected a number")
    said = p.tool("run", "--help")
    assert all(str(status) in said for status in (125, 126, 127)), said
    for command in ("run", "dump"):
        said = p.tool(command, "--help")
        assert not any(word in said for word in ("UINT", "TEXT", "FLOAT", "INT:")), said
        assert max(map(len, said.splitlines())) <= 100 and said.endswith(".\n"), said


@check
def nothing_to_record(p):
    expect(p.run(program=["true"]), 0, "No process used the CUDA driver", str(p.trace))
    assert p.events() == []
    assert len(p.warnings()) == 1 and p.warnings()[0].startswith("No process used the CUDA driver"), p.warnings()
    for command in ("explain", "report"):
        assert "No process used the CUDA driver" in " ".join(p.tool(command, p.trace, status=3).split())
    p.trace.unlink()
    expect(p.run("alloc:1"), 0)
    assert p.warnings() == []


def compiled(p, name, *options):
    """A program that says hello and ends with 3."""
    source = p.folder / f"{name}.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n')
    program = p.folder / name
    command = [shutil.which("cc") or "cc", *options, "-o", program, source]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT)
    except (OSError, subprocess.CalledProcessError) as why:
        raise Skipped(f"cannot compile with {options}: {why}") from why
    return program


@check
def static_program(p):
    program = compiled(p, "frozen", "-static")
    result = p.run(program=[str(program)])
    expect(result, 3, "is statically linked")
    assert result.stdout == b"hello\n"
    assert ["statically linked" in w for w in p.warnings()] == [True], p.warnings()
    for command in ("explain", "report"):
        assert "statically linked" in " ".join(p.tool(command, p.trace, status=3).split())


@check
def setuid_program(p):
    """As another user, so that the loader of the program ignores what is to be preloaded."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None or os.statvfs(p.folder).f_flag & os.ST_NOSUID:
        raise Skipped("needs root, setpriv and a file system with setuid programs")
    program = compiled(p, "borrowed")
    program.chmod(0o4755)
    p.folder.chmod(0o777)
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*as_nobody, FRAGSCOPE, "--version"], capture_output=True).returncode != 0:
        raise Skipped("the build cannot be used by another user")
    result = subprocess.run([*as_nobody, *p.command(program=[str(program)])], env=p.env, cwd=p.folder,
                            capture_output=True, timeout=TIMEOUT)
    expect(result, 3, "setuid")
    assert result.stdout == b"hello\n"
    assert ["setuid" in w for w in p.warnings()] == [True], p.warnings()
    for command in ("explain", "report"):
        assert "setuid" in p.tool(command, p.trace, status=3)


@check
def output_file(p):
    p.trace.write_text("precious")
    expect(p.run("alloc:1"), 125, "exists already", "--force")
    assert p.trace.read_text() == "precious"
    expect(p.run("alloc:1", options=["--force"]), 0)
    assert p.allocations() == 1
    p.trace = p.folder / "no-such-folder" / "t.fst"
    expect(p.run("say:started"), 125, "cannot write", "No such file or directory")
    p.trace = pathlib.Path("/dev/full")
    result = p.run("say:started")
    expect(result, 125, "No space left on device")
    assert result.stdout == b"", "the program was started"
    command = [FRAGSCOPE, "run", "--", *CLIENT, "alloc:1"]
    result = subprocess.run(command, env=p.env, cwd=p.folder, capture_output=True, timeout=TIMEOUT)
    assert list(p.folder.glob("fragscope-python*.fst")), result.stderr
    # With the program's number, and there when the program begins.
    command = [FRAGSCOPE, "run", "--", "sh", "-c", "ls fragscope-sh-$$.fst"]
    result = subprocess.run(command, env=p.env, cwd=p.folder, capture_output=True, timeout=TIMEOUT)
    assert result.returncode == 0 and (p.folder / result.stdout.decode().strip()).exists(), result
    p.trace = p.folder / "quiet.fst"
    result = p.run("alloc:1", options=["-q"])
    assert (result.returncode, result.stderr) == (0, b""), result


def in_mount_namespace(p, mount, command, **more):
    """Runs the command after the shell command `mount`, seen by nobody else."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Skipped("needs root and unshare")
    whole = ["unshare", "-m", "sh", "-c", f'{mount} || exit 77; exec "$@"', "sh", *command]
    result = subprocess.run(whole, env=p.env, cwd=p.folder, capture_output=True, timeout=TIMEOUT, **more)
    if result.returncode == 77:
        raise Skipped("cannot mount here")
    return result


@check
def full_disk(p):
    """The disk is full long before the program is done: it runs on, and what was written can be read."""
    disk = p.folder / "disk"
    disk.mkdir()
    p.trace = disk / "t.fst"
    kept = p.folder / "kept.fst"
    script = ["sh", "-c", f'"$@"; s=$?; cp {p.trace} {kept}; exit $s', "sh",
              *p.command("churn:150000", "say:done", "exit:3")]
    result = in_mount_namespace(p, f"mount -t tmpfs -o size=256k tmpfs {disk}", script)
    expect(result, 3, "events not written", "No space left on device")
    assert result.stdout == b"done\n"
    p.trace = kept
    events = p.events()
    assert 1000 < len(events) < 300000, len(events)
    assert "out of space" in p.dump("--env")
    assert [e["sequence"] for e in events] == sorted(e["sequence"] for e in events)
    head = [line for line in p.dump("--limit", "1").splitlines() if line.startswith("#")]
    assert any("not written" in line for line in head), head
    assert ["No space left on device" in w for w in p.warnings()] == [True], p.warnings()
    assert "No space left on device" in " ".join(p.tool("report", kept, status=3).split())


@check
def slow_disk(p):
    """The trace goes into a pipe that nobody reads from: the program is not held up, and nothing is lost."""
    os.mkfifo(p.trace)
    reader = os.open(p.trace, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    running = p.start("alloc:10000", "churn:20000", "say:done", "wait", options=["--on-full=wait:2s", "--sample=off"])
    assert running.stdout.readline() == b"done\n"
    os.set_blocking(reader, True)
    with open(reader, "rb") as pipe:
        running.stdin.write(b"go on\n")
        running.stdin.flush()
        content = pipe.read()
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == 0 and b"nothing known to be lost" in said, said
    assert len(content) > 3 * 4096, len(content)
    p.trace.unlink()
    p.trace.write_bytes(content)
    assert p.allocations() == 30000


@check
def pass_through(p):
    data = bytes(range(256)) * 5000
    result = subprocess.run(p.command("alloc:1", "copy"), env=p.env, cwd=p.folder, input=data, capture_output=True,
                            timeout=TIMEOUT)
    assert result.stdout == data
    assert result.stderr.count(b"\n") == 1, result.stderr


@check
def closed_descriptors(p):
    """What is closed for us is closed for the program; and none of our files takes its place."""
    for closed in ([0], [1], [2], [0, 1, 2]):
        p.trace.unlink(missing_ok=True)
        read_end, write_end = os.pipe()
        os.dup2(write_end, 99)
        os.close(write_end)
        p.env["REPORT_FD"] = "99"
        close = " ".join(f"{fd}<&-" for fd in closed)
        command = ["sh", "-c", f'exec "$@" {close}', "sh", *p.command("closed", "alloc:5", "exit:4")]
        result = subprocess.run(command, env=p.env, cwd=p.folder, pass_fds=[99], timeout=TIMEOUT,
                                stderr=subprocess.DEVNULL)
        os.close(99)
        said = os.read(read_end, 100)
        os.close(read_end)
        assert result.returncode == 4, (closed, result.returncode)
        assert said == "".join(map(str, closed)).encode(), (closed, said)
        assert p.allocations() == 5, closed


@check
def program_closes_everything(p):
    result = p.run("alloc:3", "closeall", "alloc:4", "say:fine")
    expect(result, 0)
    assert result.stdout == b"fine\n"
    assert p.allocations() == 7


@check
def kill_program(p):
    running = p.start("alloc:100", "say:ready", "sleep")
    assert running.stdout.readline() == b"ready\n"
    child = int(pathlib.Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text())
    os.kill(child, signal.SIGKILL)
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == 137, said
    assert p.allocations() == 100, "a committed record is missing"
    assert p.processes()[0]["ended_how"] == "signal 9"


@check
def signal_to_collector(p):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        p.trace.unlink(missing_ok=True)
        running = p.start("alloc:2", f"catch:{int(number)}:5", "say:ready", "sleep")
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(number)
        out, said = running.communicate(timeout=TIMEOUT)
        assert out.decode() == f"caught {int(number)}\nonce\n", out
        assert running.returncode == 5, said
        assert p.allocations() == 2


@check
def ctrl_c(p):
    """From a terminal: the program gets it once, the trace says what happened."""
    for words, status in (("catch:2:6", 6), ("die:2", 128 + 2)):
        p.trace.unlink(missing_ok=True)
        command = p.command("alloc:2", words, "say:ready", "sleep")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(p.folder)
            os.execve(command[0], command, p.env)
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        try:
            while True:
                more = os.read(terminal, 1000)
                if not more:
                    break
                seen += more
        except OSError:
            pass  # the terminal's other end is closed
        _, ended = os.waitpid(pid, 0)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(ended) == status, (ended, seen)
        if status == 6:
            assert b"once" in seen and b"twice" not in seen, seen
        assert b"recorded 1 process" in seen, seen
        assert p.allocations() == 2
        assert "interrupted by signal 2" in p.dump("--env"), p.dump("--env")


@check
def kill_collector(p):
    """The program goes on unharmed; the file can be read up to its last whole chunk."""
    running = p.start("alloc:500", "say:ready", "wait", "churn:5000", "say:done")
    assert running.stdout.readline() == b"ready\n"
    child = int(pathlib.Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text())
    until(lambda: p.trace.exists() and p.allocations(status=3) == 500, "the events in the file")
    running.kill()
    running.wait()
    # At once: any recording that begins meanwhile, also another test's, takes the dead one's memory away.
    left = list(pathlib.Path("/dev/shm").glob(f"fragscope-{running.pid}-*"))
    assert pathlib.Path(f"/proc/{child}").exists()
    running.stdin.write(b"go on\n")
    running.stdin.flush()
    assert running.stdout.readline() == b"done\n"
    running.stdin.close()
    until(lambda: not pathlib.Path(f"/proc/{child}").exists()
          or pathlib.Path(f"/proc/{child}/stat").read_text().split()[2] == "Z", "the program's end")
    assert p.allocations(status=3) >= 500
    assert "cut off" in p.dump(status=3).splitlines()[0]
    # The next recording takes the dead one's memory away.
    assert left
    p.trace.unlink()
    expect(p.run("alloc:1"), 0)
    assert not left[0].exists()


@check
def family(p):
    # The parent comes to the driver after the fork: CUDA does not work in children of a process that uses it.
    expect(p.run("fork:alloc:2", "alloc:4"), 0, "recorded 2 processes")
    by_process = [sum(1 for e in p.events("--kind", "linear_acquired") if e["process"] == i) for i in (0, 1)]
    assert sorted(by_process) == [2, 4], by_process
    parent, child = sorted(p.processes(), key=lambda q: q["ended_how"] != "exit 0")
    assert parent["ended_how"] == "exit 0" and child["parent_pid"] == parent["pid"], (parent, child)
    p.trace.unlink()
    # A child that cannot have the driver, as its parent has it, and lost nothing thereby.
    expect(p.run("alloc:1", "fork:refused"), 0, "recorded 2 processes", "nothing known to be lost")
    assert "missing from this recording" not in p.tool("explain", p.trace)
    p.trace.unlink()
    expect(p.run("alloc:1", "exec:alloc:2,exit:9"), 9, "recorded 2 processes")
    assert [q["ended_how"] for q in p.processes()] == ["exec", "exit 9"]
    p.trace.unlink()
    # Nothing of what outlives the program may hold our end of a pipe.
    with open(p.folder / "said", "w+b") as said:
        result = p.run("orphan:alloc:2,sleep", "alloc:1", options=["--linger", "0.5"], stdout=subprocess.DEVNULL, stderr=said)
    result.stderr = (p.folder / "said").read_bytes()
    expect(result, 0, "1 process still running")
    ends = sorted(q["ended_how"] for q in p.processes())
    assert ends == ["exit 0", "still running"], ends
    for q in p.processes():
        if q["ended_how"] == "still running":
            os.kill(int(q["pid"]), signal.SIGKILL)


SHIM = str((BUILD / "interpose" / "libfragscope.so").resolve())


def environment_of(p, *options, env=None, program=("env", "-0"), before=()):
    p.trace.unlink(missing_ok=True)
    result = subprocess.run([*before, *p.command(*program, options=options, program=["env"])], env=env or p.env,
                            cwd=p.folder, capture_output=True, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    return dict(entry.split("=", 1) for entry in result.stdout.decode().rstrip("\0").split("\0"))


@check
def program_environment(p):
    """The program and its children find the documented variables in their environment, and nothing else changed."""
    session = r"/fragscope-\d+-\d+-[0-9a-f]{16}"
    for program in (("env", "-0"), ("sh", "-c", "env -0")):
        seen = environment_of(p, program=program)
        plain = dict(entry.split("=", 1) for entry in subprocess.run(
            ["env", *program], env=p.env, cwd=p.folder, capture_output=True).stdout.decode().rstrip("\0").split("\0"))
        assert re.fullmatch(session, seen.pop("FRAGSCOPE_SESSION")), seen
        assert seen.pop("LD_PRELOAD") == SHIM
        assert seen.pop("NVTX_INJECTION64_PATH") == SHIM
        assert seen == plain, (seen, plain)
    # What was there stays, behind ours.
    other = "/usr/lib/x86_64-linux-gnu/libdl.so.2"
    env = {**p.env, "LD_PRELOAD": f"{other} {other}", "NVTX_INJECTION64_PATH": "/tool.so"}
    seen = environment_of(p, env=env)
    assert seen["LD_PRELOAD"] == f"{SHIM}:{other}:{other}", seen
    assert (seen["NVTX_INJECTION64_PATH"], seen["FRAGSCOPE_NVTX_CHAIN"]) == (SHIM, "/tool.so"), seen
    seen = environment_of(p, "--no-nvtx", env=env)
    assert seen["NVTX_INJECTION64_PATH"] == "/tool.so" and "FRAGSCOPE_NVTX_CHAIN" not in seen, seen
    assert "NVTX_INJECTION64_PATH" not in environment_of(p, "--no-nvtx")
    # Inside another session: as in one, and the other one is not in it any more.
    outer = [str(FRAGSCOPE), "run", "-q", "-o", str(p.folder / "outer.fst"), "--force", "--"]
    names = []
    for extra in ({}, {"NVTX_INJECTION64_PATH": "/tool.so"}):
        seen = environment_of(p, env={**p.env, **extra}, before=outer)
        assert seen["LD_PRELOAD"] == SHIM, seen
        assert seen["NVTX_INJECTION64_PATH"] == SHIM, seen
        assert seen.get("FRAGSCOPE_NVTX_CHAIN") == extra.get("NVTX_INJECTION64_PATH"), seen
        names.append(seen["FRAGSCOPE_SESSION"])
        seen = environment_of(p, "--no-nvtx", env={**p.env, **extra}, before=outer)
        assert seen.get("NVTX_INJECTION64_PATH") == extra.get("NVTX_INJECTION64_PATH"), seen
        assert "FRAGSCOPE_NVTX_CHAIN" not in seen, seen
    assert len(set(names)) == 2 and all(re.fullmatch(session, name) for name in names), names


@check
def session_in_a_session(p):
    """The inner one records the program; the outer one says that it saw nobody."""
    outer = p.folder / "outer.fst"
    result = subprocess.run([str(FRAGSCOPE), "run", "-o", str(outer), "--", *p.command("alloc:3", "exit:4")], env=p.env,
                            cwd=p.folder, capture_output=True, timeout=TIMEOUT)
    expect(result, 4, "recorded 1 process", "No process used the CUDA driver")
    assert p.allocations() == 3
    p.trace = outer
    assert p.processes() == [] and len(p.warnings()) == 1


@check
def two_sessions(p):
    """At the same time, each with a program of its own: neither sees anything of the other."""
    running = p.start("alloc:5", "say:ready", "wait", "alloc:5")
    assert running.stdout.readline() == b"ready\n"
    first, p.trace = p.trace, p.folder / "second.fst"
    expect(p.run("alloc:3"), 0, "recorded 1 process", "nothing known to be lost")
    assert p.allocations() == 3
    running.communicate(b"\n", timeout=TIMEOUT)
    p.trace = first
    assert p.allocations() == 10 and len(p.processes()) == 1


@check
def recording_options(p):
    """What is asked for reaches the trace; sizes that are no such are refused in one sentence."""
    wrong = (("--stacks=some", "--stacks some: expected off"), ("--sample=100ms", "--sample 100ms: expected off"),
             ("--sample=every:1us", "--sample every:1us"), ("--sample=every:1s,every:2s", "--sample every:1s,every:2s"),
             ("--sample=bytes:0", "--sample bytes:0"), ("--sample=every:1s,", "--sample every:1s,"),
             ("--probe-on-oom=x", "--probe-on-oom=x: expected TIME"), ("--probe-on-oom=1h", "--probe-on-oom=1h"),
             ("--probe-on-oom=1s,", "--probe-on-oom=1s,"), ("--probe-on-oom=0,1GiB", "--probe-on-oom=0,1GiB"))
    for option, sentence in wrong:
        expect(p.run("say:started", options=[option]), 2, sentence)
    mib = 1 << 20
    usual = {"touches": True, "calls": False, "stack_bytes": str(mib), "stack_failures": True, "probe_on_oom": False,
             "sample_ns": "100000000", "sample_bytes": str(64 * mib), "nvml_ns": "1000000000",
             "cupti": "off"}
    asked = (([], {}), (["--stacks=off"], {"stack_bytes": None, "stack_failures": False}),
             (["--stacks", "failures"], {"stack_bytes": None}), (["--stacks=all"], {"stack_bytes": "0"}),
             (["--stacks", "4GiB"], {"stack_bytes": str(4096 * mib)}),
             (["--sample=off"], {"sample_ns": None, "sample_bytes": None}),
             (["--sample=bytes:1GiB"], {"sample_ns": None, "sample_bytes": str(1024 * mib)}),
             (["--sample", "every:2s"], {"sample_ns": "2000000000", "sample_bytes": None}),
             (["--nvml=off"], {"nvml_ns": None}), (["--nvml", "20ms"], {"nvml_ns": "20000000"}),
             (["--calls", "--no-touches"], {"calls": True, "touches": False}),
             (["--probe-on-oom"], {"probe_on_oom": True, "probe_ns": "200000000", "probe_bytes": str(65536 * mib)}),
             (["--probe-on-oom=1s"], {"probe_on_oom": True, "probe_ns": "1000000000", "probe_bytes": str(65536 * mib)}),
             (["--probe-on-oom=5ms,1GiB"], {"probe_on_oom": True, "probe_ns": "5000000", "probe_bytes": str(1024 * mib)}))
    for options, changed in asked:
        p.trace.unlink(missing_ok=True)
        expect(p.run("alloc:1", options=options), 0)
        session = json.loads(p.dump("--env", "--json").splitlines()[0])
        expected = {key: value for key, value in {**usual, **changed}.items() if value is not None}
        recording = session["recording"]
        # Whether a management library is there to be asked is this machine's matter.
        assert (recording.pop("nvml") == "off") == ("nvml_ns" not in expected), (options, session)
        assert recording == expected, (options, session, expected)


@check
def call_stacks(p):
    """dump names the runtime function that the program called, and with --stacks the lines of its source."""
    p.env["LD_LIBRARY_PATH"] += f":{BUILD / 'tests' / 'simcuda' / 'runtime'}"
    program = BUILD / "tests" / "programs" / "leak_shared"
    p.run(program=[str(program)], options=["--stacks=all"])
    events = [e for e in p.events("--stacks") if e["function"] == "cuMemAlloc_v2" and e.get("frames")]
    assert events and {e.get("origin") for e in events} == {"cudaMalloc"}, events[:1]
    for event in events:
        own = [f for f in event["frames"] if f.get("file", "").endswith("leak.cu")]
        assert own and all(f["form"] == "source" and f["line"] > 0 and f["function"] for f in own), event
        assert any(f.get("function") == "main" for f in own), event
    lines = p.dump("--stacks", "--function", "cuMemAlloc_v2").splitlines()
    assert any("cudaMalloc \u2192 cuMemAlloc_v2" in line or "cudaMalloc -> cuMemAlloc_v2" in line for line in lines), lines
    assert any("main (" in line and "leak.cu:" in line for line in lines), lines
    p.trace.unlink()
    p.run(program=[str(program)], options=["--stacks=off"])
    assert not [e for e in p.events("--stacks") if e.get("frames")]


@check
def many_threads(p):
    """Threads give their places back, so that ten thousand one after the other do with the few hundred that there are."""
    expect(p.run("threads:10000", options=["--buffer", "8MiB"]), 0, "recorded 1 process", "nothing known to be lost")
    events = p.events("--kind", "linear_acquired")
    assert len(events) == 10000 and len({e["thread"] for e in events}) > 1000, len(events)
    p.trace.unlink()
    expect(p.run("together:300", options=["--buffer", "8MiB"]), 0, "recorded 1 process", "nothing known to be lost")
    events = p.events("--kind", "linear_acquired")
    assert len({e["thread"] for e in events}) == 300, len(events)


@check
def many_processes(p):
    program = ["sh", "-c", f'for i in $(seq 20); do {CLIENT[0]} {CLIENT[1]} alloc:3 & done; wait']
    expect(p.run(program=program), 0, "recorded 20 processes", "nothing known to be lost")
    assert p.allocations() == 60


@check
def shared_memory_too_small(p):
    """As in a container: another /dev/shm in a mount namespace of our own."""
    for size, status, sentence in (("20m", 0, "recording with"), ("1m", 125, "cannot reserve")):
        p.trace.unlink(missing_ok=True)
        result = in_mount_namespace(p, f"mount -t tmpfs -o size={size} tmpfs /dev/shm", p.command("alloc:2", "say:ran"))
        expect(result, status, sentence)
        assert result.stdout == (b"ran\n" if status == 0 else b"")
        if status == 0:
            assert p.allocations() == 2


@check
def dump_filters(p):
    expect(p.run("alloc:3", "churn:2"), 0)
    everything = p.events()
    lines = p.dump().splitlines()
    assert len(lines) == len(everything) + 1
    end_of_columns = lines[0].index("flags")
    assert end_of_columns <= 150, end_of_columns
    assert all(line[end_of_columns - 1] == " " for line in lines if len(line) >= end_of_columns), lines
    memory = p.events("--kind", "device_memory")[0]
    assert 0 < memory["device_free_bytes"] < memory["total_bytes"] == 8 << 30, memory
    assert "address" not in memory and memory["object"].startswith("0x"), memory
    line = next(line for line in lines if " device_memory " in line)
    assert "total_bytes=8 GiB" in line and "by_recorder" in line, line
    assert p.events("--address", str(memory["device_free_bytes"])) == []
    times = [e["time_ns"] for e in everything]
    first = p.events("--kind", "linear_acquired")[0]
    inside = hex(int(first["address"], 16) + 100)
    assert first in p.events("--address", inside)
    assert all(int(e["address"], 16) <= int(inside, 16) for e in p.events("--address", inside))
    assert len(p.events("--function", "cuMemFree*")) == 2
    assert len(p.events("--limit", "2")) == 2
    assert p.events("--failed") == []
    assert p.events("--process", "7") == []
    middle = (times[0] + times[-1]) / 2 / 1e9
    assert len(p.events("--from", str(middle))) + len(p.events("--to", str(middle))) == len(everything)
    p.dump("--kind", "nonsense", status=2)
    p.dump("--address", "here", status=2)
    p.dump("--nonsense", status=2)
    environment = p.processes()[0]
    assert environment["driver_version"] > 0 and environment["devices"], environment


@check
def unreadable_traces(p):
    expect(p.run("churn:500"), 0)
    good = p.trace.read_bytes()
    newer = bytearray(good)
    version = int.from_bytes(good[8:12], "little") + 1
    newer[8:12] = version.to_bytes(4, "little")
    assert checksum(good[:24]) == good[24:32]
    newer[24:32] = checksum(bytes(newer[:24]))
    other = p.folder / "other.fst"
    middle = bytearray(good)
    middle[len(good) // 2] ^= 0x10
    first_chunk = bytearray(good)
    first_chunk[70] ^= 0x10
    contents = ((b"", 1, "is empty"), (b"some text", 1, "is not a Fragscope trace"),
                (b"x" * 10000, 1, "is not a Fragscope trace"), (good[:40], 1, "nothing of it can be read"),
                (first_chunk, 1, "nothing of it can be read"), (newer, 1, f"has trace format version {version}"),
                (good[:-10], 3, "cut off"), (good[:len(good) // 2], 3, "cut off"), (middle, 3, "cut off"),
                (good + b"x", 3, "at offset"))
    for command in ("dump", "explain", "report"):
        for content, status, words in contents:
            other.write_bytes(content)
            said = " ".join(p.tool(command, other, status=status).split())
            assert words in said, (command, words, said)
        assert "it is a directory" in p.tool(command, p.folder, status=1)
        assert "No such file" in p.tool(command, p.folder / "missing", status=1)
        number = {"dump": "--limit", "explain": "--failure"}.get(command)
        if number:
            said = p.tool(command, p.trace, number, "x", status=2)
            assert said.startswith(f"fragscope: {number}") and "number" in said and "convert" not in said, said
        with open("/dev/full", "wb") as full:
            result = subprocess.run([FRAGSCOPE, command, p.trace], stdout=full, stderr=subprocess.PIPE)
            expect(result, 1, "the answer cannot be written to standard output")
        other.write_bytes(middle)
        assert "at offset" in " ".join(p.tool(command, other, status=3).split())


def checksum(content):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    return library.XXH3_64bits(content, ctypes.c_size_t(len(content))).to_bytes(8, "little")


def main():
    # Whoever starts the tests may ignore some (nohup does), and what is ignored is inherited and respected.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    for name in sys.argv[2:] or CHECKS:
        before = set(pathlib.Path("/dev/shm").glob("fragscope-[0-9]*"))
        with tempfile.TemporaryDirectory() as folder:
            place = Place(folder, name)
            try:
                CHECKS[name](place)
            except Skipped as why:
                print(f"{name}: skipped: {why}")
                sys.exit(77)
            finally:
                # The simulated GPU outlives its processes, as a real one does.
                pathlib.Path("/dev/shm", "fragscope-sim-" + place.env["FRAGSCOPE_SIM_SHARED"]).unlink(missing_ok=True)
        left = {s for s in set(pathlib.Path("/dev/shm").glob("fragscope-[0-9]*")) - before
                if not pathlib.Path("/proc", s.name.split("-")[1]).exists()}
        assert not left, f"shared memory left behind: {left}"
        print(f"{name}: as it should be", flush=True)


main()
