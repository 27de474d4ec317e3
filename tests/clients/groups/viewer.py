"""PyTorch's snapshots both ways: its own file is read as it is meant, and what `fragscope export` writes is opened by its
own script for such files (torch/cuda/_memory_viz.py)."""
import json
import pickle
import subprocess

from registry import check_in_each
from simulated import Failed


def shape(snapshot):
    """What an exported snapshot has to have in common with PyTorch's own of the same moment."""
    return [(s["address"], s["total_size"], s["allocated_size"], s["active_size"], s["segment_type"],
             [(b["address"], b["size"], b["state"]) for b in s["blocks"]]) for s in snapshot["segments"]]


@check_in_each("torch12", "torch13")
def both_ways(client, torch):
    own = client.folder / "own.pickle"
    client.recorded(torch, "torch_snapshot.py", own)
    written = client.folder / "exported.pickle"
    client.tool("export", client.trace, "--to", "torch-snapshot", "-o", written)
    theirs = pickle.loads(own.read_bytes())
    ours = pickle.loads(written.read_bytes())
    client.equal(shape(ours), shape(theirs), "segments and blocks, exported and PyTorch's own")
    # Its own file, imported: the same sums, and the sum that it noted itself.
    said = json.loads(client.tool("report", own, "--json"))
    client.that(not said["health"].get("warnings"), "its own snapshot is said to be odd", said["health"])
    sums = said["devices"][0]
    client.equal(int(sums["segments"]), len(theirs["segments"]), "segments")
    client.equal(int(sums["reserved_bytes"]), sum(s["total_size"] for s in theirs["segments"]), "reserved")
    client.equal(int(sums["active_bytes"]), sum(s["active_size"] for s in theirs["segments"]), "active")
    client.equal(int(sums["trace_entries"]), len(theirs["device_traces"][0]), "entries")
    client.equal(len(said["failures"]), 1, "requests that it gave up")
    again = client.folder / "again.pickle"
    client.tool("export", own, "--to", "torch-snapshot", "-o", again)
    client.equal(shape(pickle.loads(again.read_bytes())), shape(theirs), "segments and blocks, there and back")
    # Not its flame graphs (segments, memory): for those it downloads another program.
    for file in (written, again):
        for what in ("stats", "trace", "trace_plot", "segment_plot"):
            page = client.folder / "page"
            page.unlink(missing_ok=True)
            to_page = ["-o", page] if what.endswith("_plot") else []
            done = subprocess.run([client.python(torch), "-m", "torch.cuda._memory_viz", what, file, *to_page],
                                  capture_output=True, text=True, timeout=180)
            if done.returncode != 0 or not (done.stdout or page.exists() and page.stat().st_size != 0):
                raise Failed(f"_memory_viz.py {what} on {file.name}", done.stdout[-1000:], done.stderr[-2000:])
            client.checks += 1
