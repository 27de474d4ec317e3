"""The register of the suite's checks: @check on a function of a Client. Its group is the module that it is written in."""

CHECKS = {}


class Check:
    def __init__(self, run, needs):
        self.group = run.__module__.rpartition(".")[2]
        self.name = f"{self.group}.{run.__name__}"
        self.run, self.needs = run, needs


def check(*needs):
    """`needs`: the environments of requirements/ that it runs in; one that is missing fails the check."""
    def register(run):
        one = Check(run, needs)
        assert one.name not in CHECKS, one.name
        CHECKS[one.name] = one
        return run

    return register
