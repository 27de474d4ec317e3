"""The groups of the suite, and the register of its checks: @check(group, what was tried) on a function of a Bench."""

GROUPS = {
    1: "ways to reach the driver",
    2: "every name, version and flag by the resolver",
    3: "drivers older and newer than the shim",
    4: "absent out-parameters, and errors everywhere",
    5: "frees of what is not ours to free",
    6: "virtual memory in every order",
    7: "stream capture",
    8: "several devices",
    9: "fork and its relatives",
    10: "before the beginning and after the end",
    11: "many children, strange children, little shared memory",
    12: "other preloaded libraries",
    13: "collector absent, slow, killed, restarted",
    14: "nothing the program can see changes",
    15: "completeness of the rows",
    16: "launchers, threads, exec and sessions",
}

CHECKS = {}


class Check:
    def __init__(self, group, tried, run):
        self.name, self.group, self.tried, self.run = run.__name__, group, tried, run


def check(group, tried):
    def register(run):
        assert run.__name__ not in CHECKS, run.__name__
        assert group in GROUPS, group
        CHECKS[run.__name__] = Check(group, tried, run)
        return run

    return register
