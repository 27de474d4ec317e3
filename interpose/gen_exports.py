#!/usr/bin/env python3
"""Writes the linker's version script: dlsym, the rows of hooks.def and frameworks.def, and what others call the shim by are
exported, nothing else.

The script is anonymous: under a named version node the dynamic linker would not bind programs' dlsym to ours.
"""
import re
import sys

# dlsym; what NVTX calls an injection library by (nvtx.cpp); what fragscope.h calls (marks.cpp); by which another client
# of CUPTI is seen to come (activity_doors.cpp).
OTHERS = [
    "dlsym",
    "InitializeInjectionNvtx",
    "InitializeInjectionNvtx2",
    "InitializeInjectionNvtxExtension",
    "fragscope_shim_mark",
    "fragscope_shim_range_begin",
    "fragscope_shim_range_end",
    "cuptiActivityRegisterCallbacks",
    "cuptiSubscribe",
    "cuptiSubscribe_v2",
]


def rows(*paths):
    names = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        names += re.findall(r"^HOOK\((\w+),", text, re.MULTILINE)
        names += re.findall(r"^FRAMEWORK\w*\(\w+, (\w+)", text, re.MULTILINE)
    return names


if __name__ == "__main__":
    *sources, output = sys.argv[1:]
    names = rows(*sources)
    if len(names) != len(set(names)):
        sys.exit("gen_exports: a function has two rows")
    with open(output, "w", encoding="utf-8") as file:
        file.write("{ global:\n" + "".join(f"    {name};\n" for name in [*OTHERS, *names]) + "  local: *; };\n")
