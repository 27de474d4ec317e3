"""Captures with private pools, shared pools, record_stream inside of a capture, memory pools, and their ends."""
import torch

from accounts import mebibytes, moment, say


def captured(**more):
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph, **more):
        inner = mebibytes(4)
        inner.record_stream(torch.cuda.Stream())
        kept.append(inner + 1)
        kept.append(mebibytes(0.25))
        del inner
    return graph, kept


def main():
    outside = mebibytes(3)
    first, first_kept = captured()
    first.replay()
    moment("a graph with a pool of its own", pool=first.pool())
    second, second_kept = captured(pool=first.pool())
    second.replay()
    moment("a second graph in that pool", pool=second.pool())
    handle = torch.cuda.graph_pool_handle()
    third, third_kept = captured(pool=handle, capture_error_mode="thread_local")
    moment("a third with a handle", pool=handle)
    del first_kept, second_kept, third_kept
    for graph in (first, second, third):
        graph.reset()
    torch.cuda.empty_cache()
    moment("graphs gone")

    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [mebibytes(n) for n in (0.5, 11)]
    say(pool=pool.id, segments=[[s["address"], s["total_size"]] for s in pool.snapshot()])
    moment("a memory pool", pool=pool.id)
    del inside, pool
    torch.cuda.empty_cache()
    moment("pool gone")
    del outside


main()
