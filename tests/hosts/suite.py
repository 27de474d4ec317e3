"""The robustness suite: hostile host programs on the simulated driver, with and without the recorder.

Usage: suite.py BUILD_ROOT group N …     the checks of these groups
       suite.py BUILD_ROOT check NAME …  these checks
       suite.py BUILD_ROOT table         both tables: every group with what was tried, and every public report of
                                         reports.tsv with the check that covers it
`table` runs the groups that nobody has run for it. Within one run of `meson test` no group is run twice: results are kept
beside the build and belong to the process that started the tests.
Exit status: 0 all passed, 1 something failed, 77 all skipped.
"""
import fcntl
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback

from bench import Bench, Failed, Skipped
from registry import CHECKS, GROUPS
import groups  # noqa: F401 - registers the checks
import reports


def run_check(build, check):
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        bench = Bench(build, folder, check.name)
        result, why = "ok", ""
        try:
            check.run(bench)
            if bench.checks == 0:
                result, why = "FAILED", "it looked at nothing"
        except Skipped as said:
            result, why = "skipped", str(said)
        except Failed as said:
            result, why = "FAILED", str(said)
        except Exception:  # a fault of the check itself fails it, and the others go on
            result, why = "FAILED", traceback.format_exc(limit=-3)
        finally:
            bench.close()
    return {"name": check.name, "group": check.group, "tried": check.tried, "checks": bench.checks, "result": result,
            "why": why, "notes": bench.notes, "seconds": round(time.monotonic() - begun, 1)}


def say_failures(results):
    for each in results:
        if each["result"] != "ok":
            print(f"{each['result']}: {each['name']}: {each['why'][:6000]}", flush=True)
        for note in each["notes"]:
            print(f"note: {each['name']}: {note}")


def parent():
    """Who runs the tests: process number and start time."""
    pid = os.getppid()
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return f"{pid}:{stat[stat.rindex(')'):].split()[20]}"


def run_group(build, group, reader):
    """The group's results: new ones, unless this run of the tests has some that `reader` has not had yet."""
    kept = build / "tests" / "hosts" / "results"
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{group}.json"
    with open(kept / f"{group}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = None
        try:
            run = json.loads(path.read_text())
        except (OSError, ValueError):
            pass
        if run is None or run["parent"] != parent() or reader in run["readers"]:
            results = [run_check(build, check) for check in CHECKS.values() if check.group == group]
            run = {"parent": parent(), "readers": [], "results": results}
        run["readers"].append(reader)
        path.write_text(json.dumps(run))
    return run["results"]


def verdict(results):
    if any(r["result"] == "FAILED" for r in results) or not results:
        return "FAILED"
    if all(r["result"] == "skipped" for r in results):
        return "skipped"
    return "ok"


def print_table(results):
    print(f"{'group':<60} {'checks':>7}  result")
    for group, title in GROUPS.items():
        mine = [r for r in results if r["group"] == group]
        if not mine:
            continue
        left_out = sum(r["result"] == "skipped" for r in mine)
        print(f"{f'{group} {title}':<60} {sum(r['checks'] for r in mine):>7}  {verdict(mine)}"
              f"{f' ({left_out} skipped)' if left_out else ''}")
        for r in mine:
            print(f"   {r['tried']:<57} {r['checks']:>7}  {r['result']:<8}{r['seconds']:>5} s")
    print(f"{'all':<60} {sum(r['checks'] for r in results):>7}  {verdict(results)}", flush=True)


def main():
    reports.check_names(CHECKS)
    build, what, words = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    extra = True
    if what == "group":
        results = [r for group in words for r in run_group(build, int(group), "group")]
        print_table(results)
        say_failures(results)
    elif what == "check":
        results = [run_check(build, CHECKS[name]) for name in words]
        print_table(results)
        say_failures(results)
    else:
        results = [r for group in GROUPS for r in run_group(build, group, "table")]
        print_table(results)
        say_failures(results)
        print()
        extra = reports.print_table({r["name"]: r for r in results}, build)
    end = verdict(results)
    sys.exit(1 if end == "FAILED" or not extra else 77 if end == "skipped" else 0)


main()
