#!/usr/bin/env python3
"""Runs a demo program on a simulated device of its own and checks its exit code and that it spoke to people.

Usage: run_demo.py EXIT_CODE PROGRAM [ARGUMENT ...]
"""

import os
import subprocess
import sys


def main():
    expected, program, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    environment = dict(os.environ)
    if 'pair' in arguments:  # several processes: a device that they share, with nobody else
        environment['FRAGSCOPE_SIM_SHARED'] = f'fragscope-demo-{os.getpid()}'
    help_text = subprocess.run([program, '--help'], env=environment, capture_output=True, text=True, timeout=20)
    assert help_text.returncode == 0 and help_text.stdout, f'--help: {help_text}'
    wrong = subprocess.run([program, '--no-such-option'], env=environment, capture_output=True, text=True, timeout=20)
    assert wrong.returncode == 2 and wrong.stderr, f'wrong usage: {wrong}'
    run = subprocess.run([program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, timeout=20)
    print(run.stdout, end='')
    print(run.stderr, end='', file=sys.stderr)
    assert run.returncode == expected, f'exit code {run.returncode}, expected {expected}'
    spoken = run.stderr if expected == 3 else run.stdout
    assert spoken.strip(), 'it printed nothing'
    assert ('out of memory' in run.stdout) == (expected == 1), 'the words and the exit code disagree'


main()
