"""Starts several processes that share one device, and begins and ends their work together: all have their contexts before
one works, and live until the last one is done.

Usage: mixture.py JSON      a list of [name, variables of its environment, command]
A process says "ready", works once it gets a line on its standard input, says "done" and lives until its standard input
ends. Those whose names begin with "told" go on until they get a second line, which comes when all others are done.
Exit status: 0, or 1 if one of them failed.
"""
import json
import os
import subprocess
import sys


def main():
    ends_itself, told, failed = [], [], []
    for name, variables, command in json.loads(sys.argv[1]):
        process = subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        (told if name.startswith("told") else ends_itself).append((name, process))

    def await_word(word, name, process):
        for line in process.stdout:
            if line.strip() == word:
                return
        failed.append(f"{name} ended with {process.wait()} and never said {word!r}")

    def line_to(process):
        try:
            process.stdin.write("\n")
            process.stdin.flush()
        except BrokenPipeError:  # it ended, which is noticed elsewhere
            pass

    for name, process in ends_itself + told:
        await_word("ready", name, process)
    for name, process in ends_itself + told:
        line_to(process)
    for name, process in ends_itself:
        await_word("done", name, process)
    for name, process in told:
        line_to(process)
        await_word("done", name, process)
    for name, process in ends_itself + told:
        process.stdin.close()
        if process.wait() != 0:
            failed.append(f"{name} ended with {process.returncode}")
    print("\n".join(failed))
    sys.exit(1 if failed else 0)


main()
