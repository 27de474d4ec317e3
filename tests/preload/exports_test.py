#!/usr/bin/env python3
"""The shim exports dlsym, the rows of hooks.def and frameworks.def, and what others call it by, and needs nothing but libc and ld.so."""
import re
import subprocess
import sys

shim, *definitions = sys.argv[1:]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


rows = {"dlsym", "InitializeInjectionNvtx", "InitializeInjectionNvtx2", "InitializeInjectionNvtxExtension",
        "fragscope_shim_mark", "fragscope_shim_range_begin", "fragscope_shim_range_end",
        "cuptiActivityRegisterCallbacks", "cuptiSubscribe", "cuptiSubscribe_v2"}
for path in definitions:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rows |= set(re.findall(r"^HOOK\((\w+),", text, re.MULTILINE))
    rows |= set(re.findall(r"^FRAMEWORK\w*\(\w+, (\w+)", text, re.MULTILINE))
exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", shim).splitlines()}
needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", shim)))
dynamic = output("readelf", "-dW", shim)
tls = [int(line.split()[5], 16) for line in output("readelf", "-lW", shim).splitlines() if line.split()[:1] == ["TLS"]]
undefined = [line.split()[-1] for line in output("nm", "-D", "-u", shim).splitlines()]

problems = []
if exported != rows:
    problems.append(f"exported without a row: {sorted(exported - rows)}; rows not exported: {sorted(rows - exported)}")
if not needed <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}:
    problems.append(f"needs {sorted(needed)}")
if "TEXTREL" in dynamic:
    problems.append("has text relocations")
if not tls or max(tls) > 256:
    problems.append(f"thread-local storage of {tls} bytes")
if any(name.startswith("cu") for name in undefined):
    problems.append("has undefined driver functions")
if any(name.split("@")[0] in ("malloc", "free", "calloc", "printf", "abort", "__cxa_throw") for name in undefined):
    problems.append(f"allocates, prints or aborts: {undefined}")
print("\n".join(problems) or f"{len(rows)} exports, {max(tls)} bytes of thread-local storage")
sys.exit(1 if problems else 0)
