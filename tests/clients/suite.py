"""Real clients on the simulated GPU: unmodified programs of others, held against their own books and the driver's.

Usage: suite.py BUILD CACHE [GROUP|GROUP.CHECK|ENVIRONMENT…]
       suite.py --environments [GROUP|GROUP.CHECK|ENVIRONMENT…]     which environments these checks need, one a line
BUILD is a built tree, CACHE the folder of tests/clients/install. Runs as many checks at a time as there are processors
(FRAGSCOPE_JOBS: another number), prints each with its result and time when it ends, and last "N passed, N failed".
Nothing is skipped: what is not installed fails.
Exit status: 0 all passed, 1 something failed or nothing ran, 2 no such group, check or environment.
"""
import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import traceback

from registry import CHECKS
from simulated import Client, Failed
import groups


def chosen(words):
    environments = sorted({name for each in CHECKS.values() for name in each.needs})
    for word in words:
        if word not in groups.NAMES and word not in CHECKS and word not in environments:
            print(f"no group, check or environment {word!r}; groups: {', '.join(groups.NAMES)}; environments: "
                  f"{', '.join(environments)}", file=sys.stderr)
            sys.exit(2)
    return [each for each in CHECKS.values()
            if not words or not {each.group, each.name, *each.needs}.isdisjoint(words)]


def run_check(build, cache, check):
    """None when it passed, otherwise why not."""
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        client = Client(build, cache, folder, check.name)
        try:
            for name in check.needs:
                client.python(name)
            check.run(client)
            return None if client.checks else "it looked at nothing"
        except Failed as said:
            return str(said)
        except Exception:  # a fault of the check itself fails it, and the others go on
            return traceback.format_exc(limit=-4)
        finally:
            client.close()


def timed(build, cache, name):
    begun = time.monotonic()
    why = run_check(build, cache, CHECKS[name])
    return why, time.monotonic() - begun


def main():
    if sys.argv[1:2] == ["--environments"]:
        print("\n".join(sorted({name for each in chosen(sys.argv[2:]) for name in each.needs})))
        return
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, cache, words = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    passed = failed = 0
    jobs = int(os.environ.get("FRAGSCOPE_JOBS") or os.cpu_count() or 1)
    # Processes, not threads: a check that changes its environment or folder changes its own.
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        running = {pool.submit(timed, build, cache, check.name): check for check in chosen(words)}
        for done in concurrent.futures.as_completed(running):
            why, seconds = done.result()
            print(f"{'ok' if why is None else 'FAILED':<7}{running[done].name:<44}{seconds:>7.1f} s", flush=True)
            if why is None:
                passed += 1
            else:
                failed += 1
                print("".join(f"       {line}\n" for line in why[-6000:].splitlines()), end="", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
