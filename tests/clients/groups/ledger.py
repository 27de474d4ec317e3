"""Several processes of different kinds on one device, recorded together: at every sample the audit equals what the
simulated device really held, column by column (audit_check.cpp). What no record explains is exactly the contexts' and the
code's share.

Two mixtures. Without stream-ordered pools everything can be told exactly, but for another process's call that was under way
while the driver was asked. With them a process's own columns still are, and what another process with pools holds has no
upper end: only its own recording's samples ask its pools. Of arrays the calls tell the texels, which is a lower end; of linear
blocks up to 1 MiB the pages that they lie in, an upper one."""
import json
import subprocess

from groups.rmm import built
from registry import check
from simulated import HERE

SNAPSHOTS = 120  # for so long PyTorch's programs work; the others work until they have ended
CAPACITY, CONTEXT, MODULE, RESERVE = 8 << 30, 110 << 20, 4 << 20, 64 << 20
# Columns that must have been compared where one true value stood against one of ours, not only inside an interval.
ALWAYS_EXACT = ("address_reserved", "mapped", "linear_requested", "pools_used", "handles", "pools", "graphs", "taken")


def python_client(client, seed, name, variables, *features):
    said = client.folder / f"{name}.said"
    command = (client.python("torch13"), HERE / "snapshots" / "program.py", seed, SNAPSHOTS, said, "mixture", *features)
    return [name, variables, [str(word) for word in command]]


def told(client, how, seed):
    return [f"told {how}", {}, [str(client.build / "tests" / "clients" / "mixture_client"), how, str(seed)]]


def rmm(client, resource, seed):
    program, packages = built(client, "rmm")
    client.library_path.append(packages / "rapids_logger" / "lib64")
    return [f"told RMM's {resource}", {},
            [str(word) for word in (program, resource, client.folder / f"{resource}.csv", seed, 0, 1, "mixture")]]


def record(client, processes):
    client.share_device()
    client.settings = {"CAPACITY": CAPACITY, "CONTEXT_OVERHEAD": CONTEXT, "MODULE_BYTES": MODULE,
                       "DRIVER_RESERVE": RESERVE, "DEVICES": 1}
    outcome = client.recorded("torch13", "mixture.py", json.dumps(processes),
                              options=("--sample", "every:1ms,bytes:64MiB", "--on-full", "wait:10s"))
    client.nothing_lost()
    return outcome


def audit(client, ledger):
    return subprocess.run([client.build / "tests" / "clients" / "audit_check", client.trace, ledger, str(RESERVE)],
                          capture_output=True, text=True, check=False)


def audited(client, outcome):
    ran = audit(client, client.folder / "ledger")
    client.equal(ran.returncode, 0, "the audit is not what the ledger says", ran.stderr, ran.stdout, outcome)
    numbers = json.loads(ran.stdout)
    # What no record explains is, by the ledger, a context for each process and code as large as the settings say.
    charges = {operation: [int(line[6]) for line in outcome.ledger if line[3] == operation and int(line[6]) != 0]
               for operation in ("context_create", "code_load", "limit", "listener")}
    client.equal(charges["context_create"], [CONTEXT] * numbers["processes"], "contexts")
    client.equal(set(charges["code_load"]), {MODULE}, "code")
    client.equal(charges["limit"] + charges["listener"], [], "what else contexts took")
    client.checks += sum(sum(each.values()) for each in numbers["columns"].values())
    for name in ALWAYS_EXACT:
        client.that(numbers["columns"][name]["exact"] > 0, f"{name} was never compared exactly", ran.stdout)
    return numbers


def table(numbers):
    print(f"{numbers['samples']} samples of {numbers['processes']} processes, {numbers['ledger_lines']} ledger lines")
    for name, each in numbers["columns"].items():
        print(f"  {name:<34}{each['exact']:>7} equal {each['bounded']:>7} inside of an interval {each['moving']:>7} while "
              "others were at work")


def mostly_at_rest(client, column):
    """Where the other process was at work, more than one value can be true: that must be the exception. Of sums over all
    processes it need not be, where all of them run at a time."""
    client.that(column["exact"] + column["bounded"] > column["moving"], column)


@check("torch13", "rmm")
def without_pools(client):
    outcome = record(client, [
        python_client(client, 1, "torch", {}, "graphs", "pools"),
        python_client(client, 2, "torch with its own settings",
                      {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,garbage_collection_threshold:0.6"}),
        # RMM's resources that take whole pages of the driver: its pool takes what is left below its limit.
        rmm(client, "arena", 3), rmm(client, "fixed_size", 4), told(client, "vmm", 5), told(client, "vmm", 6)])
    numbers = audited(client, outcome)
    for name in ("linear", "attributed", "other_processes", "unattributed"):
        client.that(numbers["columns"][name]["bounded"] == 0, f"{name} was not always told exactly", numbers)
        client.that(numbers["columns"][name]["exact"] > 0, f"{name} was never compared exactly", numbers)
    mostly_at_rest(client, numbers["columns"]["other_processes"])
    table(numbers)
    a_tampered_ledger_is_found(client)


def a_tampered_ledger_is_found(client):
    """Against a ledger that is another in one line, the same trace fails."""
    path = client.folder / "ledger"
    lines = path.read_text().splitlines(keepends=True)
    words = [line.split("\t") for line in lines]

    def middle(operation, charging=False):
        found = [i for i, each in enumerate(words) if each[3] == operation and (not charging or int(each[6]) != 0)]
        return found[len(found) // 2]

    def other(at, column, value):
        changed = list(words[at])
        changed[column] = value
        return lines[:at] + ["\t".join(changed)] + lines[at + 1:]

    tampered = {}
    for operation in ("linear_alloc", "linear_free", "create", "physical_free", "context_create", "code_load"):
        at = middle(operation, charging=True)
        tampered[f"{operation} left out"] = lines[:at] + lines[at + 1:]
        tampered[f"{operation} charging a page more"] = other(at, 6, str(int(words[at][6]) + (2 << 20)))
    for operation in ("reserve", "unreserve", "map", "unmap"):
        at = middle(operation)
        tampered[f"{operation} left out"] = lines[:at] + lines[at + 1:]
    # The same bytes in another process: no sum over the device shows it.
    at = middle("linear_alloc", charging=True)
    tampered["an allocation of another process"] = other(at, 1, next(each[1] for each in words if each[1] != words[at][1]))
    for what, text in tampered.items():
        spoilt = client.folder / "spoilt"
        spoilt.write_text("".join(text))
        ran = audit(client, spoilt)
        client.that(ran.returncode == 1 and json.loads(ran.stdout or "{}").get("problems", 0) > 0,
                    f"the check did not find {what}", ran.stdout, ran.stderr)


@check("torch13", "rmm")
def with_pools(client):
    outcome = record(client, [
        python_client(client, 7, "torch", {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:4"}, "pools"),
        python_client(client, 8, "torch on stream-ordered pools", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
                      "no_snapshots"),
        rmm(client, "cuda_async", 9), rmm(client, "cuda", 10), rmm(client, "pool", 11), told(client, "pools", 12),
        told(client, "vmm", 13), told(client, "arrays", 14)])
    numbers = audited(client, outcome)
    table(numbers)
    mostly_at_rest(client, numbers["columns"]["other_processes"])
    mostly_at_rest(client, numbers["columns"]["other_processes_with_pools_or_arrays"])
    others = numbers["columns"]["other_processes"]
    client.that(others["exact"] > others["bounded"], others)
