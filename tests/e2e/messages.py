"""Error messages instead of a recording, from the outside: `fragscope explain` and `report` of a log and of standard input.

Usage: messages.py BUILD_ROOT
"""
import json
import pathlib
import subprocess
import sys
import tempfile

# 2 GiB, of a device with 1 GiB that nobody holds and 100 MiB unused in the allocator.
WHOLE = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of "
         "which 1.00 GiB is free. Including non-PyTorch memory, this process has 6.90 GiB memory in use. Of the allocated "
         "memory 6.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n")
LOG = "".join(f"step {i}: loss {1 / (i + 1):.4f}\n" for i in range(5000))


def fragscope(build, *arguments, text=None):
    return subprocess.run([build / "tools" / "fragscope", *arguments], input=text, capture_output=True, text=True, timeout=120)


def main(build):
    done = fragscope(build, "explain", "-", "--json", text=WHOLE)
    assert done.returncode == 0, (done.returncode, done.stderr)
    answer = json.loads(done.stdout)
    assert answer["id"] == "failure:1" and answer["verdict"]["cause"] == "capacity_exhaustion", answer["verdict"]
    assert answer["health"]["imported_kind"] == "torch-message", answer["health"]
    assert answer["health"]["not_in_source"] and answer["health"]["not_in_source"][0] in answer["not_known"]
    capacity = next(row for row in answer["audit"] if row["definition"] == "capacity")
    # 8.00 GiB: 0.005 GiB either way.
    assert (int(capacity["low_bytes"]), int(capacity["high_bytes"])) == (2 ** 33 - 5368709, 2 ** 33 + 5368709), capacity

    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "train.log"
        log.write_text(LOG + WHOLE.replace("GPU 0", "GPU 1") + LOG + WHOLE + LOG)
        done = fragscope(build, "explain", log)
        assert done.returncode == 0, done.stderr
        assert "Failure 2 of 2" in done.stdout and "line 10002" in done.stdout, done.stdout[:400]
        assert "1 other failed request" in done.stdout
        done = fragscope(build, "explain", log, "--all", "--json")
        assert [json.loads(line)["scenario"]["line"] for line in done.stdout.splitlines()] == ["5001", "10002"]
        done = fragscope(build, "explain", log, "--failure", "1", "--brief")
        assert done.returncode == 0 and "GPU 1" in done.stdout
        done = fragscope(build, "explain", log, "--failure", "3")
        assert done.returncode == 2 and "2 failed requests" in done.stderr, done.stderr
        done = fragscope(build, "report", log, "--json")
        assert done.returncode == 0
        states = json.loads(done.stdout)["states"]
        assert [state["line"] for state in states] == ["5001", "10002"]
        assert {amount["reason"] for amount in states[0]["amounts"]} >= {"the device", "as the driver said"}
        done = fragscope(build, "report", log)
        assert "PyTorch could not get 2 GiB on GPU 1" in done.stdout, done.stdout[:600]

        cut = pathlib.Path(folder) / "cut.log"
        cut.write_text(WHOLE[:200])
        done = fragscope(build, "explain", cut)
        assert done.returncode == 3 and "breaks off" in done.stdout, (done.returncode, done.stdout[:400])

        nothing = pathlib.Path(folder) / "nothing.log"
        nothing.write_text(LOG)
        done = fragscope(build, "explain", nothing)
        assert done.returncode == 1 and "its 5000 lines tell of no failed request" in done.stderr, done.stderr
        binary = pathlib.Path(folder) / "binary"
        binary.write_bytes(bytes(range(256)) * 64)
        for command in ("explain", "report"):
            done = fragscope(build, command, binary)
            assert done.returncode == 1 and "is not a Fragscope trace" in done.stderr, done.stderr
        done = fragscope(build, "explain", binary, "--kind", "message")
        assert done.returncode == 1 and "tell of no failed request" in done.stderr, done.stderr

        done = fragscope(build, "state", log, "--at", "end")
        assert done.returncode == 1 and "holds no events" in done.stderr, done.stderr
        done = fragscope(build, "explain", log, "--if-request", "1GiB", "--at", "end")
        assert done.returncode == 2, done.stderr
        done = fragscope(build, "explain", log, "--kind", "pickle")
        assert done.returncode == 1 and "there is no kind 'pickle'" in done.stderr, done.stderr


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
