"""Out of memory beside another process: who PyTorch says has the memory, which it asks the management library for."""
import re
import subprocess
import sys

import torch

from accounts import mebibytes, refused, say


def neighbour():
    kept = mebibytes(300)
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.read()
    del kept


def main():
    other = subprocess.Popen([sys.executable, __file__, "neighbour"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"ready\n"
    kept = mebibytes(200)
    message = refused(1000)
    others = [["neighbour" if int(pid) == other.pid else pid, size]
              for pid, size in re.findall(r"Process (\d+) has ([0-9.]+ \w+) memory in use", message)]
    own = re.findall(r"this process has ([0-9.]+ \w+) memory in use", message)
    other.stdin.close()
    other.wait()
    say(others=others, own=own, exit=other.returncode, free=re.findall(r"of which ([0-9.]+ \w+) is free", message))
    del kept


if __name__ == "__main__":
    neighbour() if sys.argv[1:] == ["neighbour"] else main()
