"""What the shim adds to one driver call, beside other ways of noting the same call. Measures; judges nothing.

The worker calls the simulated driver in a loop: alone, under `fragscope run` with one thing or another recorded, with an
LTTng-UST tracepoint, with an spdlog line or a backtrace() per call. The variants take turns, round after round, so that a
slow moment of the machine meets all of them; what a variant adds is its median less the median of the bare call.
Then the whole time of calls that take as long as a real driver's, and what is lost under load. Prints a table for each,
then one JSON object a line.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

# Aims of the project, per call: at most twice the machine's own rdtsc and 3 ns; 65 instructions; 30 ns with two threads.
AIM_INSTRUCTIONS = 65
AIM_TWO_THREADS_NS = 30

# What is recorded, as options of `fragscope run`; none: the worker runs alone and notes its calls in another way.
OFF = ["--stacks", "off", "--sample", "off", "--no-nvtx"]


class Variant:
    def __init__(self, words, options=None, note="none", depth=0, threads=(1,)):
        self.words, self.options, self.note, self.depth, self.threads = words, options, note, depth, threads


VARIANTS = {
    "bare": Variant("bare", threads=(1, 2)),
    "shim": Variant("shim and live collector", OFF, threads=(1, 2)),
    "default": Variant("shim as run by default", []),
    "samples": Variant("shim, samples (every:100ms,bytes:64MiB)",
                       ["--stacks", "off", "--sample", "every:100ms,bytes:64MiB", "--no-nvtx"]),
    "calls": Variant("shim, --calls", [*OFF, "--calls"]),
    "failures": Variant("shim, stacks of failures", ["--stacks", "failures", "--sample", "off", "--no-nvtx"]),
    "large": Variant("shim, stacks from 1 MiB on", ["--stacks", "1MiB", "--sample", "off", "--no-nvtx"]),
    "all10": Variant("shim, all stacks, 10 frames deeper", ["--stacks", "all", "--sample", "off", "--no-nvtx"], depth=10),
    "all30": Variant("shim, all stacks, 30 frames deeper", ["--stacks", "all", "--sample", "off", "--no-nvtx"], depth=30),
    "backtrace10": Variant("backtrace() and a hash, 10 frames deeper", note="backtrace", depth=10),
    "backtrace30": Variant("backtrace() and a hash, 30 frames deeper", note="backtrace", depth=30),
    "lttng": Variant("LTTng-UST tracepoint", note="lttng", threads=(1, 2)),
    "spdlog": Variant("spdlog line to a file", note="spdlog", threads=(1, 2)),
}
# Which of them are measured of which call. Stacks are taken of acquisitions: of every second call of "alloc".
MEASURED = {
    "info": ["shim", "default", "calls", "lttng", "spdlog"],
    "alloc": ["shim", "default", "samples", "calls", "failures", "large", "all10", "all30", "backtrace10", "backtrace30",
              "lttng", "spdlog"],
}
# Real drivers' latencies, by function, as published: a pair of stream-ordered calls 1.9 us, cuMemCreate 190 us.
REAL = {"async": {"cuMemAllocAsync": "950ns", "cuMemFreeAsync": "950ns"},
        "create": {"cuMemCreate": "190us", "cuMemRelease": "20us"}}


def aim_one_thread(tsc_ns):
    return 2 * tsc_ns + 3


class Lttng:
    """A recording session of LTTng in `folder`, with a session daemon of its own if none runs."""

    def __init__(self, folder):
        self.folder = folder
        self.daemon = None
        self.session = None
        self.problem = None
        self.env = dict(os.environ, LTTNG_HOME=str(folder))

    def call(self, *arguments):
        return subprocess.run(["lttng", *arguments], env=self.env, capture_output=True, text=True, timeout=60)

    def start(self):
        if shutil.which("lttng") is None or shutil.which("lttng-sessiond") is None:
            self.problem = "lttng-tools is not installed"
            return self
        try:
            if self.call("--no-sessiond", "list").returncode != 0:
                self.daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel"], env=self.env,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            name = f"fragscope-bench-{os.getpid()}"
            for attempt in range(50):
                made = self.call("--no-sessiond", "create", name, f"--output={self.folder / 'lttng'}")
                if made.returncode == 0:
                    break
                time.sleep(0.1)
            else:
                self.problem = "no LTTng session: " + (made.stderr or made.stdout).strip().splitlines()[-1]
                return self
            self.session = name
            for arguments in (["enable-event", "-u", "-s", name, "fragscope_bench:call"], ["start", name]):
                done = self.call("--no-sessiond", *arguments)
                if done.returncode != 0:
                    self.problem = "no LTTng session: " + done.stderr.strip().splitlines()[-1]
        except (OSError, subprocess.SubprocessError, IndexError) as error:
            self.problem = f"no LTTng session: {error}"
        return self

    def stop(self):
        if self.session is not None:
            self.call("--no-sessiond", "destroy", self.session)
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.env = dict(os.environ, LD_LIBRARY_PATH=options.driver,
                        FRAGSCOPE_SIM_SHARED=f"fragscope-bench-{os.getpid()}")

    def command(self, name, threads, batches, call, pause=2000, more=()):
        variant = VARIANTS[name]
        command = [self.options.worker, call, variant.note, str(threads), str(batches), str(variant.depth), str(pause),
                   str(self.folder / "spdlog.txt")]
        if variant.options is not None:
            trace = self.folder / "bench.fst"
            trace.unlink(missing_ok=True)
            command = [self.options.fragscope, "run", "-o", str(trace), *variant.options, *more, "--", *command]
        return command

    def once(self, name, threads, call, batches=None, pause=2000, latencies=None, more=()):
        """One run of the worker: its measurements, the recorder's words, and None; or what went wrong."""
        env = dict(self.env, LTTNG_HOME=str(self.folder)) if name == "lttng" else dict(self.env)
        env.update({f"FRAGSCOPE_SIM_LATENCY_{function}": time for function, time in (latencies or {}).items()})
        done = subprocess.run(self.command(name, threads, batches or self.options.batches, call, pause, more), env=env,
                              capture_output=True, text=True, timeout=300)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            problem = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            return None, "", problem
        return json.loads(lines[-1]), done.stderr, None

    def instructions_by_valgrind(self, variant, call):
        """Where the processor does not count: two runs of different length under valgrind, and their difference."""
        if shutil.which("valgrind") is None:
            return None
        counts = []
        for batches in (2, 12):
            command = self.command(variant, 1, batches, call)
            worker = command.index(self.options.worker)
            command[worker:worker] = ["valgrind", "--tool=cachegrind", "--cache-sim=no",
                                      f"--cachegrind-out-file={self.folder / 'cachegrind'}"]
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=300)
            found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
            if done.returncode != 0 or not found:
                return None
            counts.append(int(found.group(1).replace(",", "")))
        return (counts[1] - counts[0]) / (10 * 1000)  # ten batches of a thousand calls


def rows_of(bench, variants, call, problems):
    """Measures all variants with one thread, some with two; returns table rows."""
    results = {}
    for _ in range(bench.options.rounds):
        for threads in (1, 2):
            for variant in ["bare", *variants]:
                if variant in problems or threads not in VARIANTS[variant].threads:
                    continue
                result, _, problem = bench.once(variant, threads, call)
                if result is None:
                    problems[variant] = problem
                else:
                    results.setdefault((variant, threads), []).append(result)
    if "bare" in problems:
        return [("bare call", None, "ns", "", problems["bare"])]

    def middle(variant, threads, key):
        values = [r[key] for r in results.get((variant, threads), []) if r[key] is not None]
        return statistics.median(values) if values else None

    def spread(variant, threads):
        """Half the distance between the quartiles of the rounds: what the median may well be off by."""
        values = [r["ns"] for r in results[(variant, threads)]]
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [0, 0, 0]
        return (quartiles[2] - quartiles[0]) / 2

    tsc = middle("bare", 1, "tsc_ns")
    rows = [("this machine's rdtsc", tsc, "ns", "", ""),
            ("this machine's clock_gettime", middle("bare", 1, "clock_ns"), "ns", "", "")]
    for threads in (1, 2):
        rows.append((f"bare {call} call, {threads} thread(s)", middle("bare", threads, "ns"), "ns", "",
                     "the simulated driver's own time"))
    base_instructions = middle("bare", 1, "instructions")
    by_valgrind = base_instructions is None
    if by_valgrind:
        base_instructions = bench.instructions_by_valgrind("bare", call)
    for variant in variants:
        if variant in problems:
            rows.append((VARIANTS[variant].words, None, "ns", "", problems[variant]))
            continue
        note = bench.notes.get(variant, "")
        for threads in VARIANTS[variant].threads:
            added = middle(variant, threads, "ns") - middle("bare", threads, "ns")
            aim = ""
            if variant == "shim":
                aim = f"<= {aim_one_thread(tsc):.0f}" if threads == 1 else f"<= {AIM_TWO_THREADS_NS}"
            unsure = spread("bare", threads) + spread(variant, threads)
            rows.append((f"{VARIANTS[variant].words}: added, {threads} thread(s)", added, "ns", aim,
                         f"+- {unsure:.0f} ns between rounds" + (f"; {note}" if note else "")))
        instructions = middle(variant, 1, "instructions")
        if by_valgrind and variant != "lttng":  # LTTng-UST's own threads do not run under valgrind as they do outside
            instructions = bench.instructions_by_valgrind(variant, call)
        aim = f"<= {AIM_INSTRUCTIONS}" if variant == "shim" else ""
        if instructions is None or base_instructions is None:
            why = ("the processor's counter is not available here" +
                   (", and LTTng-UST under valgrind is not itself" if variant == "lttng" else ", and valgrind did not count"))
            rows.append((f"{VARIANTS[variant].words}: added", None, "instr", aim, why))
        else:
            rows.append((f"{VARIANTS[variant].words}: added", instructions - base_instructions, "instr", aim,
                         "user mode, by valgrind, all threads" if by_valgrind else "user mode, the calling thread"))
    return rows


def whole_time_rows(bench):
    """Calls that take as long as a real driver's: what the recording makes of them."""
    rows = []
    for call, latencies in REAL.items():
        batches = 20 if call == "async" else 2
        times = {"bare": [], "default": [], "all10": []}
        for _ in range(bench.options.rounds):
            for variant, values in times.items():
                result, _, problem = bench.once(variant, 1, call, batches, latencies=latencies)
                if result is None:
                    return [*rows, (f"{call} as on a real driver", None, "ns", "", problem)]
                values.append(result["ns"])
        bare = statistics.median(times["bare"])
        rows.append((f"{call}: a bare call", bare, "ns", "", ", ".join(f"{f} {t}" for f, t in latencies.items())))
        for variant in ("default", "all10"):
            rows.append((f"{call}: {VARIANTS[variant].words}", 100 * (statistics.median(times[variant]) / bare - 1), "%",
                         "", "more time than the bare call"))
    return rows


def burst_rows(bench):
    """Two threads that call without a break, or with one: how many records are lost when nobody waits."""
    rows = []
    for pause in (0, 100, 500, 2000):
        for on_full in ("drop", "wait:5ms"):
            batches = 1500 if pause == 0 else 400
            result, words, problem = bench.once("shim", 2, "alloc", batches, pause, more=["--on-full", on_full])
            what = f"--on-full={on_full}, {pause} us between bursts of 1000 calls"
            if result is None:
                rows.append((what, None, "%", "", problem))
                continue
            lost = re.search(r"missing: ([\d,. ]+) records? lost", words)
            count = int(re.sub(r"\D", "", lost.group(1))) if lost else 0
            rows.append((what, 100 * count / result["calls"], "% lost", "0",
                         f"{result['per_second'] / 1e6:.2f} M calls/s offered for {result['calls'] / result['per_second']:.1f} s"))
    return rows


def print_rows(call, options, rows):
    width = max(len(row[0]) for row in rows)
    print(f"bench_shim: {call}, median of {options.rounds} interleaved rounds of {options.batches} batches, "
          f"{os.cpu_count()} processors")
    busy = os.getloadavg()[0]
    if busy > os.cpu_count():
        print(f"The machine is busy (load {busy:.1f}): the times below mean little; the instructions do not suffer.")
    print()
    print(f"{'what':<{width}}  {'measured':>14} {'':<6}  {'aim':<10}  note")
    for what, value, unit, aim, note in rows:
        shown = "not measured" if value is None else f"{value:.1f}"
        print(f"{what:<{width}}  {shown:>14} {unit if value is not None else '':<6}  {aim:<10}  {note}")
    print()
    for what, value, unit, aim, note in rows:
        print(json.dumps({"bench": "bench_shim", "call": call, "what": what, "value": value, "unit": unit, "aim": aim,
                          "note": note}))
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--fragscope", required=True)
    parser.add_argument("--driver", required=True, help="folder of the simulated libcuda.so.1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--calls", default="info,alloc", help="info: cuMemGetInfo; alloc: cuMemAlloc and cuMemFree")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fragscope-bench-") as scratch:
        folder = pathlib.Path(scratch)
        bench = Bench(options, folder)
        lttng = Lttng(folder).start()
        bench.notes = {"lttng": lttng.problem + "; built in, recorded nowhere" if lttng.problem
                       else "recorded by a live session"}
        try:
            for call in options.calls.split(","):
                print_rows(call, options, rows_of(bench, MEASURED[call], call, {}))
            print_rows("calls as long as a real driver's", options, whole_time_rows(bench))
            print_rows("losses under load, 128 MiB of buffers", options, burst_rows(bench))
        finally:
            lttng.stop()


main()
