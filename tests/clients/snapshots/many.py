"""The longer run of the snapshots group: the same programs and comparison, with new seeds, until enough snapshots equal ours.

Usage: many.py BUILD CACHE SNAPSHOTS [SEED [SETTING…]]      as suite.py; from SEED on (1000), with these settings (all)
Prints each run, and at its end the sums. Exit status: 0, or 1 at the first difference (its trace is kept in FRAGSCOPE_KEEP
where that variable names a folder).
"""
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from groups.snapshots import one  # noqa: E402
from simulated import Client, Failed  # noqa: E402
from snapshots import compare, settings  # noqa: E402

EACH = 500  # snapshots of one program


def main():
    build, cache, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    chosen = [each for each in settings.ALL if len(sys.argv) < 6 or each.name in sys.argv[5:]]
    sums = compare.Comparison()
    begun = time.monotonic()
    while sums.snapshots < wanted:
        for setting in chosen:
            with tempfile.TemporaryDirectory(prefix="snapshots-") as folder:
                client = Client(pathlib.Path(build).resolve(), pathlib.Path(cache).resolve(), folder, setting.name)
                client.timeout = 1200
                try:
                    result = one(client, setting, seed, min(EACH, wanted - sums.snapshots))
                except Failed as said:
                    if os.environ.get("FRAGSCOPE_KEEP"):
                        shutil.copytree(folder, pathlib.Path(os.environ["FRAGSCOPE_KEEP"]) / f"{setting.name}-{seed}")
                    sys.exit(f"{setting.name}, seed {seed}: {said}")
                finally:
                    client.close()
            sums.add(result)
            print(f"{setting.name}, seed {seed}: {result.snapshots} snapshots, {result.values} values equal", flush=True)
            if sums.snapshots >= wanted:
                break
        seed += 1
    print("\n".join(compare.table(sums)))
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
