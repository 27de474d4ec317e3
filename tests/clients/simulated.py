"""What the checks of this folder share: a client's Python on a simulated GPU of its own, with and without the recorder.

Built on the bench of the robustness suite (tests/hosts/bench.py): the same ways to run, to compare and to read back, with
an interpreter in front and, where the client's own libraries would otherwise load NVIDIA's runtime, the stand-in preloaded.
"""
import json
import pathlib
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


class Client(Bench):
    def __init__(self, build, cache, folder, name):
        super().__init__(build, folder, name)
        self.cache = pathlib.Path(cache)
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

    def with_and_without(self, venv, program, *words, status=0, ledgers=True, **more):
        """Both; the program's output, its end and what it did to the device's memory must be the same.

        `ledgers` is False where threads or processes of the program make the order of their calls a matter of chance."""
        plain, traced = self.both(*self.command(venv, program, *words), preload=self.preload(venv), status=status, **more)
        self.that(plain.ledger, "the driver's ledger is empty: the program did not reach the simulated GPU", plain)
        if ledgers:
            self.same_ledger(plain, traced)
        return plain, traced

    def same_ledger(self, plain, traced):
        """What the driver did, in order: operation, object, bytes asked and charged, device, free bytes, other object."""
        ours, theirs = changes(traced), changes(plain)
        self.checks += len(theirs)
        for i in range(max(len(ours), len(theirs))):
            without = theirs[i] if i < len(theirs) else "nothing"
            recorded = ours[i] if i < len(ours) else "nothing"
            if without != recorded:
                raise Failed(f"line {i + 1} of the driver's ledger", f"  without: {without}", f"  with:    {recorded}")

    def read(self, command, *options, status=(0,)):
        """`fragscope COMMAND TRACE … --json`, one value a line."""
        return [json.loads(line) for line in self.tool(command, self.trace, *options, "--json", status=status).splitlines()]


def changes(outcome):
    """The ledger without what no two runs share: times, process and thread numbers (these by first appearance)."""
    seen = {}
    return [(seen.setdefault(line[1], len(seen)), *line[3:]) for line in outcome.ledger]


def said(outcome):
    """The JSON objects that a program printed, one a line; other lines are left out."""
    return [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
