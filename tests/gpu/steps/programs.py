"""Programs with NVIDIA's own runtime, without and with a recording around them."""
import collections
import re
import sys

# Built by `pack` from tests/programs with NVIDIA's runtime, linked statically and shared.
PROGRAMS = ("hello", "healthy", "story", "pool_keeps_memory", "leak")
NOT_SIMULATED = {"not_here": "NVIDIA's runtime authenticates the driver at its start, and the simulated one is not NVIDIA's"}


def traced_process(run, trace):
    """The trace's word on the program's own process."""
    lines = run.json_lines(run.fragscope("dump", "--env", "--json", trace))
    found = [line for line in lines if "pid" in line]
    return found[0] if found else {}


def lookups(run):
    out, words = {}, []
    for flavour in ("static", "shared"):
        program = run.program(f"hello_{flavour}")
        if program is None:
            words.append(f"{flavour}: no such program is carried along")
            continue
        plain = run.command([program])
        traced, trace = run.recorded([program], f"hello_{flavour}")
        process = traced_process(run, trace)
        if not process:
            return {"problem": f"the recording of {program} has no process: " + traced.stderr.decode(errors="replace")[-300:]}
        counts = {key: int(process.get(key, 0)) for key in ("lookups", "lookups_hooked", "lookups_unmatched")}
        events = run.json_lines(run.fragscope("dump", "--json", trace))
        out[flavour] = {**counts, "hooks_missing": process.get("hooks_missing", []), "status": traced.returncode,
                        "status_without": plain.returncode, "same_output": traced.stdout == plain.stdout,
                        "functions": sorted({event["function"] for event in events if "function" in event})}
        words.append(f"{flavour}: {counts['lookups']} look-ups, {counts['lookups_hooked']} with hooks, "
                     f"{counts['lookups_unmatched']} of no exported symbol, status {traced.returncode} "
                     f"({plain.returncode} without)")
    if not out:
        return {"not_here": "; ".join(words)}
    if run.simulated:
        out["authentication"] = NOT_SIMULATED["not_here"]
    return {"summary": "; ".join(words), **out}


def alike(text):
    """Output without what differs from run to run: addresses and times."""
    return re.sub(rb"0x[0-9a-f]+|\d+(\.\d+)? (ns|us|ms|s)\b", b"#", text)


def unchanged(run):
    if run.simulated:
        return NOT_SIMULATED
    rows = []
    for name in PROGRAMS:
        for flavour in ("static", "shared"):
            program = run.program(f"{name}_{flavour}")
            if program is None:
                continue
            plain = run.command([program])
            traced, trace = run.recorded([program], f"{name}_{flavour}")
            failed = run.fragscope("explain", "--json", trace)
            row = {"program": name, "runtime": flavour, "status": traced.returncode, "status_without": plain.returncode,
                   "same_output": alike(traced.stdout) == alike(plain.stdout)}
            if failed.returncode in (0, 3) and failed.stdout:
                row["verdict"] = run.json(failed).get("verdict", {}).get("cause")
            rows.append(row)
    if not rows:
        return {"not_here": "no program with NVIDIA's runtime is carried along"}
    ends = collections.Counter(row["status_without"] for row in rows)
    different = [f"{r['program']} ({r['runtime']})" for r in rows if r["status"] != r["status_without"] or not r["same_output"]]
    return {"summary": f"{len(rows)} programs, {'all as without' if not different else 'different: ' + ', '.join(different)}; "
                       "without the recorder " + ", ".join(f"{n} ended with {status}" for status, n in sorted(ends.items())),
            "rows": rows}


ASKING = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
ask = runtime.cudaGetDriverEntryPointByVersion
for _ in range(int(sys.argv[2])):
    function, status = ctypes.c_void_p(), ctypes.c_int()
    error = ask(b"cuMemCreate", ctypes.byref(function), ctypes.c_uint(12000), ctypes.c_ulonglong(0), ctypes.byref(status))
    if error != 0:
        sys.exit(f"cudaGetDriverEntryPointByVersion: error {error}")
"""


def entry_points(run):
    library = run.runtime()
    if library is None:
        return {"not_here": "no shared runtime is carried along"}
    plain = run.command([sys.executable, "-c", ASKING, library, "1"])
    if plain.returncode != 0:
        return {"not_here": plain.stderr.decode(errors="replace").strip()[-300:]}
    counted = {}
    for times in (1, 101):
        done, trace = run.recorded([sys.executable, "-c", ASKING, library, str(times)], f"asking_{times}")
        process = traced_process(run, trace) if done.returncode == 0 else {}
        if not process:
            return {"problem": "with the recorder only: " + done.stderr.decode(errors="replace").strip()[-300:]}
        counted[times] = int(process.get("lookups", 0))
    more = counted[101] - counted[1]
    return {"summary": f"100 more questions to the runtime made {more} more look-ups: "
                       + ("answered from a cache" if more == 0 else "asked each time" if more >= 100 else "asked sometimes"),
            "lookups": counted}
