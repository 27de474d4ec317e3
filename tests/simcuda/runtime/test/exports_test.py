#!/usr/bin/env python3
"""The shared library exports every name it has to, under the symbol version that programs ask for, and nothing else;
its error names are those of the header. Where NVIDIA's library is at hand, its names are compared as well.

Usage: exports_test.py LIBRARY NAMES INCLUDE NVIDIA_LIBRARY   (the last one may not exist; its file name is the symbol
version)
"""

import ctypes
import pathlib
import re
import subprocess
import sys


def exports(library):
    """name -> symbol version of every function that a library exports."""
    lines = subprocess.run(['nm', '-D', '--defined-only', str(library)], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    result = {}
    for line in lines:
        kind, symbol = line.split()[-2:]
        if kind in 'TtWw':
            name, _, version = symbol.partition('@@')
            result[name] = version
    return result


def main():
    library, names, include, nvidia = (pathlib.Path(argument) for argument in sys.argv[1:])
    wanted = set(names.read_text().split())
    found = exports(library)
    assert len(wanted) > 400, f'only {len(wanted)} names: the header was not understood'
    assert wanted == set(found), f'missing {sorted(wanted - set(found))}, unexpected {sorted(set(found) - wanted)}'
    assert set(found.values()) == {nvidia.name}, f'symbol versions {set(found.values())}'

    header = re.sub(r'/\*.*?\*/', '', (include / 'driver_types.h').read_text(), flags=re.S)
    errors = re.findall(r'\b(cudaSuccess|cudaError[A-Z]\w*)\s*=\s*(\d+)', header)
    assert len(errors) > 100, f'only {len(errors)} errors: the header was not understood'
    runtime = ctypes.CDLL(str(library))
    for function in (runtime.cudaGetErrorName, runtime.cudaGetErrorString):
        function.restype = ctypes.c_char_p
    for name, number in errors:
        assert runtime.cudaGetErrorName(int(number)).decode() == name, name
        assert runtime.cudaGetErrorString(int(number)).decode() != 'unrecognized error code', name

    compared = ''
    if nvidia.is_file():
        theirs = set(exports(nvidia).items())
        assert theirs <= set(found.items()), f'NVIDIA\'s library also has {sorted(theirs - set(found.items()))}'
        compared = f', all {len(theirs)} of NVIDIA\'s among them'
    print(f'{len(found)} functions{compared}; {len(errors)} errors')


main()
