"""`fragscope explain --scenario` from the outside: words, JSON, standard input, exit statuses, and lines that cannot be read.

Usage: scenarios.py BUILD_ROOT CASES_FOLDER
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def explain(build, *arguments, text=None):
    return subprocess.run([build / "tools" / "fragscope", "explain", *arguments], input=text, capture_output=True, text=True,
                          timeout=120)


def main(build, cases):
    reported = cases / "reported.jsonl"
    expected = [json.loads(line) for line in reported.read_text().splitlines()]

    done = explain(build, "--scenario", reported, "--json", "--check")
    assert done.returncode == 0, (done.returncode, done.stderr)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["id"] for a in answers] == [e["id"] for e in expected]
    for answer, case in zip(answers, expected):
        assert answer["verdict"]["cause"] == case["expected"]["cause"], answer["id"]
        assert answer["verdict"]["constraint"] == case["expected"].get("constraint", ""), answer["id"]
        assert any(row["id"] == "as_it_was" for row in answer["counterfactuals"]), answer["id"]
        assert any(row["definition"] == "capacity" for row in answer["audit"]), answer["id"]
        assert answer["scenario"]["line"] == str(expected.index(case) + 1)

    # The same through a pipe, in words; the last line counts.
    done = explain(build, "--scenario", "-", "--brief", text=reported.read_text())
    assert done.returncode == 0, done.stderr
    assert "Scenario C06" in done.stdout and "allocator-cache fragmentation" in done.stdout
    assert done.stdout.rstrip().endswith("28 scenarios explained, 2 of them undetermined."), done.stdout[-200:]

    # The example that SCENARIOS.md tells to copy.
    guide = (pathlib.Path(__file__).resolve().parents[2] / "analysis" / "SCENARIOS.md").read_text()
    example = re.search(r'^    (\{"id": .*\})$', guide, re.M).group(1)
    done = explain(build, "--scenario", "-", "--json", text=example + "\n")
    assert json.loads(done.stdout)["verdict"]["cause"] == "capacity_exhaustion", done.stdout

    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "some.jsonl"
        lines = reported.read_text().splitlines()
        # One line is damaged: a sentence with its place, the others are explained.
        file.write_text("\n".join([lines[0], lines[1].replace('"capacity"', '"capacty"'), lines[2]]) + "\n")
        done = explain(build, "--scenario", file, "--json")
        assert done.returncode == 1, done.returncode
        assert len(done.stdout.splitlines()) == 2
        assert f"fragscope: {file}, line 2, column" in done.stderr and "events[0].capacity" in done.stderr, done.stderr
        # A member that the format does not have: the answer is one without it, and says so.
        file.write_text(lines[0].replace('"op": "device"', '"op": "device", "colour": 1') + "\n")
        done = explain(build, "--scenario", file, "--json")
        assert done.returncode == 3, done.returncode
        assert "colour" in json.loads(done.stdout)["health"]["warnings"][0], done.stdout
        # Another conclusion than a line expects matters only where that was asked for.
        file.write_text(lines[0].replace("capacity_exhaustion", "internal_fragmentation") + "\n")
        assert explain(build, "--scenario", file).returncode == 0
        done = explain(build, "--scenario", file, "--check")
        assert done.returncode == 1 and "expected internal_fragmentation, concluded capacity_exhaustion" in done.stderr
        file.write_text("\n\n")
        done = explain(build, "--scenario", file)
        assert done.returncode == 1 and "holds no scenario" in done.stderr, done.stderr
        done = explain(build, "--scenario", pathlib.Path(scratch) / "none")
        assert done.returncode == 1 and "cannot open" in done.stderr, done.stderr
        for wrong in (["--scenario", file, file], ["--scenario", file, "--all"], ["--scenario", file, "--failure", "1"],
                      ["--check", file], []):
            done = explain(build, *wrong)
            assert done.returncode == 2 and done.stderr.count("\n") == 1, (wrong, done.returncode, done.stderr)
    assert "SCENARIOS.md" in explain(build, "--help").stdout


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
