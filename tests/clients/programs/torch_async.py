"""The backend that allocates by cudaMallocAsync: PyTorch's few accounts of it, its refusals, a graph."""
import torch

from accounts import counted, ledger_lines, mebibytes, refused, say


def moment(name, **more):
    torch.cuda.synchronize()
    say(moment=name, stats=counted(0), reserved=torch.cuda.memory_reserved(), allocated=torch.cuda.memory_allocated(),
        free=torch.cuda.mem_get_info()[0], lines=ledger_lines(), **more)


def main():
    say(backend=torch.cuda.get_allocator_backend())
    kept = [mebibytes(n) for n in (1, 30, 100)]
    moment("three tensors")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        other = mebibytes(5)
    kept[1].record_stream(stream)
    del kept[1]
    moment("one freed that another stream used")
    del other
    torch.cuda.empty_cache()
    moment("cache emptied")
    moment("out of memory", message=refused(20000))
    torch.cuda.set_per_process_memory_fraction(0.1)
    moment("fraction", message=refused(1000))
    torch.cuda.set_per_process_memory_fraction(1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inner = mebibytes(4)
        result = inner + 1
        del inner
    graph.replay()
    graph.replay()
    moment("a graph")
    del result, kept
    graph.reset()
    moment("all freed")


main()
