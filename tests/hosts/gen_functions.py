#!/usr/bin/env python3
"""Writes FUNCTION(symbol, (parameters), (arguments)) for every function of the driver, from the simulated driver's api.h."""
import re
import sys

source, output = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    functions = re.findall(r"^CUresult (cu[A-Z]\w*)\((.*)\);$", file.read(), re.MULTILINE)
if len(functions) < 500:
    sys.exit(f"gen_functions.py: {source}: only {len(functions)} functions found")
with open(output, "w", encoding="utf-8") as file:
    for name, parameters in functions:
        named = [] if parameters in ("", "void") else [re.search(r"(\w+)$", p.strip()).group(1) for p in parameters.split(",")]
        file.write(f"FUNCTION({name}, ({parameters}), ({', '.join(named)}))\n")
