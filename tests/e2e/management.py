"""What `fragscope run` learns from the management library (NVML) beside its recording, on the simulated GPU.

The right values are the simulation's (tests/simcuda/README.md): devices of 8 GiB and 256 MiB more that only NVML counts;
contexts of 256 MiB; allocations in pages of 2 MiB.
Usage: management.py BUILD_ROOT [CHECK …]     all checks, or those named
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
FRAGSCOPE = BUILD / "tools" / "fragscope"
CLIENT = [sys.executable, str(pathlib.Path(__file__).with_name("client.py"))]
SIMULATED = BUILD / "tests" / "simcuda"
MIB = 1 << 20
TIMEOUT = 60
CONTEXT = 256 * MIB
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


class Place:
    """A scratch folder, a simulated GPU of its own and a management library."""

    def __init__(self, folder, name):
        self.trace = pathlib.Path(folder) / "t.fst"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}
        self.env["FRAGSCOPE_SIM_SHARED"] = f"nvml-{os.getpid()}-{name}"
        self.library()

    def library(self, version=""):
        self.env["LD_LIBRARY_PATH"] = f"{SIMULATED}:{SIMULATED / 'nvml' / version}"

    def command(self, *words, options=(), program=None):
        return [str(FRAGSCOPE), "run", "-q", "--force", "-o", str(self.trace), *options, "--", *(program or CLIENT), *words]

    def run(self, *words, **more):
        result = subprocess.run(self.command(*words, **more), env=self.env, capture_output=True, timeout=TIMEOUT)
        assert result.returncode == 0, (result.returncode, result.stderr)
        return result

    def start(self, command):
        return subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tool(self, *words, status=0):
        result = subprocess.run([FRAGSCOPE, *words], capture_output=True, text=True, timeout=TIMEOUT)
        assert result.returncode in (status, 3), (words, result.returncode, result.stderr)
        return result.stdout

    def told(self):
        """What the report says of it so far, which may be nothing yet."""
        if not self.trace.exists():
            return {}
        result = subprocess.run([FRAGSCOPE, "report", self.trace, "--json"], capture_output=True, text=True, timeout=TIMEOUT)
        return json.loads(result.stdout).get("management", {}) if result.stdout else {}


def until(condition, what):
    deadline = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)
    return found


def exactly(quantity):
    assert quantity["low_bytes"] == quantity["high_bytes"], quantity
    return int(quantity["low_bytes"])


def moments(told):
    return [moment for device in told.get("devices", []) for moment in device["moments"]]


def finish(program):
    program.communicate(b"\n", timeout=TIMEOUT)
    assert program.returncode == 0, program.returncode


@check
def two_processes(p):
    """One that is recorded and one that is not: each by what it holds, and beside what the records add up to."""
    neighbour = p.start([*CLIENT, "alloc:33", "say:there", "wait"])
    assert neighbour.stdout.readline() == b"there\n"
    program = p.start(p.command("alloc:100", "say:there", "wait", options=["--nvml=10ms"]))
    assert program.stdout.readline() == b"there\n"

    def both_are_told():
        """A reading with both of them, of this moment: everything is allocated by now."""
        last = [moment for moment in moments(p.told()) if "last reading" in moment["moments"]]
        return last and len(last[0].get("processes", [])) == 2 and last[0]
    until(lambda: (told := both_are_told()) and exactly(told["used"]) == 2 * CONTEXT + (8 + 4) * MIB and told,
          "a reading with all that was allocated")
    finish(program)
    # The last reading is taken when the program is gone, the fullest one while it was there.
    told = p.told()
    assert told["state"] == "on" and told["driver_version"] == "580.95.05", told
    assert int(told["readings"]) >= 2 and not told.get("problems"), told
    device = next(device for device in told["devices"] if any(moment.get("processes") for moment in device["moments"]))
    assert device["name"] == "Simulated GPU 8 GiB" and device["pci_bus_id"] == "00000000:01:00.0", device
    assert device["device"] == device["uuid"] and device["mig"] is False, device
    fullest = max(device["moments"], key=lambda m: exactly(m["used"]))
    assert exactly(fullest["total"]) == 8192 * MIB + 256 * MIB
    assert exactly(fullest["reserved"]) == 256 * MIB
    assert exactly(fullest["nvml_free"]) == 8192 * MIB - exactly(fullest["used"])
    own = [process for process in fullest["processes"] if "process" in process]
    foreign = [process for process in fullest["processes"] if "process" not in process]
    assert len(own) == len(foreign) == 1, fullest
    # 33 and 100 times 64 KiB, 32 of which share a page of 2 MiB.
    assert exactly(own[0]["used"]) == CONTEXT + 8 * MIB, own
    assert exactly(foreign[0]["used"]) == CONTEXT + 4 * MIB, foreign
    assert int(foreign[0]["pid"]) == int(foreign[0]["pid_here"]) == neighbour.pid, (foreign, neighbour.pid)
    low, high = (int(own[0]["attributed"][end]) for end in ("low_bytes", "high_bytes"))
    assert 100 * 65536 <= low <= 8 * MIB <= high, own
    assert CONTEXT + 8 * MIB - high == int(own[0]["more_low_bytes"]), own
    assert int(own[0]["more_high_bytes"]) == CONTEXT + 8 * MIB - low, own
    # cuMemGetInfo was asked by the shim; it knows nothing of the 256 MiB.
    assert int(fullest["driver"]["total_less_bytes"]) == -256 * MIB, fullest["driver"]
    last = device["moments"][-1]
    assert [int(process["pid"]) for process in last["processes"]] == [neighbour.pid], last
    words = p.tool("report", p.trace)
    assert "What the management library (NVML) said" in words and "held by process 0 (pid" in words, words
    assert "Not recorded here." in words, words
    finish(neighbour)


@check
def another_namespace(p):
    """Numbers that mean no process here are not looked up, and by chance least of all."""
    p.env["FRAGSCOPE_SIM_NVML_PID_OFFSET"] = "3000000"
    program = p.start(p.command("alloc:1", "say:there", "wait", options=["--nvml=10ms"]))
    assert program.stdout.readline() == b"there\n"
    moment = until(lambda: next((m for m in moments(p.told()) if m.get("processes")), None), "a list of processes")
    [process] = moment["processes"]
    assert int(process["pid"]) > 3000000 and "pid_here" not in process and "process" not in process, process
    assert exactly(process["used"]) >= CONTEXT, process
    finish(program)
    # Where this test itself is in the initial namespace the numbers are of processes that do not exist.
    initial = os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
    problems = p.told().get("problems", [])
    assert initial or any("another PID namespace" in problem for problem in problems), problems
    assert "Whether it was recorded here is not known" in p.tool("report", p.trace)


@check
def a_refused_allocation(p):
    """The library is asked soon after, whatever the period; explain shows how far away in time that was."""
    # A reading of the start, or of the refusal before, may be nearer to a refusal than its own: one of several is not so.
    attempts = 20
    program = p.start(p.command("alloc:1", *["wait", "toomuch", "say:refused"] * attempts, "wait", options=["--nvml=10s"]))

    def nearest():
        """Of the last refusal, in the trace as far as it is written."""
        result = subprocess.run([FRAGSCOPE, "explain", p.trace, "--json"], capture_output=True, text=True, timeout=TIMEOUT)
        told = json.loads(result.stdout) if result.stdout else {}
        return told.get("of_failures"), told.get("management", {}).get("devices", [{}])[0].get("moments", [None])[0]

    for attempt in range(1, attempts + 1):
        before = until(lambda: int(p.told().get("readings", 0)), "a reading")
        program.stdin.write(b"\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"refused\n"
        until(lambda: int(p.told().get("readings", 0)) > before, "a reading because of the refusal")
        failures, moment = until(lambda: (told := nearest())[0] == attempt and told, "the refusal in the trace")
        if moment and int(moment["after_failure_ns"]) > 0:
            break
    else:
        raise AssertionError(f"no refusal of {attempts} has its nearest reading behind it: {moment}")
    program.communicate(b"\n" * (attempts + 1), timeout=TIMEOUT)
    assert program.returncode == 0, program.returncode
    assert exactly(moment["used"]) == CONTEXT + 2 * MIB, moment
    assert int(moment["after_failure_ns"]) < 2e9, moment
    words = p.tool("explain", p.trace, "--failure", str(attempt))
    assert re.search(r"Asked \S+ \S+ later than the request", words), words


@check
def older_drivers(p):
    for version, lacks in (("driver-470", "nvmlDeviceGetMemoryInfo_v2"), ("driver-440", "nvmlDeviceGetMigMode")):
        p.library(version)
        program = p.start(p.command("alloc:1", "say:there", "wait", options=["--nvml=10ms"]))
        assert program.stdout.readline() == b"there\n"
        moment = until(lambda: next((m for m in moments(p.told()) if m.get("processes")), None), "a list of processes")
        finish(program)
        assert moment["used_holds_reserved"] is True and "low_bytes" not in moment["reserved"], moment
        assert exactly(moment["used"]) == CONTEXT + (2 + 256) * MIB, moment
        assert exactly(moment["processes"][0]["used"]) == CONTEXT + 2 * MIB, moment
        told = p.told()
        assert any(lacks in problem for problem in told["problems"]), told
        assert ("mig" in told["devices"][0]) == (version == "driver-470"), told


@check
def forms_of_lists(p):
    for size in (16, 32):
        p.env["FRAGSCOPE_SIM_NVML_PROCESS_LAYOUT"] = str(size)
        program = p.start(p.command("alloc:1", "say:there", "wait", options=["--nvml=10ms"]))
        assert program.stdout.readline() == b"there\n"
        moment = until(lambda: next((m for m in moments(p.told()) if m.get("processes")), None), "a list of processes")
        finish(program)
        assert exactly(moment["processes"][0]["used"]) == CONTEXT + 2 * MIB, moment


@check
def not_told(p):
    for setting, value, problem in (("PROCESSES", "forbidden", "Insufficient Permissions"),
                                    ("PROCESS_BYTES", "zero", "what a process holds (not available"),
                                    ("PROCESS_BYTES", "not_available", "what a process holds (not available"),
                                    ("ERROR_nvmlDeviceGetMemoryInfo_v2", "15", ""),
                                    ("ERROR_nvmlDeviceGetCount_v2", "15", "GPU is lost"),
                                    ("ERROR_nvmlInit_v2", "9", "could not be initialised: Driver Not Loaded"),
                                    ("ERROR_nvmlInit_v2", "18", "Driver/library version mismatch")):
        env = dict(p.env)
        p.env[f"FRAGSCOPE_SIM_NVML_{setting}"] = value
        program = p.start(p.command("alloc:1", "say:there", "wait", options=["--nvml=10ms"]))
        assert program.stdout.readline() == b"there\n"
        told = until(lambda: p.told().get("readings") and p.told(), "a reading")
        finish(program)
        told = p.told()
        assert not problem or any(problem in each for each in told["problems"]), (setting, told)
        for moment in moments(told):
            for process in moment.get("processes", []):
                assert setting != "PROCESS_BYTES" or "low_bytes" not in process["used"], process
            # The first version of the question is asked where the second one fails.
            assert setting != "ERROR_nvmlDeviceGetMemoryInfo_v2" or moment["used_holds_reserved"] is True, moment
            assert value != "forbidden" or not moment.get("processes_known"), moment
        p.env = env


@check
def one_list_is_not_told(p):
    """The others are; but whether they name every process is then not known."""
    for kind in ("Graphics", "MPSCompute"):
        env = dict(p.env)
        p.env[f"FRAGSCOPE_SIM_NVML_ERROR_nvmlDeviceGet{kind}RunningProcesses_v3"] = "4"
        program = p.start(p.command("alloc:1", "say:there", "wait", options=["--nvml=10ms"]))
        assert program.stdout.readline() == b"there\n"
        moment = until(lambda: next((m for m in moments(p.told()) if m.get("processes")), None), "a list of processes")
        finish(program)
        assert not moment.get("processes_known"), moment
        kind = {"Graphics": "graphics", "MPSCompute": "mps"}[kind]
        assert any(f"{kind} processes (Insufficient Permissions" in each for each in p.told()["problems"]), p.told()
        assert "Whether other processes hold memory was not told" in p.tool("report", p.trace)
        p.env = env


@check
def instances_are_not_told(p):
    """The reason is the library's own."""
    p.env["FRAGSCOPE_SIM_NVML_MIG"] = "on"
    p.env["FRAGSCOPE_SIM_NVML_ERROR_nvmlDeviceGetMaxMigDeviceCount"] = "15"
    p.run("alloc:1")
    [problem] = p.told()["problems"]
    assert "a device's instances (GPU is lost" in problem and "no function" not in problem, problem


@check
def a_device_that_is_cut_up(p):
    p.env["FRAGSCOPE_SIM_NVML_MIG"] = "on"
    program = p.start(p.command("alloc:1", "say:there", "wait", options=["--nvml=10ms"]))
    assert program.stdout.readline() == b"there\n"
    until(lambda: any(m.get("processes") for m in moments(p.told())), "a list of processes")
    finish(program)
    told = p.told()
    instance = next(d for d in told["devices"] if any(m.get("processes") for m in d["moments"]))
    assert instance["uuid"].startswith("MIG-") and instance["parent_uuid"].startswith("GPU-"), instance
    process = next(m for m in instance["moments"] if m.get("processes"))["processes"][0]
    assert (process["process"], process["gpu_instance"], process["compute_instance"]) == (0, 1, 0), process
    assert int(told["other_devices"]) == 2, told  # the devices themselves, which the program does not see


@check
def a_library_that_hangs(p):
    """Neither the recording nor its end waits for it."""
    for function in ("nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v2"):
        p.env[f"FRAGSCOPE_SIM_NVML_DELAY_{function}"] = "59s"
        before = time.monotonic()
        p.run("alloc:1", "churn:1000")
        assert time.monotonic() - before < 30
        [problem] = p.told()["problems"]
        assert "had not answered within" in problem, problem
        assert len(p.tool("dump", p.trace, "--json", "--kind", "linear_acquired").splitlines()) == 1001
        del p.env[f"FRAGSCOPE_SIM_NVML_DELAY_{function}"]


@check
def without(p):
    """Off, not there, and devices that nobody else can see."""
    p.run("alloc:1", options=["--nvml=off"])
    assert not p.told()
    p.env["LD_LIBRARY_PATH"] = str(SIMULATED)
    p.run("alloc:1")
    told = p.told()
    # Where this machine has a driver of its own, that one answers, for devices that are not the simulated ones.
    assert "cannot be loaded" in told["state"] or not told.get("devices"), told
    p.library()
    del p.env["FRAGSCOPE_SIM_SHARED"]
    p.run("alloc:1")
    told = p.told()
    assert any("memory (Not Supported" in problem for problem in told["problems"]), told
    for moment in moments(told):
        assert "low_bytes" not in moment["used"] and not moment.get("processes"), moment
    for wrong in ("1ms", "11s", "on", "-1"):
        result = subprocess.run(p.command("alloc:1", options=[f"--nvml={wrong}"]), env=p.env, capture_output=True, timeout=TIMEOUT)
        assert result.returncode == 2 and b"--nvml" in result.stderr, (wrong, result)


@check
def in_the_collector_only(p):
    """The program does not get the library, and a recording around the recording does not record the collector."""
    looking = [sys.executable, "-c", "print('nvidia-ml' in open('/proc/self/maps').read())"]
    assert p.run(program=looking).stdout == b"False\n"
    inner = p.trace.with_name("inner.fst")
    p.run(program=[str(FRAGSCOPE), "run", "-q", "-o", str(inner), "--", *CLIENT, "alloc:1"])
    outer = json.loads(p.tool("report", p.trace, "--json"))
    assert not outer.get("processes"), outer["processes"]


@check
def doctor_says_it(p):
    def row():
        result = subprocess.run([FRAGSCOPE, "doctor", "--json"], env=p.env, capture_output=True, text=True, timeout=TIMEOUT)
        return next(line for line in map(json.loads, result.stdout.splitlines()) if line["about"] == "NVML")
    found = row()
    assert found["state"] == "ok" and "580.95.05" in found["says"] and "2 devices" in found["says"], found
    p.env["FRAGSCOPE_SIM_NVML_ERROR_nvmlInit_v2"] = "9"
    found = row()
    assert found["state"] == "note" and "Driver Not Loaded" in found["says"], found


def main():
    for name in sys.argv[2:] or CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            CHECKS[name](Place(folder, name))
        print(f"{name}: as it should be")


main()
