"""What the checks of this folder share: a client's Python on a simulated GPU of its own, with and without the recorder.

Built on the bench of the robustness suite (tests/hosts/bench.py): the same ways to run, to compare and to read back, with
an interpreter in front and, where the client's own libraries would otherwise load NVIDIA's runtime, the stand-in preloaded.
"""
import collections
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "hosts"))
from bench import Bench, Failed, Skipped  # noqa: E402,F401 - for the checks

# The stand-in runtime of each environment, in the build's tests/simcuda. Wheels give their libraries a DT_RPATH to
# NVIDIA's own runtime, which no LD_LIBRARY_PATH beats; a preloaded library of the same name does.
RUNTIMES = {
    "torch12": "runtime/cuda12/libcudart.so.12",
    "torch13": "runtime/libcudart.so.13",
}

# What libraries of PyTorch's begin their messages with, where time and process number stand.
STAMPS = (re.compile(r"^\[([A-Z])\d{4} \d\d:\d\d:\d\d\.\d+ (\w+\.cpp:\d+\])"),
          re.compile(r"^([A-Z]+):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ (\w+\.cpp:\d+\])"))

# Addresses in this range are the program's own: of its heap and libraries, different in each run of it.
OWN = range(0x550000000000, 0x800000000000)


class Client(Bench):
    def __init__(self, build, cache, folder, name):
        super().__init__(build, folder, name)
        self.cache = pathlib.Path(cache)
        self.library_path.append(self.simulated / "nvml")
        self.timeout = 180  # seconds for one program

    def python(self, venv):
        """The interpreter of an environment of requirements/."""
        path = self.cache / venv / "bin" / "python"
        if not (self.cache / venv / "complete").exists() or not path.exists():
            raise Failed(f"{venv} is not installed in {self.cache}: run tests/clients/install {venv}")
        return path

    def command(self, venv, program, *words):
        """`program` is a file of programs/, or a path."""
        return [self.python(venv), HERE / "programs" / program, *words]

    def preload(self, venv):
        if venv not in RUNTIMES:
            return ""
        runtime = self.simulated / RUNTIMES[venv]
        if not runtime.exists():
            raise Failed(f"{runtime} is not built: tools/test --clients builds it")
        return str(runtime)

    def alone(self, venv, program, *words, **more):
        """Without the recorder."""
        outcome = self.plain(*self.command(venv, program, *words), preload=self.preload(venv), **more)
        self.equal(outcome.status, 0, f"exit status of {program} {words}", outcome)
        return outcome

    def recorded(self, venv, program, *words, status=0, **more):
        """Under `fragscope run`; the trace is self.trace."""
        outcome = self.traced(*self.command(venv, program, *words), preload=self.preload(venv), **more)
        self.equal(outcome.status, status, f"exit status of {program} {words} under fragscope run", outcome)
        return outcome

    def with_and_without(self, venv, program, *words, status=0, leaving_out=(), **more):
        """Both; the program's output, its end and what it did to the device's memory must be the same.

        `leaving_out`: operations of the ledger whose number or order is a matter of chance."""
        plain, traced = self.both(*self.command(venv, program, *words), preload=self.preload(venv), status=status, **more)
        self.that(plain.ledger, "the driver's ledger is empty: the program did not reach the simulated GPU", plain)
        self.same_ledger(plain, traced, leaving_out)
        return plain, traced

    def same_ledger(self, plain, traced, leaving_out=()):
        """What each process did to memory, in order: operation, object, bytes asked and charged, device, free bytes of it
        (where one process has the devices for itself), other object."""
        ours, theirs = changes(traced, leaving_out), changes(plain, leaving_out)
        self.equal(len(ours), len(theirs), "processes in the driver's ledger")
        for mine, other in zip(ours, theirs):
            self.checks += len(other)
            for i in range(max(len(mine), len(other))):
                without = other[i] if i < len(other) else "nothing"
                recorded = mine[i] if i < len(mine) else "nothing"
                if without != recorded:
                    raise Failed(f"change {i + 1} of a process in the driver's ledger", f"  without: {without}",
                                 f"  with:    {recorded}")

    def clean(self, text):
        lines = super().clean(text)
        for stamp in STAMPS:
            lines = [stamp.sub(r"\1 \2", line) for line in lines]
        return lines

    def read(self, command, *options, status=(0,)):
        """`fragscope COMMAND TRACE … --json`, one value a line."""
        return [json.loads(line) for line in self.tool(command, self.trace, *options, "--json", status=status).splitlines()]


def changes(outcome, leaving_out=()):
    """The ledger's lines by process, these in the order of their first lines, without what no two runs share: times, numbers
    of processes and threads, addresses of the program's own, keys that name memory to other processes."""
    processes = collections.defaultdict(list)
    alone = len({line[1] for line in outcome.ledger}) == 1
    for line in outcome.ledger:
        if line[3] in leaving_out:
            continue
        first, other = (name if int(name, 16) not in OWN else "own" for name in (line[4], line[9]))
        if line[3].startswith("ipc_"):
            other = "key"
        processes[line[1]].append((line[3], first, *line[5:8], line[8] if alone else "", other))
    return list(processes.values())


def said(outcome):
    """The JSON objects that a program printed, one a line; other lines are left out."""
    return [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
