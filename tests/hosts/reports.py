"""The second table: every public report of reports.tsv, and the check that covers it.

A line of reports.tsv has, between tabs: the report (repository#number), its group in the order of the first table's idea
(A resolution, B arguments, C accounting, D capture, E processes), its cause in our words, and by what it is covered:
  names of checks of this suite, which must exist and have run;
  "test: NAME", a test of this project outside of this suite, which must exist;
  "needs a GPU: WHY" or "not applicable: WHY".
"""
import collections
import json
import pathlib
import subprocess
import sys

PATH = pathlib.Path(__file__).with_name("reports.tsv")
NOT_HERE = ("needs a GPU: ", "not applicable: ")


def read():
    rows = []
    for number, line in enumerate(PATH.read_text(encoding="utf-8").splitlines()[1:], 2):
        fields = line.split("\t")
        if len(fields) != 4 or not all(fields) or "#" not in fields[0] or fields[1] not in "ABCDE":
            sys.exit(f"{PATH}:{number}: expected report, group, cause, cover between tabs: {line!r}")
        rows.append(fields)
    twice = [r for r, n in collections.Counter(row[0] for row in rows).items() if n > 1]
    if twice:
        sys.exit(f"{PATH}: twice: {twice}")
    return rows


def tests_of(build):
    said = subprocess.run(["meson", "introspect", str(build), "--tests"], capture_output=True, text=True, check=True).stdout
    return {test["name"] for test in json.loads(said)}


def print_table(results, build):
    """True if everything that covers a report exists, ran and passed (or was skipped, and said so)."""
    rows, good = read(), True
    tests = tests_of(build)
    counts = collections.Counter()
    print(f"{'report':<28} {'covered by':<52} result  cause")
    for report, _, cause, cover in rows:
        if cover.startswith(NOT_HERE):
            result = "-"
            counts[cover.split(":")[0]] += 1
        elif cover.startswith("test: "):
            result = "other" if cover.removeprefix("test: ") in tests else "MISSING"
            counts["covered by another test"] += 1
        else:
            found = [results.get(name, {"result": "MISSING"})["result"] for name in cover.split()]
            result = "ok" if set(found) == {"ok"} else next(f for f in found if f != "ok")
            counts[{"ok": "covered", "skipped": "skipped here"}.get(result, "FAILED")] += 1
        good = good and result in ("ok", "skipped", "other", "-")
        print(f"{report:<28} {cover[:52]:<52} {result:<7} {cause}")
    print(f"{len(rows)} reports: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())), flush=True)
    return good


def check_names(names):
    """For the house: every check that reports.tsv names exists."""
    for report, _, _, cover in read():
        if not cover.startswith((*NOT_HERE, "test: ")):
            missing = [name for name in cover.split() if name not in names]
            if missing:
                sys.exit(f"{PATH}: {report}: there is no check called {', '.join(missing)}")
