"""The check that is meant for a real GPU (tests/gpu), in its one step that needs a client: here on the simulated GPU."""
import json
import subprocess
import sys

from registry import check
from simulated import HERE


@check("torch13")
def torch_step(client):
    """PyTorch's own snapshots have the same segments and blocks as the trace, all of them."""
    out = client.folder / "gpu.jsonl"
    done = subprocess.run([sys.executable, HERE.parent / "gpu" / "run", "--simulated", client.build, "--python",
                           client.python("torch13"), "--out", out, "torch"], capture_output=True, text=True,
                          timeout=client.timeout, check=False, env=client.environment("run"))
    client.equal(done.returncode, 0, done.stdout, done.stderr)
    [answer] = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    client.equal(answer["state"], "answered", answer)
    client.that(answer["equal"] == answer["snapshots"] > 0, answer)
