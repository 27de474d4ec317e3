"""PYTORCH_NO_CUDA_MEMORY_CACHING=1: each tensor is an allocation of the driver's."""
import torch

from accounts import ledger_lines, mebibytes, say


def main():
    kept = [mebibytes(n) for n in (1, 30, 100)]
    torch.cuda.synchronize()
    say(addresses=[t.data_ptr() for t in kept], sizes=[t.numel() for t in kept], lines=ledger_lines())
    del kept[1]
    torch.cuda.synchronize()
    say(addresses=[t.data_ptr() for t in kept], sizes=[t.numel() for t in kept], lines=ledger_lines())
    try:
        mebibytes(20000)
    except RuntimeError as error:
        say(message=str(error))


main()
