"""Availability, properties, streams, events, tensors and the caching allocator's own accounts."""
import torch

from accounts import mebibytes, moment, say


def main():
    assert torch.cuda.is_available()
    properties = torch.cuda.get_device_properties(0)
    say(count=torch.cuda.device_count(), name=properties.name, total=properties.total_memory,
        capability=torch.cuda.get_device_capability(0), multiprocessors=properties.multi_processor_count,
        runtime=torch.version.cuda, free_total=torch.cuda.mem_get_info(0))

    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        event.record()
    event.synchronize()
    stream.synchronize()
    torch.cuda.synchronize()
    say(done=event.query() and stream.query(), priorities=torch.cuda.Stream.priority_range())

    tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (1, 513, 1 << 20, (1 << 20) + 1)]
    tensors += [mebibytes(9.5), mebibytes(30), torch.zeros(1000, device="cuda")]
    say(addresses=[t.data_ptr() for t in tensors])
    moment("seven tensors")
    del tensors[1:]
    torch.cuda.empty_cache()
    moment("one tensor left, cache emptied")
    moment("said", summary=torch.cuda.memory_summary())

    values = torch.arange(1 << 20, dtype=torch.int64)
    there = values.to("cuda:0").to("cuda:1")
    back = torch.empty_like(values, device="cuda:0")
    back.copy_(there)
    assert torch.equal(there.cpu(), values) and torch.equal(back.cpu(), values), "a copy between devices lost its bytes"
    say(peers=torch.cuda.can_device_access_peer(0, 1))
    moment("two devices", (0, 1))


main()
