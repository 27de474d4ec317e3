"""What the checks of this folder share: a place with a simulated GPU of its own, programs run in it with and without the
recorder, and the comparison of the two.

A program that cannot tell whether it is recorded prints the same, ends the same and leaves the same behind. So a check
runs the same command twice, in the same folder, with the same environment and settings, and compares every byte. What
may differ is taken out by one rule each, in `clean` below: the variables that the recorder documents, and where the two
runs' own files lie.

What the trace should hold is taken from the simulated driver's ledger, which knows nothing of the shim: each change of
memory state, with address and bytes.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

# Seconds for one program; a loaded machine is slow, and a program that hangs is what is looked for.
TIMEOUT = 60

# The only changes to the environment of the program and its children.
DOCUMENTED = ("LD_PRELOAD", "FRAGSCOPE_SESSION", "NVTX_INJECTION64_PATH", "FRAGSCOPE_NVTX_CHAIN")

# All that the recorder can be asked for: more of its own calls, at more moments.
EVERYTHING = ("--stacks", "all", "--sample", "every:1ms,bytes:1MiB", "--probe-on-oom", "--calls")

# Operations of the ledger, and the events that say the same of a call that succeeded.
BOOKS = {
    "linear_alloc": "linear_acquired",
    "pitch_alloc": "pitch_acquired",
    "managed_alloc": "managed_acquired",
    "linear_free": "linear_released",
    "managed_free": "linear_released",
    "host_alloc": "host_acquired",
    "host_free": "host_released",
    "host_register": "host_registered",
    "host_unregister": "host_unregistered",
    "reserve": "reserved",
    "unreserve": "reservation_freed",
    "create": "handle_created",
    "release": "handle_released",
    "retain": "handle_retained",
    "map": "mapped",
    "unmap": "unmapped",
    "export": "handle_exported",
    "import": "handle_imported",
    "pool_create": "pool_created",
    "pool_destroy": "pool_destroyed",
    "pool_alloc": "pool_acquired",
    "pool_free_asked": "pool_released",
    "pool_free": "linear_released",  # pool memory by cuMemFree
}
# Where the event's object, not its address, is what the ledger names.
BY_OBJECT = {"handle_created", "handle_released", "handle_retained", "handle_exported", "handle_imported", "pool_created",
             "pool_destroyed"}
# Whose bytes the ledger and the event both know: the size that the caller asked for.
WITH_BYTES = {"linear_acquired", "managed_acquired", "host_acquired", "host_registered", "reserved", "reservation_freed",
              "handle_created", "mapped", "pool_acquired"}


class Skipped(Exception):
    """The machine does not allow this check."""


class Failed(Exception):
    """What was looked for is there."""


class Outcome:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err
        self.ledger = []
        self.log = []

    def __repr__(self):
        return f"status {self.status}\n--- stdout, its end\n{self.out[-1000:]}\n--- stderr\n{self.err[-1000:]}"


class Bench:
    """One check's place. Removed with all its processes' shared memory by `close`."""

    def __init__(self, build, folder, name):
        self.build = pathlib.Path(build)
        self.folder = pathlib.Path(folder)
        self.name = name
        self.hosts = self.build / "tests" / "hosts"
        self.simulated = self.build / "tests" / "simcuda"
        self.runtime = self.simulated / "runtime"
        self.shim = self.build / "interpose" / "libfragscope.so"
        self.fragscope = self.build / "tools" / "fragscope"
        self.trace = self.folder / "t.fst"
        self.checks = 0
        self.notes = []
        self.library_path = [self.simulated, self.runtime]
        self.settings = {}
        self.variables = {}
        self.shared = None
        self.timeout = TIMEOUT

    def close(self):
        for path in pathlib.Path("/dev/shm").glob(f"fragscope-sim-hosts-{os.getpid()}-{self.name}*"):
            path.unlink(missing_ok=True)

    # ------------------------------------------------------------------------------------------------- assertions

    def that(self, condition, *what):
        self.checks += 1
        if not condition:
            raise Failed("\n".join(str(w) for w in what))

    def equal(self, got, wanted, *what):
        self.that(got == wanted, *what, f"got      {got!r}", f"expected {wanted!r}")

    # ------------------------------------------------------------------------------------------------- running

    def host(self, name):
        path = self.hosts / name
        if not path.exists():
            raise Failed(f"{path} is not built")
        return str(path)

    def share_device(self):
        """All processes of a run have the same device, as on a real machine."""
        self.shared = f"hosts-{os.getpid()}-{self.name}"

    def environment(self, kind):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("FRAGSCOPE", "MESON")) and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        env["LD_LIBRARY_PATH"] = ":".join(map(str, self.library_path))
        env["FRAGSCOPE_SIM_LEDGER"] = str(self.folder / "ledger")
        if self.shared is not None:
            env["FRAGSCOPE_SIM_SHARED"] = f"{self.shared}-{kind}"
        for key, value in self.settings.items():
            env[f"FRAGSCOPE_SIM_{key}"] = str(value)
        env.update(self.variables)
        return env

    def _run(self, command, env, **more):
        ledger = self.folder / "ledger"
        ledger.unlink(missing_ok=True)
        more.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(word) for word in command], env=env, cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, **more)
        try:
            out, err = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise Failed(f"{command} did not end within {self.timeout} s", out.decode(errors="replace")[-2000:],
                         err.decode(errors="replace")[-2000:]) from None
        outcome = Outcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        if ledger.exists():
            outcome.ledger = [line.split("\t") for line in ledger.read_text().splitlines()]
        return outcome

    def plain(self, *command, preload="", **more):
        env = self.environment("plain")
        if preload:
            env["LD_PRELOAD"] = preload
        return self._run(command, env, **more)

    def traced(self, *command, options=(), preload="", **more):
        env = self.environment("traced")
        if preload:
            env["LD_PRELOAD"] = preload
        self.trace.unlink(missing_ok=True)
        return self._run([self.fragscope, "run", "-q", "-o", self.trace, *options, "--", *command], env, **more)

    def preloaded(self, *command, preload="", session="", **more):
        """With the shim in LD_PRELOAD and no collector, or one that is `session`."""
        env = self.environment("preloaded")
        env["LD_PRELOAD"] = preload or str(self.shim)
        if session:
            env["FRAGSCOPE_SESSION"] = session
        return self._run(command, env, **more)

    def both(self, *command, options=(), preload="", status=0, **more):
        """Runs it without and with the recorder; every difference that the program or its caller can see is a failure."""
        plain = self.plain(*command, preload=preload, **more)
        traced = self.traced(*command, options=options, preload=preload, **more)
        self.compare(plain, traced, command)
        if status is not None:
            self.equal(plain.status, status, f"the program itself, without the recorder: {command}", plain)
        return plain, traced

    def compare(self, plain, traced, command):
        # A program that a signal ended is told by fragscope as a shell tells it.
        expected = 128 - plain.status if plain.status < 0 else plain.status
        self.equal(traced.status, expected, f"exit status of {command}", plain, traced)
        for name in ("out", "err"):
            ours, theirs = self.clean(getattr(traced, name)), self.clean(getattr(plain, name))
            self.checks += max(1, len(theirs))
            if ours == theirs:
                continue
            for i in range(max(len(ours), len(theirs))):
                a = theirs[i] if i < len(theirs) else "(nothing)"
                b = ours[i] if i < len(ours) else "(nothing)"
                if a != b:
                    raise Failed(f"std{name} of {command}, line {i + 1}", f"  without: {a}", f"  with:    {b}")

    def clean(self, text):
        """Lines, without what may differ between the two runs."""
        lines = []
        for line in text.replace("-plain", "-RUN").replace("-traced", "-RUN").splitlines():
            found = re.match(r"^(\s*variable )?(\w+)=(.*)$", line)
            if found and found.group(2) in DOCUMENTED:
                # What the caller preloads stays behind ours.
                rest = [p for p in re.split("[: ]", found.group(3)) if p and p != str(self.shim)]
                if found.group(2) != "LD_PRELOAD" or not rest:
                    continue
                line = f"{found.group(1) or ''}LD_PRELOAD={':'.join(rest)}"
            lines.append(line)
        return lines

    # ------------------------------------------------------------------------------------------------- the trace

    def tool(self, *words, status=(0,)):
        result = subprocess.run([str(self.fragscope), *map(str, words)], capture_output=True, text=True, timeout=self.timeout)
        self.that(result.returncode in status, f"fragscope {words}: {result.returncode}", result.stderr[-2000:])
        return result.stdout

    def events(self, *options, status=(0,)):
        return [json.loads(line) for line in self.tool("dump", self.trace, "--json", *options, status=status).splitlines()]

    def described(self, status=(0,)):
        """The session, its processes, its end."""
        lines = [json.loads(line) for line in self.tool("dump", self.trace, "--env", "--json", status=status).splitlines()]
        return lines[0], [line for line in lines if "ended_how" in line], lines[-1]

    def processes(self, status=(0,)):
        return self.described(status)[1]

    def report(self, status=(0, 3)):
        return " ".join(self.tool("report", self.trace, status=status).split())

    def books(self, outcome, status=(0,), events=None, by_process=True):
        """Every change of memory state that the driver knows of is in the trace, once, and nothing else is.

        Not `by_process`: where two processes have one memory the driver tells them apart and the recorder does not."""
        driver, trace = collections.Counter(), collections.Counter()
        from_graphs = collections.Counter()  # a graph's memory freed by a call: the ledger does not say by which
        for line in outcome.ledger:
            if line[3] == "graph_free" and int(line[9], 16) == 0:
                from_graphs[(int(line[1]) if by_process else 0, int(line[4], 16))] += 1
            kind = BOOKS.get(line[3])
            if kind is not None:
                driver[(int(line[1]) if by_process else 0, kind, int(line[4], 16), int(line[5]) if kind in WITH_BYTES else 0)] += 1
        mapped = collections.defaultdict(dict)  # by process: address to bytes
        for event in self.events(status=status) if events is None else events:
            kind = event["kind"]
            if kind not in BOOKS.values() or event["result"] != 0 or "captured" in event["flags"]:
                continue
            process = event["pid"] if by_process else 0
            place, size = payload(event, 2 if kind in BY_OBJECT else 0), payload(event, 1)
            places = [place]
            if kind == "mapped":
                mapped[process][place] = size
            if kind == "unmapped":
                # One call may take several mappings away; the driver's ledger has a line for each.
                places = [p for p in mapped[process] if place <= p < place + size] or places
                for gone in places:
                    mapped[process].pop(gone, None)
            for place in places:
                trace[(process, kind, place, size if kind in WITH_BYTES else 0)] += 1
        missing, surplus = driver - trace, trace - driver
        for (process, place), times in from_graphs.items():
            for kind in ("pool_released", "linear_released"):
                freed = min(times, surplus[(process, kind, place, 0)])
                surplus -= collections.Counter({(process, kind, place, 0): freed})
                times -= freed
            if times:
                missing[(process, "released", place, 0)] = times
        self.that(not missing and not surplus, f"of {sum(driver.values())} changes in the driver's ledger",
                  *[f"  not in the trace: {each} {n}" for each, n in list(missing.items())[:20]],
                  *[f"  only in the trace: {each} {n}" for each, n in list(surplus.items())[:20]])
        self.checks += sum(driver.values())
        return sum(driver.values())

    def nothing_lost(self):
        for process in self.processes():
            self.that(process.get("environment_complete", True), process)
        said = self.tool("dump", self.trace)
        self.that("lost" not in said.splitlines()[0], said.splitlines()[0])

    def need(self, tool):
        if shutil.which(tool) is None:
            raise Skipped(f"{tool} is not here")

    def need_root(self):
        if os.geteuid() != 0:
            raise Skipped("needs root")


def payload(event, index):
    """Address, bytes, object, extra: by their place, as some kinds have names of their own for them."""
    fields = list(event.items())
    start = list(event).index("kind") + 1
    value = fields[start + index][1]
    return int(value, 16) if isinstance(value, str) else int(value)
