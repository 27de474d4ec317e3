"""CUDA tensors handed between processes in both directions through queues, and forked data-loader workers."""

import torch
import torch.multiprocessing as multiprocessing

from accounts import ledger_lines, say, segments

COUNT = 1 << 20


def child(queue, back, done):
    received = queue.get()
    back.put((received.device.index, list(received.shape), received.dtype == torch.int32, torch.cuda.memory_reserved(),
              torch.cuda.mem_get_info()[0]))
    own = torch.empty(2 * COUNT, dtype=torch.int32, device="cuda")
    back.put(own)
    done.wait()
    del received
    torch.cuda.ipc_collect()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((1000,), float(index))


def main():
    multiprocessing.set_start_method("spawn")
    queue, back, done = multiprocessing.Queue(), multiprocessing.Queue(), multiprocessing.Event()
    process = multiprocessing.Process(target=child, args=(queue, back, done))
    process.start()
    mine = torch.empty(COUNT, dtype=torch.int32, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    queue.put(mine)
    index, shape, same_type, reserved, seen_free = back.get(timeout=120)
    say(index=index, shape=shape, same_type=same_type, child_reserved=reserved, child_free=seen_free, free=free)
    theirs = back.get(timeout=120)
    say(shape=list(theirs.shape), segments=segments(), address=theirs.data_ptr(), free=torch.cuda.mem_get_info()[0])
    del theirs
    torch.cuda.ipc_collect()
    done.set()
    process.join()
    say(exit=process.exitcode, free=torch.cuda.mem_get_info()[0])

    # Workers are forked from a process with a context: they must not touch it, and they do not.
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=True,
                                         multiprocessing_context="fork")
    sums = []
    for batch in loader:
        assert batch.is_pinned()
        sums.append(float(batch.to("cuda", non_blocking=True).cpu().sum()))
    say(sums=sums)


if __name__ == "__main__":
    main()
