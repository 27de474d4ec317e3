"""PyTorch's own profiler beside `fragscope run --cupti`: it gets CUPTI, whatever the recorder was asked for."""
from registry import check
from simulated import said


@check("torch13")
def takes_cupti(client):
    """The stand-in has one subscriber and one pair of callbacks in a process, as the real library has. What the profiler
    says is the same without the recorder, with --cupti=on, which ends when the profiler subscribes, and with auto, which
    does not begin in a process with Kineto."""
    cupti = f"{client.preload('torch13')} {client.simulated / 'cupti' / 'libcupti.so.13'}"
    command = client.command("torch13", "torch_cupti.py")
    plain = client.plain(*command, preload=cupti)
    client.equal(plain.status, 0, "without the recorder", plain)
    profiled = said(plain)
    client.that(profiled and profiled[0]["profiled"]["aten::empty"] == 2, plain)
    for mode, state, who in (("on", "ended", "cuptiSubscribe"), ("auto", "others_use", "libtorch")):
        traced = client.traced(*command, options=(f"--cupti={mode}",), preload=cupti)
        client.equal(traced.status, 0, f"--cupti={mode}", traced)
        client.equal(said(traced), profiled, f"what the profiler says, --cupti={mode}", traced)
        activity, = client.read("report", status=(0, 3))[0]["activities"]
        client.equal(activity["state"], state, activity)
        client.that(who in activity["in_words"], activity)
        if mode == "on":
            client.that(int(activity["matched"]) > 0 and int(activity["only_cupti"]) == 0, activity)
