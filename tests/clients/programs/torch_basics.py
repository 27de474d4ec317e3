"""Availability, properties, streams, events, tensors and the caching allocator's own accounts, as JSON lines."""
import json

import torch


def say(**values):
    print(json.dumps(values), flush=True)


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

    tensors = [torch.empty(bytes, dtype=torch.uint8, device="cuda") for bytes in (1, 513, 1 << 20, (1 << 20) + 1, 30 << 20)]
    zeros = torch.zeros(1000, device="cuda")
    say(addresses=[t.data_ptr() for t in [*tensors, zeros]], free_total=torch.cuda.mem_get_info(0))
    say(stats=torch.cuda.memory_stats(), snapshot=segments())
    del tensors[1:]
    torch.cuda.empty_cache()
    say(stats=torch.cuda.memory_stats(), snapshot=segments(), free_total=torch.cuda.mem_get_info(0))


def segments():
    keys = ("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
            "segment_type", "segment_pool_id", "is_expandable")
    return [{**{key: segment[key] for key in keys},
             "blocks": [(block["address"], block["size"], block["requested_size"], block["state"])
                        for block in segment["blocks"]]} for segment in torch.cuda.memory._snapshot()["segments"]]


main()
