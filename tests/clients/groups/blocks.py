"""The shim's records of PyTorch's blocks against what PyTorch's allocator itself noted of the same run."""
import json

from registry import check, check_in_each


def told(events, device):
    """The allocator's actions in order, as its own history has them, out of the records: (action, address, bytes, stream);
    the stream only of "alloc"."""
    actions, waiting, blocks_of, left, streams = [], {}, {}, {}, {}
    for event in events:
        kind = event["kind"]
        if kind == "block_waits":
            waiting.setdefault(event["thread"], []).append(event["object"])
            continue
        if kind == "block_wait_over":
            block = blocks_of.pop(event["object"], None)
            if block is not None:
                left[block] -= 1
                if not left[block]:
                    del left[block]
                    actions.append(("free_completed", *block, None))
            continue
        if not kind.startswith("block_") or event["device"] != device:
            continue
        block = (int(event["address"], 16), event["bytes"])
        if kind == "block_stream":
            streams[event["thread"]] = int(event["object"], 16)
        elif kind == "block_acquired":
            actions.append(("alloc", *block, streams.get(event["thread"])))
        elif kind == "block_refused":
            actions.append(("oom", None, event["bytes"], None))
        elif kind == "block_released":
            actions.append(("free_requested", *block, None))
            events_of = waiting.pop(event["thread"], [])
            if events_of:
                left[block] = len(events_of)
                blocks_of.update((each, block) for each in events_of)
            else:
                actions.append(("free_completed", *block, None))
    assert not waiting, waiting
    return actions


def compare(client, *words, torch="torch13", variables=None, most_more=lambda size: (1 << 20) + 511):
    """`most_more`: how many bytes a block may have more than was asked for. The history has the bytes asked for, the report
    those of the block: by default up to 511 more, and in the pool of large blocks up to 1 MiB that is not worth a block of
    its own (kMinBlockSize, kSmallSize of PyTorch's c10/cuda/CUDACachingAllocator.cpp)."""
    out = client.folder / "history.json"
    client.variables = variables or {}
    client.recorded(torch, "torch_blocks.py", *words, out)
    events = client.read("dump")
    history = json.loads(out.read_text(encoding="utf-8"))
    noted = [entry for entry in history[0]
             if entry["action"] in ("alloc", "free_requested", "free_completed", "oom")]
    ours = told(events, 0)
    client.equal([(action, address) for action, address, _, _ in ours],
                 [(entry["action"], None if entry["action"] == "oom" else entry["addr"]) for entry in noted])
    client.equal([stream for action, _, _, stream in ours if action == "alloc"],
                 [entry["stream"] for entry in noted if entry["action"] == "alloc"])
    for (action, address, size, _), entry in zip(ours, noted):
        if action in ("alloc", "free_requested"):
            client.that(0 <= size - entry["size"] <= most_more(entry["size"]), f"{action} {address:#x} {size} {entry}")
        elif action == "oom":
            client.equal(size, entry["size"], "bytes of an out-of-memory", entry)
    client.equal({action for action, _, _, _ in ours}, {"alloc", "free_requested", "free_completed", "oom"})
    client.that(any(event["kind"] == "block_waits" for event in events), "no block was used on another stream")
    client.nothing_lost()


@check_in_each("torch12", "torch13")
def one_thread(client, torch):
    compare(client, 1, 1500, 1, 4, torch=torch)


@check("torch13")
def several_threads(client):
    compare(client, 2, 400, 4, 5)


@check("torch13")
def settings(client):
    # Sizes are rounded up to a quarter of a power of two.
    compare(client, 3, 600, 2, 3, most_more=lambda size: size // 4 + (1 << 20) + 511, variables={
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32,roundup_power2_divisions:4,garbage_collection_threshold:0.6"})
