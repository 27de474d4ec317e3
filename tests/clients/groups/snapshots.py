"""Random allocation programs of unmodified PyTorch: what `fragscope state` says at each mark against what PyTorch's own
snapshot and statistics said there. snapshots/compare.py has the rules and the table of what cannot be equal."""
import collections
import json
import subprocess

from registry import check, check_in_each
from simulated import HERE, Failed
from bench import payload  # where simulated.py found it
from snapshots import compare, settings

SEED = 1
IN_CI = 60  # snapshots of each setting; over 1,000 with the 17 settings


def record(client, setting, seed, snapshots, torch="torch13"):
    """Runs one program under the recorder. Its own lines, as it wrote them."""
    client.settings = settings.simulated(setting)
    client.variables = settings.environment(setting)
    path = client.folder / "said"
    client.recorded(torch, HERE / "snapshots" / "program.py", seed, snapshots, path, *setting.features.split(),
                    options=("--on-full", "wait:10s"))
    return path.read_text().splitlines()


def states(client, trace):
    return client.tool("state", trace, "--at", "mark:snapshot:*", "--json").splitlines()


def one(client, setting, seed=SEED, snapshots=IN_CI, torch="torch13"):
    said = record(client, setting, seed, snapshots, torch)
    result = compare.compare(states(client, client.trace), said)
    result.done = json.loads(said[-1])["done"]
    if result.problems:
        raise Failed(f"setting {setting.name}, seed {seed}: {len(result.problems)} differences",
                     *result.problems[:20], *compare.table(result))
    client.checks += result.values
    client.that(result.snapshots >= snapshots, f"{result.snapshots} snapshots")
    return result


def register(setting):
    def run(client, torch):
        result = one(client, setting, torch=torch)
        # A program that came to nothing proves nothing.
        for name in ("active_allocated", "inactive", "active_pending_free", "out of memory"):
            client.that(result.seen[name] > 0, f"no {name} in any snapshot", *compare.table(result))
        wanted = {"expandable segments": setting.name.startswith("expandable"),
                  "segments of private pools": "pools" in setting.features or "graphs" in setting.features}
        for name, needed in wanted.items():
            client.that(result.seen[name] > 0 or not needed, f"no {name} in any snapshot")
        print("\n".join(compare.table(result)))

    run.__name__ = setting.name
    run.__module__ = __name__
    check_in_each(*setting.environments)(run)


for _setting in settings.ALL:
    register(_setting)


# What each spoilt record is, and how; and the events that would hide it again before a snapshot sees it.
UNDONE_BY = {"block_acquired": ("block_released",), "block_released": ("block_acquired",),
             "linear_acquired": ("linear_released",), "linear_released": ("linear_acquired",),
             "block_waits": ("block_wait_over",), "block_wait_over": ("block_waits", "block_acquired")}
WAYS = [("block_acquired", "drop"), ("block_acquired", "shift", 512), ("block_acquired", "resize", 512),
        ("block_released", "drop"), ("linear_acquired", "drop"), ("linear_acquired", "resize", 2 << 20),
        ("linear_released", "drop"), ("block_waits", "drop"), ("block_wait_over", "drop")]


def concerns(events):
    """For each event of UNDONE_BY: what it is about, as its address and, of those of waiting, its event."""
    by_thread, waiting = collections.defaultdict(list), {}
    for event in events:
        kind = event["kind"]
        if kind == "block_waits":
            by_thread[event["thread"]].append(payload(event, 2))
        elif kind == "block_released":
            for waited in by_thread.pop(event["thread"], []):
                waiting[waited] = payload(event, 0)
        if kind in ("block_waits", "block_wait_over"):
            yield event, waiting.get(payload(event, 2)), payload(event, 2)
        elif kind in UNDONE_BY:
            yield event, payload(event, 0), None


def visible(events, kind):
    """Sequence numbers of records of this kind that nothing undoes before the next snapshot."""
    found, open_ones = [], {}
    marks = iter([event["sequence"] for event in events if event["kind"] == "mark"])
    mark = next(marks, None)
    for event, address, waited in concerns([event for event in events if event["result"] == 0]):
        while mark is not None and event["sequence"] > mark:
            found += open_ones.values()
            open_ones, mark = {}, next(marks, None)
        if event["kind"] in UNDONE_BY[kind]:
            size = max(payload(event, 1), 1)
            undone = [(a, w) for a, w in open_ones
                      if (w is not None and w == waited) or
                      (a is not None and address is not None and address <= a < address + size)]
            for key in undone:
                del open_ones[key]
        if event["kind"] == kind:
            open_ones[(address, waited)] = event["sequence"]
    return found


@check("torch13")
def a_spoilt_trace_is_found(client):
    """A comparison that cannot fail is worth nothing: one record left out, moved or resized, and it fails."""
    setting = next(each for each in settings.ALL if each.name == "pools")
    said = record(client, setting, SEED + 1, 12)
    client.equal(compare.compare(states(client, client.trace), said).problems, [])
    events = client.events()
    spoilt = client.folder / "spoilt.fst"
    for kind, how, *much in WAYS:
        candidates = visible(events, kind)
        client.that(candidates, f"no {kind} that a snapshot follows")
        at = candidates[len(candidates) // 2]
        subprocess.run([client.build / "tests" / "clients" / "alter_trace", client.trace, spoilt, how, str(at),
                        *map(str, much)], check=True)
        client.that(compare.compare(states(client, spoilt), said).problems, f"{how} of the {kind} {at} was not found")
