#!/usr/bin/env python3
"""Every function of the driver is either hooked or left alone for a stated reason.

The functions: those declared by the toolkit's headers, and those exported by its driver stub where it has one (toolkits that
consist of header packages do not). A row of interpose/hooks*.def is a hook, a name in interpose/not_hooked.def a reason. A name
there that no toolkit at hand knows is an error for the version that the file is complete for, and a remark for others.

Usage: check_rows.py --include DIR --shim LIBRARY --compiler COMMAND… -- hooks.def… not_hooked.def
"""
import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

# Headers that declare functions of the driver, and headers of other projects that they need: only their names matter here.
HEADERS = ["cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"]
FOREIGN = ["GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h"]
# Where toolkits keep the stub, beside the folder of cuda.h, which may be a link to elsewhere.
STUBS = ["lib64/stubs/libcuda.so", "lib/stubs/libcuda.so", "targets/*/lib/stubs/libcuda.so", "lib/*/stubs/libcuda.so"]


def is_driver_function(name):
    return re.fullmatch(r"cu[A-Z]\w*", name) is not None


def rows(text):
    return re.findall(r"^HOOK\((\w+),", text, re.MULTILINE)


def reasons(text):
    """[(name, reason)] and the CUDA version that the list is complete for, as in CUDA_VERSION."""
    found, reason, after_names = [], "", False
    for line in text.splitlines():
        if line.startswith("//"):
            reason = line[2:].strip() if after_names else f"{reason} {line[2:].strip()}".strip()
            after_names = False
        elif line.strip():
            found += [(name, reason) for name in line.split()]
            after_names = True
        else:
            reason, after_names = "", False
    version = re.search(r"complete for CUDA (\d+)\.(\d+)", text)
    return found, int(version.group(1)) * 1000 + int(version.group(2)) * 10 if version else 0


def declared(include, compiler):
    with tempfile.TemporaryDirectory() as folder:
        for name in FOREIGN:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text("")
        present = [name for name in HEADERS if pathlib.Path(include, name).is_file()]
        done = subprocess.run([*compiler, "-E", "-P", "-x", "c", "-D__CUDA_API_VERSION_INTERNAL", "-I", include, "-I", folder, "-"],
                              input="".join(f"#include <{name}>\n" for name in present) + "\nint version = CUDA_VERSION;\n",
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"check_rows: the compiler does not read {', '.join(present)}:\n{done.stderr}")
    names = set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", done.stdout))
    return names, int(re.search(r"int version = (\d+);", done.stdout).group(1))


def exported(path):
    """Names of the functions in the dynamic symbol table of a 64-bit little-endian ELF file."""
    data = pathlib.Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
    table_at, = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3a)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table_at + i * entry_size) for i in range(count)]
    names = set()
    for _, kind, _, _, offset, size, link, _, _, symbol_size in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, symbol_size):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section != 0 and info & 0xf == 2:  # defined, a function
                begin = strings + name
                names.add(data[begin:data.index(b"\0", begin)].decode())
    return names


def problems(hooked, left, functions, version, complete_for):
    """(errors, remarks). `functions`: name -> where it is declared or exported."""
    errors, remarks = [], []
    for name in sorted({name for name in hooked if hooked.count(name) > 1}):
        errors.append(f"{name}: has two rows")
    names = [name for name, _ in left]
    for name in sorted({name for name in names if names.count(name) > 1}):
        errors.append(f"{name}: stands in not_hooked.def twice")
    for name in sorted(set(names) & set(hooked)):
        errors.append(f"{name}: has a row, and a reason in not_hooked.def to have none")
    for name, reason in left:
        if not reason:
            errors.append(f"{name}: stands in not_hooked.def without a reason")
    for name in sorted(set(functions) - set(hooked) - set(names)):
        errors.append(f"{name}: {functions[name]}, and has neither a row in hooks*.def nor a reason in not_hooked.def")
    undeclared = {name for name, reason in left if "declared in no header" in reason}
    for name in sorted((set(names) - undeclared | set(hooked)) - set(functions)):
        stale = f"{name}: is hooked or classified, and this toolkit does not have it"
        (errors if version == complete_for else remarks).append(stale)
    return errors, remarks


def self_test():
    """The comparison itself, on made-up toolkits."""
    left, complete_for = reasons("// About the list: complete for CUDA 13.0.\n\n// Not of\n// memory.\ncuOld cuOther\ncuThird\n\n"
                                 "// Exported, and declared in no header.\ncuHidden\n")
    assert complete_for == 13000, complete_for
    assert left == [("cuOld", "Not of memory."), ("cuOther", "Not of memory."), ("cuThird", "Not of memory."),
                    ("cuHidden", "Exported, and declared in no header.")], left
    hooked = rows("// HOOK(cuNot, …)\nHOOK(cuMemAlloc_v2, (CUdeviceptr* out), (out), kAfter, called())\nASK(cuOther)\n")
    assert hooked == ["cuMemAlloc_v2"], hooked
    known = {name: "declared" for name in ("cuMemAlloc_v2", "cuOld", "cuOther", "cuThird")}
    assert problems(hooked, left, known, 13000, 13000) == ([], [])
    # What a newer toolkit adds is an error until somebody looks at it, whichever way it is known.
    errors, _ = problems(hooked, left, {**known, "cuMemTeleport": "exported"}, 14000, 13000)
    assert len(errors) == 1 and errors[0].startswith("cuMemTeleport: exported"), errors
    # What a toolkit lacks: here a mistake in our list, there a function that was dropped.
    fewer = {name: where for name, where in known.items() if name != "cuOld"}
    assert len(problems(hooked, left, fewer, 13000, 13000)[0]) == 1
    assert [len(each) for each in problems(hooked, left, fewer, 14000, 13000)] == [0, 1]
    assert len(problems(hooked * 2, left, known, 13000, 13000)[0]) == 1
    assert len(problems(hooked, left + left[:1], known, 13000, 13000)[0]) == 1
    assert len(problems(hooked + ["cuOld"], left, known, 13000, 13000)[0]) == 1
    assert len(problems(hooked, [("cuOld", "")] + left[1:], known, 13000, 13000)[0]) == 1
    assert is_driver_function("cuMemAlloc") and not is_driver_function("cudbgApiAttach") and not is_driver_function("curl")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--compiler", nargs="+", required=True)
    parser.add_argument("definitions", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    self_test()

    hooked, left, complete_for = [], [], 0
    for path in options.definitions:
        text = path.read_text(encoding="utf-8")
        if path.name == "not_hooked.def":
            left, complete_for = reasons(text)
        else:
            hooked += rows(text)
    names, version = declared(options.include, options.compiler)
    functions = {name: "is declared in the headers" for name in names}
    beside = [pathlib.Path(options.include).parent, pathlib.Path(options.include).resolve().parent]
    stub = next((path for folder in beside for pattern in STUBS for path in sorted(folder.glob(pattern))), None)
    if stub is not None:
        functions.update({name: f"is exported by {stub}" for name in exported(stub)
                          if is_driver_function(name) and name not in functions})
    errors, remarks = problems(hooked, left, functions, version, complete_for)
    # The reader of exports is held against what the build has just linked.
    own = {name for name in exported(options.shim) if is_driver_function(name)}
    if own != set(hooked):
        errors.append(f"the shim exports other functions than its rows: {sorted(own ^ set(hooked))}")
    for line in remarks + errors:
        print(line)
    print(f"CUDA {version // 1000}.{version % 1000 // 10}: {len(functions)} functions, {len(hooked)} rows, {len(left)} left alone; "
          f"{'compared with ' + str(stub) if stub else 'no driver stub beside these headers, only they were compared'}")
    sys.exit(1 if errors else 0)


main()
