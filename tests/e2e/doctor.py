"""`fragscope doctor`: each finding that can be arranged without a GPU.

Usage: doctor.py BUILD_ROOT NVIDIA_STATIC SHARED
  NVIDIA_STATIC   a program with NVIDIA's own runtime linked statically
  SHARED          one that needs a shared runtime
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

import house

BUILD, STATIC, SHARED = map(pathlib.Path, sys.argv[1:4])
FRAGSCOPE = BUILD / "tools" / "fragscope"
SIMULATED = BUILD / "tests" / "simcuda"
ENV = {k: v for k, v in os.environ.items()
       if not k.startswith(("FRAGSCOPE", "LD_", "NVTX_", "ASAN_"))} | {"LD_LIBRARY_PATH": str(SIMULATED)}


def run(*words, env=None, limit=None, prefix=()):
    set_limit = (lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))) if limit else None
    result = subprocess.run([*prefix, FRAGSCOPE, "doctor", *words], capture_output=True, text=True, timeout=60,
                            env={**ENV, **(env or {})}, preexec_fn=set_limit)
    house.no_bare_free(result.stdout + result.stderr, "doctor")
    return result


def findings(*words, status=0, **more):
    result = run("--json", *words, **more)
    assert result.returncode == status, (words, result.returncode, result.stdout, result.stderr)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(set(f) == {"state", "about", "says", "to_do"} and f["says"].endswith(".") for f in found), found
    assert (status == 1) == any(f["state"] == "problem" for f in found), found
    return found


def expect(found, state, about, *words):
    matching = [f for f in found if f["about"] == about and f["state"] == state and
                all(word in f["says"] + " " + f["to_do"] for word in words)]
    assert matching, (state, about, words, found)


def of_the_machine():
    found = findings()
    shim = str((BUILD / "interpose" / "libfragscope.so").resolve())
    expect(found, "ok", "recorder", shim)
    expect(found, "ok", "driver", str(SIMULATED.resolve()), "for CUDA 13.0")
    expect(found, "ok", "NVML")
    expect(found, "ok", "CUPTI")
    expect(found, "ok", "tracing rights", "no ptrace")
    assert not [f for f in found if f["about"] in ("program", "other interposers", "NVTX")], found

    result = run()
    assert result.returncode == 0 and result.stdout.splitlines()[-1].startswith("Recording will work"), result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80, result.stdout
    result = run("--shim", "/no/such.so")
    assert result.returncode == 1 and "Recording will not work" in result.stdout, result.stdout


def of_the_recorder(folder):
    expect(findings("--shim", "/no/such.so", status=1), "problem", "recorder", "/no/such.so cannot be read")
    text = folder / "text.so"
    text.write_text("no library")
    expect(findings("--shim", str(text), status=1), "problem", "recorder", "loader does not take")
    spaced = folder / "with space.so"
    spaced.write_text("")
    expect(findings("--shim", str(spaced), status=1), "problem", "recorder", "space or colon")
    # Needs a symbol version that no C library has, as a shim built on a newer system does.
    source = folder / "newer.c"
    source.write_text('extern int getpid(void);\n__asm__(".symver getpid,getpid@GLIBC_2.2.5");\nint f(void) { return getpid(); }\n')
    newer = folder / "newer.so"
    if subprocess.run(["cc", "-shared", "-fPIC", "-o", newer, source], capture_output=True).returncode == 0:
        newer.write_bytes(newer.read_bytes().replace(b"GLIBC_2.2.5", b"GLIBC_9.9.9"))
        expect(findings("--shim", str(newer), status=1), "problem", "recorder", "loader does not take")


def of_the_driver(folder):
    broken = folder / "driver"
    broken.mkdir()
    (broken / "libcuda.so.1").write_text("no library")
    found = run("--json", env={"LD_LIBRARY_PATH": str(broken)})
    # The loader passes over what is no library and goes on looking: on a machine with a driver it finds that one.
    driver = [json.loads(line) for line in found.stdout.splitlines() if json.loads(line)["about"] == "driver"][0]
    assert str(broken) not in driver["says"], driver
    if driver["state"] == "problem":
        assert found.returncode == 1 and "is not found" in driver["says"], driver


def of_limits():
    expect(findings(limit=(resource.RLIMIT_NOFILE, 64)), "note", "open files limit", "64")
    expect(findings(limit=(resource.RLIMIT_FSIZE, 1 << 30)), "note", "file size limit", "1 GiB")
    expect(findings(limit=(resource.RLIMIT_FSIZE, 1 << 20), status=1), "problem", "file size limit", "1 MiB")
    expect(findings(limit=(resource.RLIMIT_AS, 8 << 30)), "note", "address space limit", "8 GiB")
    if os.geteuid() == 0 and shutil.which("unshare"):
        for size, state, status in (("20m", "note", 0), ("1m", "problem", 1)):
            mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm || exit 77; exec "$@"', "sh"]
            if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
                print("no mount namespaces here: the size of /dev/shm is not tried")
                break
            expect(findings(prefix=mount, status=status), state, "shared memory", "available in /dev/shm")


def of_others():
    library = str(SIMULATED / "libcuda.so.1")
    found = findings(env={"LD_PRELOAD": library})
    expect(found, "note", "other interposers", library, "stands between")
    found = findings(env={"LD_PRELOAD": "/no/library.so"})
    expect(found, "note", "other interposers", "/no/library.so", "no library that can be read")
    found = findings(env={"NVTX_INJECTION64_PATH": "/tool.so", "LD_AUDIT": "/audit.so", "FRAGSCOPE_SESSION": "/fragscope-1-2-3"})
    expect(found, "note", "NVTX", "/tool.so", "--no-nvtx")
    expect(found, "note", "other interposers", "LD_AUDIT", "/audit.so")
    expect(found, "note", "other interposers", "inside another recording")


def of_programs(folder):
    expect(findings("--", "/no/such/program", status=1), "problem", "program", "there is no such program")
    expect(findings("--", "/etc/passwd", status=1), "problem", "program", "not executable")
    expect(findings("--", str(folder), status=1), "problem", "program", "is a directory")
    found = findings("--", "true")
    expect(found, "ok", "program", "/true is a 64-bit program")
    expect(found, "note", "CUDA runtime", "shows no CUDA runtime")
    expect(found, "note", "ways past the recorder", "RTLD_DEEPBIND")
    expect(findings("--", str(STATIC)), "ok", "CUDA runtime", "carries the CUDA runtime in itself")
    stripped = folder / "stripped"
    subprocess.run(["strip", "-s", "-o", stripped, STATIC], check=True)
    expect(findings("--", str(stripped)), "ok", "CUDA runtime", "carries the CUDA runtime in itself")
    found = findings("--", str(SHARED), env={"LD_LIBRARY_PATH": f"{SIMULATED}:{SIMULATED / 'runtime'}"})
    expect(found, "ok", "CUDA runtime", "shared CUDA runtime libcudart.so.13", "libcudart.so.13)")

    marker = folder / "ran"
    script = folder / "script"
    script.write_text(f"#!/usr/bin/env -S sh -e\ntouch {marker}\n")
    script.chmod(0o755)
    found = findings("--", str(script))
    expect(found, "ok", "program", "is a script, run by sh")
    assert not marker.exists(), "the program was started"
    script.write_text("#!/no/such/interpreter\n")
    expect(findings("--", str(script), status=1), "problem", "program", "/no/such/interpreter", "there is no such program")
    script.write_text("echo no first line\n")
    expect(findings("--", str(script)), "note", "program", "a shell will run it")

    python = folder / "python3"
    python.symlink_to(sys.executable)
    newer = sys.version_info >= (3, 11)
    expect(findings("--", sys.executable, "train.py"), "ok" if newer else "note", "Python",
           f"Python {sys.version_info[0]}.{sys.version_info[1]}")

    source = folder / "plain.c"
    source.write_text("int main(void) { return 0; }\n")
    for flag, state, about, words, status in (("-static", "problem", "program", "statically linked", 1),
                                              ("-fsanitize=address", "problem", "AddressSanitizer", "verify_asan_link_order=0", 1)):
        program = folder / "compiled"
        if subprocess.run(["cc", flag, "-o", program, source], capture_output=True).returncode != 0:
            print(f"no {flag} here: not tried")
            continue
        expect(findings("--", str(program), status=status), state, about, words)
    if program.exists():
        findings("--", str(program), env={"ASAN_OPTIONS": "verify_asan_link_order=0"})
    old = bytearray(pathlib.Path("/bin/true").resolve().read_bytes()[:4096])
    old[4] = 1  # EI_CLASS: 32-bit
    program.write_bytes(old)
    expect(findings("--", str(program), status=1), "problem", "program", "32-bit")

    # What every command says of itself: the rule that doctor's own words are held to.
    for command in ([], ["run"], ["explain"], ["report"], ["state"], ["dump"], ["import"], ["export"], ["doctor"]):
        words = subprocess.run([FRAGSCOPE, *command, "--help"], capture_output=True, text=True, timeout=60)
        assert words.returncode == 0 and words.stdout, (command, words)
        house.no_bare_free(words.stdout + words.stderr, f"{command} --help")

    result = run("--bogus")
    assert result.returncode == 2 and "no option --bogus" in result.stderr, result.stderr


with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    of_the_machine()
    of_the_recorder(here)
    of_the_driver(here)
    of_limits()
    of_others()
    of_programs(here)
print("every finding as it should be")
