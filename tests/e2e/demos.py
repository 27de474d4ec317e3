"""Every demo program, recorded end to end on the simulated GPU, with its verdict.

The right answers come from how each program was written (see tests/programs/README.md), not from what the tool says.
Usage: demos.py BUILD_ROOT PROGRAM [FLAVOUR …]     one program, by default in the flavours shared and static
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import house

GIB = 1 << 30
MIB = 1 << 20

# program -> arguments, simulated-GPU settings, exit status, expected verdict, and a check of the explanation's numbers.
DEMOS = {}


def demo(program, status, cause, constraint="", args=(), settings=None):
    def register(check):
        DEMOS[program] = (list(args), settings or {}, status, cause, constraint, check)
        return check

    return register


def row(explanation, name):
    rows = [r for r in explanation["counterfactuals"] if r["id"].startswith(name)]
    assert rows, f"no counterfactual {name} in {[r['id'] for r in explanation['counterfactuals']]}"
    return rows


def audit(explanation, definition):
    rows = [q for q in explanation["audit"] if q["definition"] == definition]
    assert rows, f"no {definition} in the audit"
    return rows


def low(quantity):
    return int(quantity["low_bytes"])


@demo("vmm_small_objects", 1, "internal_fragmentation")
def small_objects(e):
    # The payload is 2 % of what the handles hold: 40 KiB in each 2 MiB.
    charged = sum(low(q) for q in audit(e, "charged"))
    payload = low(audit(e, "payload_written")[0])
    assert 0.01 < payload / charged < 0.03, (payload, charged)
    assert any(r["outcome"] == "fits" for r in row(e, "without_internal_waste"))
    assert row(e, "as_it_was")[0]["outcome"] == "does_not_fit"


@demo("pool_keeps_memory", 1, "other_constraint", "cached_by_pool")
def pool(e):
    assert any(r["outcome"] == "fits" and "TrimTo" in r.get("call", "") for r in row(e, "with_cached_returned"))
    assert any("TrimTo" in action for action in e["actions"])


@demo("neighbour", 1, "capacity_exhaustion", args=["pair"])
def neighbour(e):
    others = low(audit(e, "other_processes")[0])
    assert others >= 4 * GIB, others
    assert any(r["outcome"] == "fits" for r in row(e, "without_other_processes"))
    assert "other process" in e["verdict"]["summary"], e["verdict"]["summary"]


@demo("address_space_exhausted", 1, "other_constraint", "address_space", settings={"VA_BYTES": "64GiB"})
def address_space(e):
    free = low(audit(e, "device_free")[0])
    assert free > 7 * GIB, free  # of 8 GiB: the device is not the reason


@demo("address_window_cut", 1, "virtual_space_fragmentation", settings={"VA_BYTES": "64GiB"})
def address_window(e):
    domain = next(d for d in e["domains"] if d["name"].startswith("virtual"))
    needed = low(e["request"]["needed"])
    assert low(domain["free_sum"]) >= needed > low(domain["free_largest"])
    assert any(r["outcome"] == "fits" for r in row(e, "with_virtual_gaps_merged"))


@demo("leak", 1, "capacity_exhaustion")
def leak(e):
    assert not any(r["outcome"] == "fits" for r in e["counterfactuals"]
                   if r["id"].startswith(("without_other", "with_cached", "without_internal", "with_virtual")))


@demo("healthy", 0, "no_failure")
def healthy(e):
    assert not e.get("counterfactuals")


@demo("story", 1, "other_constraint", "cached_by_pool")
def story(e):
    assert any("TrimTo" in action for action in e["actions"])


def mechanism_of(function):
    names = {"cuMemCreate": "vmm", "cuMemAddressReserve": "address", "cuMemAllocAsync": "pool"}
    return next((name for prefix, name in names.items() if function.startswith(prefix)), "linear")


def run(build, program, flavour):
    args, settings, status, cause, constraint, check = DEMOS[program]
    fragscope = build / "tools" / "fragscope"
    binary = build / "tests" / "programs" / f"{program}_{flavour}"
    simulated = build / "tests" / "simcuda"
    with tempfile.TemporaryDirectory() as scratch:
        trace = pathlib.Path(scratch) / "demo.fst"
        env = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}
        env["LD_LIBRARY_PATH"] = f"{simulated}:{simulated / 'runtime'}"
        # One device for all processes of this run, and for nobody else.
        env["FRAGSCOPE_SIM_SHARED"] = f"fragscope-demo-{os.getpid()}-{program}-{flavour}"
        env.update({f"FRAGSCOPE_SIM_{key}": value for key, value in settings.items()})
        plain = subprocess.run([binary, *args], env=env, capture_output=True, text=True, timeout=120)
        env["FRAGSCOPE_SIM_SHARED"] += "-traced"
        traced = subprocess.run([fragscope, "run", "-o", trace, "--", binary, *args],
                                env=env, capture_output=True, text=True, timeout=120)
        assert plain.returncode == status, (plain.returncode, plain.stdout, plain.stderr)
        assert traced.returncode == status, (traced.returncode, traced.stdout, traced.stderr)
        assert traced.stdout.splitlines()[:1] == plain.stdout.splitlines()[:1], "the program's own words changed"

        def tool(*command):
            result = subprocess.run([fragscope, *command], capture_output=True, text=True, timeout=120)
            assert result.returncode == 0, (command, result.returncode, result.stderr)
            where = " ".join(str(word) for word in command)
            for line in result.stdout.splitlines():
                if "--json" in command:
                    house.no_bare_free_in_json(line, where)
                else:
                    house.no_bare_free(line, where)
            house.no_bare_free(result.stderr, where)
            return result.stdout

        lines = tool("explain", trace, "--json").splitlines()
        assert len(lines) == 1, lines
        explanation = json.loads(lines[0])
        verdict = explanation["verdict"]
        assert verdict["cause"] == cause, verdict
        assert verdict.get("constraint", "") == constraint, verdict
        assert explanation["health"].get("complete"), explanation["health"]
        check(explanation)
        if status:
            # Asked about at the failure's own moment, the same request has the same cause.
            request = explanation["request"]
            asked = json.loads(tool("explain", trace, "--if-request", str(low(request["requested"])), "--at",
                                    explanation["id"], "--as", mechanism_of(request["function"]), "--json"))
            assert asked["verdict"]["cause"] == cause, asked["verdict"]
            assert asked["verdict"].get("constraint", "") == constraint, asked["verdict"]
            assert asked["request"]["hypothetical"] and asked["contract"]["shape"] == "virtual_only", asked
            assert "asked about" in tool("explain", trace, "--if-request", "1 GiB", "--at", "end")
        words = tool("explain", trace)
        assert verdict["summary"].split()[0] in words
        report = json.loads(tool("report", trace, "--json"))
        assert bool(report.get("failures")) == (status != 0)
        assert tool("report", trace)
        assert tool("state", trace, "--at", "end") and tool("state", trace, "--at", "end", "--json")
        assert tool("dump", trace)
        events = [json.loads(line) for line in tool("dump", trace, "--json").splitlines()]
        assert sum(p["events"] if isinstance(p["events"], int) else int(p["events"])
                   for p in report["processes"]) == len(events)
        print(f"{program}_{flavour}: {verdict['cause']} {verdict.get('constraint', '')} in {len(events)} events")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    program = sys.argv[2]
    for flavour in sys.argv[3:] or ["shared", "static"]:
        run(build, program, flavour)


main()
