"""`run` on the simulated GPU, as far as it goes there: every question is asked, and those whose answer the simulation's
settings fix get it. What is right stands in tests/simcuda/README.md.
Usage: simulated.py BUILD_ROOT RELEASE      RELEASE: of NVIDIA's runtime in tests/programs/hello
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MIB = 1 << 20
FOLDER = pathlib.Path(__file__).resolve().parent
# Questions that nobody can answer here, with the reason in the answer: NVIDIA's own runtime stops at the driver's
# authentication; the plain suite has no PyTorch.
NOT_HERE = {"programs", "torch"}


def main():
    build, release = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "gpu.jsonl"
        done = subprocess.run([sys.executable, FOLDER / "run", "--simulated", build, "--out", out], capture_output=True, text=True,
                              timeout=500)
        print(done.stdout)
        answers = {line["step"]: line for line in map(json.loads, out.read_text().splitlines())}
        # One that hangs is stopped, and the next one answered.
        hanging = {**os.environ, "FRAGSCOPE_SIM_NVML_DELAY_nvmlInit_v2": "59s"}
        hung = subprocess.run([sys.executable, FOLDER / "run", "--simulated", build, "--out", out, "--step-limit", "15", "nvml",
                               "machine"], env=hanging, capture_output=True, text=True, timeout=120)
        states = [json.loads(line)["state"] for line in out.read_text().splitlines()]
        assert hung.returncode == 1 and states == ["failed", "answered"], (hung, states)
        # Where nothing is carried along, nothing was asked: that is no answer.
        empty = pathlib.Path(scratch) / "empty"
        empty.mkdir()
        (empty / "c_library").write_text("2.17\n")
        subprocess.run([sys.executable, FOLDER / "run", "--bundle", empty, "--out", out, "lookups", "programs", "entry_points"],
                       capture_output=True, text=True, timeout=120, check=True)
        states = [json.loads(line)["state"] for line in out.read_text().splitlines()]
        assert states == ["not here"] * 3, states
        # What `pack` did not make stays.
        mine = pathlib.Path(scratch) / "mine"
        mine.mkdir()
        (mine / "file").touch()
        refused = subprocess.run([sys.executable, FOLDER / "pack", build, mine], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1 and "not made by pack" in refused.stderr and (mine / "file").exists(), refused
    failed = {name: line for name, line in answers.items() if line["state"] == "failed"}
    assert not failed and done.returncode == 0, (failed, done.stderr)
    unanswered = {name for name, line in answers.items() if line["state"] == "not here"}
    assert unanswered == NOT_HERE, {name: answers[name].get("not_here") for name in unanswered}

    assert answers["machine"]["driver_version"] == 13000 and len(answers["machine"]["devices"]) == 2
    assert answers["resolution"]["found"] > 400 and not answers["resolution"]["unnamed"], answers["resolution"]
    granularity = answers["granularity"]
    assert granularity["device_minimum"] == granularity["device_recommended"] == 2 * MIB
    assert granularity["multicast_minimum"] == 4 * MIB
    small = {row["bytes"]: row for row in answers["packing"]["sizes"]}
    assert small[1]["spacing"] == [512] and small[513]["spacing"] == [1024] and small[1]["taken_in_all"] == 2 * MIB
    assert small[MIB + 1]["taken_in_all"] == 8 * 2 * MIB and small[64 * MIB + 1]["taken_in_all"] == 4 * 66 * MIB
    grown = answers["pool"]["grown"]
    assert (grown[0]["used"], grown[0]["reserved"]) == (512, 32 * MIB) and answers["pool"]["reserved_after"] == 0
    taken = {step["step"]: step["taken"] for step in answers["context"]["steps"]}
    assert taken["nothing"] == 0 and taken["a second context"] == taken["a third context"] == 256 * MIB, taken
    assert taken["a context destroyed"] == -256 * MIB and taken["printf buffer 64 MiB"] > 0, taken
    refused = {row["call"] for row in answers["capture"]["rows"] if row["mode"] == "global" and row["answer"] != 0}
    assert refused == {"cuMemAlloc", "cuMemPoolGetAttribute", "cuStreamGetDevice"}, refused
    moments = answers["nvml"]["moments"]
    with_memory, without = moments["1 GiB by cuMemAlloc"], moments["given back"]
    assert with_memory["v2"]["used"] - without["v2"]["used"] == 1024 * MIB
    assert without["v2"]["total"] - without["cuMemGetInfo"]["total"] == without["v2"]["reserved"] == 256 * MIB
    assert without["v2"]["free"] == without["cuMemGetInfo"]["free"]
    [own] = without["nvmlDeviceGetComputeRunningProcesses_v3"]["processes"]
    assert own == {"pid": answers["nvml"]["own_pid"], "used": 256 * MIB}, own
    assert answers["mappings"]["mapped"] >= 20_000 and not answers["mappings"]["refused"]
    assert {row["call"] for row in answers["latency"]["nanoseconds"]} >= {"cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}
    found = answers["lookups"]["static"]
    # Seen with CUDA 13.0.96: 440 look-ups by cuGetProcAddress, and one of that itself.
    assert found["lookups"] == 441 if release == "13.0" else found["lookups"] > 400, found
    assert found["lookups_unmatched"] == 0 and found["same_output"], found
    # The stand-in runtime asks the driver each time.
    asked = answers["entry_points"]["lookups"]
    assert asked["101"] - asked["1"] == 100, asked
    assert len(answers["cost"]["more_ns"]) == 6
    # Linear, stream-ordered and managed memory: none of CUPTI's kinds of memory is cuMemCreate's or a graph's own.
    acquired = [event for event in answers["cupti"]["reported"] if event["kind"] == "activity_acquired"]
    assert {int(event["bytes"]) >> 20 for event in acquired} == {3, 5, 7}, acquired


main()
