#!/usr/bin/env python3
"""Writes the linker's version script: dlsym and the rows of hooks.def are exported, nothing else.

The script is anonymous: under a named version node the dynamic linker would not bind programs' dlsym to ours.
"""
import re
import sys


def rows(*paths):
    names = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            names += re.findall(r"^HOOK\((\w+),", file.read(), re.MULTILINE)
    return names


if __name__ == "__main__":
    *sources, output = sys.argv[1:]
    names = rows(*sources)
    if len(names) != len(set(names)):
        sys.exit("gen_exports: a function has two rows")
    with open(output, "w", encoding="utf-8") as file:
        file.write("{ global:\n" + "".join(f"    {name};\n" for name in ["dlsym", *names]) + "  local: *; };\n")
