#!/usr/bin/env python3
"""suite.py FRAGSCOPE BUILD [CHECK…]: `fragscope run --cupti` on the simulated GPU and its stand-in CUPTI. Each check runs
program.cpp with steps and holds the report's JSON against what the steps do: sizes and counts are those in the program."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

fragscope, build = sys.argv[1], pathlib.Path(sys.argv[2])
here = build / "tests" / "cupti"
sim = build / "tests" / "simcuda"
MIB = 1 << 20
checks = []


def check(function):
    checks.append(function)
    return function


def that(held, what):
    if not held:
        raise AssertionError(what)


class Run:
    """One recording, and what the report says of it."""

    def __init__(self, *steps, mode="on", program="cupti_program", settings=(), variables=None):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("FRAGSCOPE_", "CUDA_", "NVTX_"))}
        environment["LD_LIBRARY_PATH"] = f"{sim}:{sim / 'cupti'}"
        environment["PAST_LIBRARY"] = str(here / "libpast.so")
        environment.update({f"FRAGSCOPE_SIM_{key}": value for key, value in settings})
        environment.update(variables or {})
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "t.fst"
            command = [fragscope, "run", "-q", "-o", str(trace), *([f"--cupti={mode}"] if mode else []), "--"]
            done = subprocess.run([*command, str(here / program), *steps], env=environment, capture_output=True, text=True, timeout=120)
            that(done.returncode == 0 and done.stdout == "done\n" and done.stderr == "", (done.returncode, done.stdout, done.stderr))
            self.report = json.loads(subprocess.run([fragscope, "report", "--json", str(trace)], check=True, capture_output=True, text=True).stdout)
            self.words = subprocess.run([fragscope, "report", str(trace)], check=True, capture_output=True, text=True).stdout

    def activity(self, process=0):
        found = [each for each in self.report.get("activities", []) if each.get("process", 0) == process]
        that(len(found) == 1, self.report.get("activities"))
        return found[0]

    def last_balance(self):
        return self.report["balances"][-1]

    def part(self, name):
        return [each for each in self.last_balance()["parts"] if each["id"] == name]


def number(message, key):
    return int(message.get(key, 0))


def counts(activity):
    return tuple(number(activity, key) for key in ("matched", "only_cupti", "only_calls"))


@check
def both_tell():
    """Six kinds of memory are taken and given back: twelve operations, each told twice and counted once."""
    run = Run("init", "calls", "handle")
    activity = run.activity()
    that(activity["state"] == "finished" and activity["used"], activity)
    that(counts(activity) == (12, 0, 0), activity)
    that(number(activity, "expected_only_calls") == 1, activity)
    that("What CUPTI says beside the calls" in run.words, run.words)


@check
def off_by_default():
    run = Run("init", "calls", mode=None)
    that(not run.report.get("activities"), run.report.get("activities"))


@check
def past_the_recorder():
    """Two blocks of 7 and 6 MiB stay, 10 MiB come and go, and 12 MiB that a call took are given back past it."""
    run = Run("init", "past", settings=[("CUPTI_DEVICE_MEMORY", "0"), ("CONTEXT_OVERHEAD", "0")])
    activity = run.activity()
    that(number(activity, "only_cupti") == 3, activity)
    that(number(activity, "released_unseen") == 1 and number(activity, "released_unseen_bytes") == 12 * MIB, activity)
    place, = activity["unseen"]
    that(place["file"].endswith("libpast.so"), place)
    that((number(place, "count"), number(place, "bytes"), number(place, "left_count"), number(place, "left_bytes"))
         == (3, 23 * MIB, 2, 13 * MIB), place)
    unseen, = run.part("unseen")
    # Pages are of 2 MiB: 7 MiB take 8, 6 MiB take 6.
    that((number(unseen["bytes"], "low_bytes"), number(unseen["bytes"], "high_bytes")) == (13 * MIB, 14 * MIB), unseen)
    spots = " ".join(run.report["processes"][0]["blind_spots"])
    that("libpast.so" in spots and "3 allocations" in spots, spots)


@check
def variables():
    """3 MiB and 4 bytes of variables are a part of their own, and not of the rest any more."""
    run = Run("init", "variables", settings=[("CUPTI_DEVICE_MEMORY", "0"), ("CONTEXT_OVERHEAD", "0")])
    activity = run.activity()
    that({(each["name"], number(each, "bytes")) for each in activity["statics"]} == {("table", 3 * MIB), ("flag", 4)}, activity)
    statics, = run.part("statics")
    that(statics["bytes"]["evidence"] == "measured" and number(statics["bytes"], "low_bytes") == 3 * MIB + 4, statics)
    # Code of 1 MiB and the variables lie in three pages of 2 MiB: what is left is the code and what rounding takes.
    that(number(run.last_balance()["unattributed"], "high_bytes") == 6 * MIB - 3 * MIB - 4, run.last_balance())


@check
def residency():
    """5 MiB go to the device, 2 of them come back."""
    run = Run("init", "managed")
    resident, = run.activity()["resident"]
    that(number(resident, "low_bytes") == 5 * MIB and "high_bytes" not in resident, resident)
    linear, = run.part("linear")
    that((number(linear["bytes"], "low_bytes"), number(linear["bytes"], "high_bytes")) == (3 * MIB, 8 * MIB), linear)


@check
def late_and_many():
    """10,000 operations, told late, in batches, buffers asked for inside the program's calls: all of them arrive."""
    run = Run("init", "many", settings=[("CUPTI_LATENCY", "30ms"), ("CUPTI_BATCH", "500"), ("CUPTI_REQUEST_IN_CALL", "on")])
    that(counts(run.activity()) == (10000, 0, 0) and number(run.activity(), "dropped") == 0, run.activity())


@check
def dropped():
    """Each fifth of 10,000 records is dropped: counted, and no call is said to be unseen for it."""
    run = Run("init", "many", settings=[("CUPTI_DROP_EVERY", "5")])
    activity = run.activity()
    that(number(activity, "dropped") == 2000, activity)
    that(number(activity, "matched") == 8000 and number(activity, "only_cupti") == 0, activity)
    that("CUPTI dropped" in run.words, run.words)


@check
def without_a_time():
    """Each fifth of 10,000 records has no time: it is not told at one that is made up, but counted as not told."""
    run = Run("init", "many", settings=[("CUPTI_TIMELESS_EVERY", "5")])
    activity = run.activity()
    that(number(activity, "dropped") == 2000, activity)
    that(number(activity, "matched") == 8000 and number(activity, "only_cupti") == 0, activity)


@check
def profiler_comes_later():
    """Another client takes over, by the linker's binding and by dlsym: it is told its own three records and no more, and
    nothing that the recorder was told before is lost."""
    for program in ("cupti_program", "cupti_program_linked"):
        run = Run("init", "calls", "profile", program=program)
        activity = run.activity()
        that(activity["state"] == "ended" and "cuptiSubscribe" in activity["in_words"], activity)
        that(counts(activity) == (12, 0, 0), activity)


@check
def profiler_comes_meanwhile():
    """Another client subscribes on a thread while the recorder is about to: it comes after it, and is told its own three
    records."""
    activity = Run("meet", settings=[("CUPTI_DELAY_cuptiGetTimestamp", "60ms")]).activity()
    that(activity["state"] == "ended" and "cuptiSubscribe" in activity["in_words"], activity)


@check
def profiler_was_first():
    """A client that was there before the driver was initialised keeps CUPTI; so does a tool that no call showed."""
    for program in ("cupti_program", "cupti_program_linked"):
        activity = Run("subscribe", "init", "calls", "unsubscribe", program=program).activity()
        that(activity["state"] == "others_use" and "cuptiSubscribe" in activity["in_words"], activity)
    activity = Run("init", "calls", settings=[("CUPTI_SUBSCRIBER", "Nsight Systems")]).activity()
    that(activity["state"] == "others_use" and not activity.get("used"), activity)


@check
def auto():
    """Uses what is loaded, and only where nobody has reason to use it."""
    that(Run("init", "calls", mode="auto").activity()["state"] == "no_library", "none is loaded")
    that(Run("open", "init", "calls", mode="auto").activity()["state"] == "finished", "one is loaded")
    linked = Run("init", "calls", mode="auto", program="cupti_program_linked").activity()
    that(linked["state"] == "others_use" and "the program" in linked["in_words"], linked)


@check
def no_library():
    """None of the driver's major version can be found."""
    that(Run("init", "calls", settings=[("DRIVER_VERSION", "99000")]).activity()["state"] == "no_library", "none can be found")


@check
def injection():
    for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        activity = Run("init", "calls", variables={variable: "/nonexistent/tool.so"}).activity()
        that(activity["state"] == "others_use", activity)


@check
def unknown_version():
    activity = Run("init", "calls", settings=[("CUPTI_VERSION", "130200")]).activity()
    that(activity["state"] == "unknown_version" and "130200" in activity["in_words"], activity)


@check
def refused():
    for function in ("cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiSubscribe"):
        activity = Run("init", "calls", settings=[(f"CUPTI_FAULT_{function}", "35")]).activity()
        that(activity["state"] == "refused" and "35" in activity["in_words"], activity)


@check
def forked_child():
    """A child of fork() initialises the driver, looks CUPTI up and ends: nothing of CUPTI's is called there, and the
    parent's records all arrive."""
    run = Run("init", "calls", "fork")
    that(counts(run.activity()) == (12, 0, 0), run.report["activities"])


wanted = sys.argv[3:]
failed = 0
for each in checks:
    if wanted and each.__name__ not in wanted:
        continue
    try:
        each()
        print(f"ok {each.__name__}")
    except (AssertionError, subprocess.SubprocessError, KeyError, ValueError) as problem:
        failed += 1
        print(f"FAILED {each.__name__}: {problem!r}")
sys.exit(1 if failed else 0)
