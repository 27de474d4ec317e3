"""The register of the suite's checks: @check on a function of a Client. Its group is the module that it is written in."""

CHECKS = {}


class Check:
    def __init__(self, run, needs, *arguments):
        self.group = run.__module__.rpartition(".")[2]
        self.name = ".".join((self.group, run.__name__, *arguments))
        self.needs = needs
        self.run = lambda client: run(client, *arguments)
        assert self.name not in CHECKS, self.name
        CHECKS[self.name] = self


def check(*needs):
    """`needs`: the environments of requirements/ that it runs in; one that is missing fails the check."""
    def register(run):
        Check(run, needs)
        return run

    return register


def check_in_each(*environments):
    """A check for each of these environments, called with the name of its own and named after it."""
    def register(run):
        for environment in environments:
            Check(run, (environment,), environment)
        return run

    return register
