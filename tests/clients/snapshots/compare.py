"""Holds `fragscope state --json` of a trace against what PyTorch's allocator said of itself at the same marks.

Compared for equality: segments (address, bytes, kind, class, stream), blocks and gaps (address, bytes, state), the eight
statistics of each pool class with their peaks, the number of out-of-memory errors. What cannot be equal is in DIFFERENCES,
with the reason, is recognised exactly, and counted; whatever else differs is a failure. What else PyTorch says of itself is
in NOT_COMPARED, with the reason; a name of its snapshots or statistics that is neither compared nor there is a failure.
The backend cudaMallocAsync has no snapshots: its statistics are held against the driver's ledger (groups/torch.py).
"""
import collections
import fnmatch
import json

# What no record can tell, by name. Only these are passed over, each only where its rule below holds.
DIFFERENCES = {
    "deferred": "a block given up during a stream capture after other streams had used it: PyTorch records the events that "
                "it waits for when the capture has ended and names no block then, so that from outside it is free at once. "
                "Held to be so only for addresses that the program itself gave up in such a way, where PyTorch says "
                "active_pending_free and we have a gap.",
    "deferred peaks": "peaks of active and inactive_split blocks and bytes after the first such block.",
    "retries": "num_alloc_retries is a number of attempts inside of the allocator, not all of which ask the driver "
               "(a limit of the process is checked before it): ours is an interval, which must hold it.",
}
# What PyTorch says and our state does not. Names of memory_stats(), with "segment " and "block " before them those of
# _snapshot(); patterns as a shell's.
NOT_COMPARED = {
    "requested_bytes.*": "the sizes before rounding: no record has them",
    "segment requested_size": "the same",
    "block requested_size": "the same",
    "*.allocated": "a sum since the program began, which `fragscope state` does not say",
    "*.freed": "the same",
    "num_device_alloc": "a sum of calls since the program began, which `fragscope state` does not say",
    "num_device_free": "the same",
    "num_sync_all_streams": "the allocator's own waiting, of which no record tells",
    "num_oom_rejections": "of the refusals that num_ooms counts those before the driver was asked: no record tells them apart",
    "max_split_size": "a setting",
    "oversize_*": "blocks by a setting that no record has",
    "reserved_bytes_by_private_pools*": "no record tells of which private pool a segment is",
    "segment segment_pool_id": "the same; only counted here",
    "segment allocated_size": "the sum of the blocks, which are compared one by one",
    "segment active_size": "the same",
    "segment frames": "where in the program; empty here, as no history is recorded",
    "block frames": "the same",
}
GROUPS = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
          "inactive_split_bytes")
STATES = {"live": "active_allocated", "waiting": "active_pending_free", "unused": "inactive"}
CLASSES = {"all": "all", "small": "small_pool", "large": "large_pool"}


COMPARED = {"num_ooms", "num_alloc_retries", "segment device", "segment address", "segment total_size", "segment stream",
            "segment segment_type", "segment is_expandable", "segment blocks", "block address", "block size", "block state",
            *[f"{group}.{pool}.{which}" for group in GROUPS for pool in CLASSES.values() for which in ("current", "peak")]}


class Comparison:
    """Counts of what was compared and passed over, and the first differences in words."""

    def __init__(self):
        self.snapshots = self.values = 0
        self.seen = collections.Counter()     # what the snapshots held, so that a run that tests nothing is seen
        self.passed_over = collections.Counter()  # by name of DIFFERENCES
        self.problems = []

    def add(self, other):
        self.snapshots += other.snapshots
        self.values += other.values
        self.seen += other.seen
        self.passed_over += other.passed_over
        self.problems += other.problems

    def equal(self, where, ours, theirs):
        self.values += 1
        if ours != theirs:
            self.problems.append(f"{where}: ours {ours}, PyTorch's {theirs}")
        return ours == theirs


def ours_of(allocator):
    """One device of `fragscope state` in the shape of `theirs`."""
    segments = []
    for segment in allocator["segments"]:
        blocks = [[int(b["address"]), int(b["bytes"]), STATES[b["state"]]] for b in segment["blocks"]]
        segments.append([int(segment["address"]), int(segment["bytes"]), segment.get("stream"),
                         "large" if segment["large"] else "small", segment["kind"] == "expandable", blocks])
    stats = {}
    for of in allocator["statistics"]:
        for group in GROUPS:
            # Absent: not known, which equals no number.
            stats[f"{group}.{CLASSES[of['pool']]}"] = [int(of[group][which]) if which in of.get(group, {}) else "not known"
                                                       for which in ("current", "peak")]
    return segments, stats


def add(stats, name, amount):
    if stats[name][0] != "not known":
        stats[name][0] += amount


def add_deferred(segments, stats, theirs, result):
    """Our state as it would be if the records told of deferred blocks; see DIFFERENCES."""
    waiting = {}
    for _, _, _, _, _, _, blocks in theirs["segments"]:
        waiting |= {address: size for address, size, state in blocks if state == "active_pending_free"}
    for address in theirs["deferred"]:
        size = waiting[address]
        for segment in segments:
            begin, total, _, kind, expandable, blocks = segment
            gap = next((i for i, b in enumerate(blocks) if b[2] == "inactive" and b[0] <= address and
                        address + size <= b[0] + b[1]), None)
            if gap is None:
                continue
            at, length, _ = blocks[gap]
            parts = [[at, address - at, "inactive"], [address, size, "active_pending_free"],
                     [address + size, at + length - address - size, "inactive"]]
            parts = [part for part in parts if part[1] > 0]
            blocks[gap:gap + 1] = parts
            was_split = 0 if length == total else 1
            gaps = len(parts) - 1
            for pool in ("all", f"{kind}_pool"):
                add(stats, f"active.{pool}", 1)
                add(stats, f"active_bytes.{pool}", size)
                if not expandable:
                    add(stats, f"inactive_split.{pool}", gaps - was_split)
                    add(stats, f"inactive_split_bytes.{pool}", (length - size) - was_split * length)
            result.passed_over["deferred"] += 1
            break


def compare_device(where, allocator, theirs, result):
    segments, stats = ours_of(allocator)
    add_deferred(segments, stats, theirs, result)
    said = {s[0]: s for s in theirs["segments"]}
    have = {s[0]: s for s in segments}
    result.equal(f"{where}: addresses of segments", sorted(have), sorted(said))
    result.equal(f"{where}: blocks outside of any segment", allocator["blocks_outside"], [])
    for address in sorted(said.keys() & have.keys()):
        _, total, stream, kind, pool, expandable, blocks = said[address]
        _, our_total, our_stream, our_kind, our_expandable, our_blocks = have[address]
        at = f"{where}, segment {address:#x}"
        result.equal(f"{at}: bytes", our_total, total)
        result.equal(f"{at}: class", our_kind, kind)
        result.equal(f"{at}: expandable", our_expandable, expandable)
        result.equal(f"{at}: stream", our_stream and int(our_stream), stream)
        if our_blocks != blocks:
            ours, other = [b for b in our_blocks if b not in blocks], [b for b in blocks if b not in our_blocks]
            result.problems.append(f"{at}: blocks: only ours {ours}, only PyTorch's {other}")
        result.values += 3 * len(blocks)
        result.seen["segments"] += 1
        result.seen["expandable segments"] += expandable
        result.seen["segments of private pools"] += pool != [0, 0]
        for _, _, state in blocks:
            result.seen[state] += 1
    for name, (current, peak) in theirs["stats"].items():
        ours = stats.get(name)
        if ours is None:
            result.problems.append(f"{where}: no {name}")
            continue
        result.equal(f"{where}: {name}, current", ours[0], current)
        if theirs["ever_deferred"] and name.split(".")[0] in ("active", "active_bytes", "inactive_split",
                                                               "inactive_split_bytes"):
            result.passed_over["deferred peaks"] += ours[1] != peak
        else:
            result.equal(f"{where}: {name}, peak", ours[1], peak)
    counts = theirs["counts"]
    result.equal(f"{where}: num_ooms", int(allocator["refused"]), counts["num_ooms"])
    least, most = int(allocator["retries_at_least"]), int(allocator["retries_at_most"])
    result.values += 1
    if not least <= counts["num_alloc_retries"] <= most:
        result.problems.append(f"{where}: num_alloc_retries: ours {least} to {most}, "
                               f"PyTorch's {counts['num_alloc_retries']}")
    result.passed_over["retries"] += least != most
    result.seen["out of memory"] = max(result.seen["out of memory"], counts["num_ooms"])


NOTHING = {"segments": [], "blocks_outside": [], "refused": 0, "retries_at_least": 0, "retries_at_most": 0,
           "statistics": [{"pool": pool, **{group: {"current": 0, "peak": 0} for group in GROUPS}} for pool in CLASSES]}


def compare_snapshot(state, theirs, result):
    """One mark's two states."""
    devices = {each["ordinal"]: each for each in state["framework"]}
    for ordinal, said in theirs["devices"].items():
        # A device that was never used is not in ours.
        compare_device(f"{theirs['mark']}, device {ordinal}", devices.pop(int(ordinal), NOTHING), said, result)
    for ordinal in devices:
        result.problems.append(f"{theirs['mark']}: device {ordinal} is only in our state")
    result.snapshots += 1


def compare(states, said):
    """`states`: lines of `fragscope state --json --at 'mark:snapshot:*'`; `said`: lines that program.py wrote."""
    result = Comparison()
    by_mark = {}
    for line in states:
        state = json.loads(line)
        if state["mark"] in by_mark:
            result.problems.append(f"{state['mark']} is twice in the trace")
        by_mark[state["mark"]] = state
    for line in said:
        theirs = json.loads(line)
        if "mark" not in theirs:
            unknown = [name for name in theirs["names"] if name not in COMPARED and
                       not any(fnmatch.fnmatchcase(name, pattern) for pattern in NOT_COMPARED)]
            result.equal("names that are neither compared nor known", unknown, [])
            result.equal("names that are compared and not there", sorted(COMPARED - set(theirs["names"])), [])
            continue
        ours = by_mark.pop(theirs["mark"], None)
        if ours is None:
            result.problems.append(f"{theirs['mark']} is not in the trace")
        else:
            compare_snapshot(ours, theirs, result)
    for mark in by_mark:
        result.problems.append(f"{mark} is only in the trace")
    return result


def table(result):
    """Lines for a person: what was compared and what was passed over."""
    lines = [f"{result.snapshots} snapshots, {result.values} values equal, {len(result.problems)} different"]
    lines += [f"  {name}: {count}" for name, count in sorted(result.seen.items())]
    lines += [f"  passed over, {name}: {result.passed_over[name]}" for name in DIFFERENCES]
    lines += [f"  not compared: {', '.join(NOT_COMPARED)}"]
    return lines
