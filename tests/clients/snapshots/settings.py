"""The settings that the random programs run with: the allocator's, the simulated GPU's, and what the program does."""
import dataclasses

# Every second question whether an event has happened is answered with "not yet": so blocks stay pending for a while, which
# no simulated stream would make them do.
EVENTS = {"FAULT_cuEventQuery": "600@every:2"}
# A driver that now and then has no memory: retries that succeed.
REFUSALS = {"FAULT_cuMemAlloc_v2": "2@every:41", "FAULT_cuMemCreate": "2@every:97"}


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    features: str = ""
    allocator: str = ""  # PYTORCH_CUDA_ALLOC_CONF
    simulated: dict = dataclasses.field(default_factory=dict)
    environments: tuple = ("torch13",)


BOTH = ("torch12", "torch13")
ALL = [
    Setting("default", "devices nvtx", "", EVENTS, BOTH),
    Setting("small_device", "nvtx", "", EVENTS | {"CAPACITY": "1GiB"}),
    Setting("refusals", "devices", "", EVENTS | REFUSALS),
    Setting("split", "devices threads", "max_split_size_mb:64", EVENTS | {"CAPACITY": "3GiB"} | REFUSALS),
    Setting("rounding", "devices", "roundup_power2_divisions:4", EVENTS),
    Setting("rounding_by_size", "", "roundup_power2_divisions:[64:8,256:4,1024:2,>:1]", EVENTS),
    Setting("collection", "fraction threads", "garbage_collection_threshold:0.5", EVENTS | {"CAPACITY": "2GiB"}),
    Setting("fraction", "fraction devices pools", "", EVENTS | {"CAPACITY": "3GiB"}, BOTH),
    Setting("large_segments", "devices", "large_segment_size_mb:48", EVENTS),
    Setting("pools", "pools devices", "", EVENTS, BOTH),
    Setting("graphs", "graphs devices", "", EVENTS),
    Setting("graphs_across_streams", "graphs side pools devices", "", EVENTS),
    Setting("threads", "threads devices pools graphs", "", EVENTS),
    Setting("expandable", "devices nvtx", "expandable_segments:True", EVENTS),
    Setting("expandable_small_device", "threads pools", "expandable_segments:True", EVENTS | {"CAPACITY": "1GiB"} | REFUSALS,
            BOTH),
    Setting("expandable_graphs", "graphs pools devices", "expandable_segments:True", EVENTS),
    Setting("mixed", "mixed settings pools devices", "", EVENTS | {"CAPACITY": "2GiB"}),
]


def environment(setting):
    """Variables for the program."""
    return {"PYTORCH_CUDA_ALLOC_CONF": setting.allocator} if setting.allocator else {}


def simulated(setting):
    """Settings of the simulated GPU, without their prefix."""
    return {"CAPACITY": "4GiB", "CONTEXT_OVERHEAD": "100MiB"} | setting.simulated
