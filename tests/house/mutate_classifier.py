"""Every condition of the classifier, inverted once: the tests of the analysis must notice.

The sources below are copied, each condition in them wrapped so that one of them can be inverted by a number in the
environment, compiled once, and linked with the test programs in place of the library's own. Then every test program runs once
for each number; a number with which all of them pass is a survivor.

What counts as a condition: that of `if`, `while`, `for` and `?:`, a comparison that is returned or that a variable is set to,
and each operand of a && or || in those.
Known survivors, each with the reason why inverting it changes nothing that can be seen, stand in EQUIVALENT.

Usage: mutate_classifier.py BUILD_ROOT [--list] [--only FILE,…] [--from N] [--jobs J]
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

SOURCES = ["counterfactuals.cpp", "counterfactual_table.cpp", "removal.cpp", "verdict.cpp", "verdict_capacity.cpp",
           "verdict_framework.cpp", "verdict_limits.cpp", "verdict_refused.cpp", "verdict_sets.cpp", "limits_at.cpp",
           "scenario_layout.cpp"]
# The quickest first: most inversions are noticed there.
TESTS = [(f"tests/unit/analysis/test_analysis_{subject}", [])
         for subject in ("table", "table_domains", "removal", "layout", "verdict_states", "verdict", "framework_verdict",
                         "refused_by_word", "hypothetical", "failure_modes", "probes", "bounds")] + [
    ("tests/unit/scenarios/test_scenarios", ["-sf=*cases_test.cpp"]), ("tests/unit/analysis/test_analysis_evidence", []),
    ("tests/unit/import/import_test", ["-sf=*messages_test.cpp,*bfc_dump_test.cpp"])]

# (file, the condition as it stands there): why no test can see the difference.
EQUIVALENT = {}

HEADER = """#pragma once
#include <cstdlib>
namespace fragscope_mutation {
inline int chosen() {
    static const int number = [] { const char* text = std::getenv("FRAGSCOPE_MUTANT"); return text ? std::atoi(text) : 0; }();
    return number;
}
template <int kNumber, typename Value> bool condition(const Value& value) {
    return static_cast<bool>(value) != (chosen() == kNumber);
}
}
"""


def masked(text):
    """The same length, with the insides of comments, strings and characters as spaces."""
    def blank(match):
        word = match.group(0)
        return word[0] + " " * (len(word) - 2) + word[-1] if word[0] in "\"'" else " " * len(word)
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\])\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", blank(m)) if m.group(0)[0] == "/" else blank(m), text, flags=re.S)


OPEN, CLOSE = "([{", ")]}"


def closing(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] in OPEN
        depth -= text[i] in CLOSE
        if depth == 0:
            return i
    raise ValueError("unbalanced")


def split_top(text, begin, end, operators):
    """Pieces of text[begin:end] between the operators at its top level, as (begin, end)."""
    pieces, start, depth, i = [], begin, 0, begin
    while i < end:
        depth += text[i] in OPEN
        depth -= text[i] in CLOSE
        found = depth == 0 and next((o for o in operators if text.startswith(o, i)), None)
        if found:
            pieces.append((start, i))
            start = i = i + len(found)
            continue
        i += 1
    return pieces + [(start, end)]


def trimmed(text, begin, end):
    while begin < end and text[begin].isspace():
        begin += 1
    while end > begin and text[end - 1].isspace():
        end -= 1
    return begin, end


def atoms(text, begin, end):
    """The condition itself and, below it, operands of && and ||."""
    begin, end = trimmed(text, begin, end)
    yield begin, end
    parts = split_top(text, begin, end, ["||"])
    if len(parts) == 1:
        parts = split_top(text, begin, end, ["&&"])
    if len(parts) > 1:
        for part in parts:
            yield from atoms(text, *part)
    elif text[begin] == "(" and closing(text, begin) == end - 1:
        inner = list(atoms(text, begin + 1, end - 1))
        yield from inner[1:]


DECLARATION = re.compile(r"^(?:const\s+)?(?:auto|[A-Za-z_][\w:<>]*)(?:\s*[*&])*\s+([A-Za-z_]\w*)\s*=\s*(?!=)")


def compares(text, begin, end):
    spaced = [" < ", " > ", " <= ", " >= ", " == ", " != ", "&&", "||"]
    return len(split_top(text, begin, end, spaced)) > 1 or text[begin] == "!"


def conditions(text):
    """(begin, end, kind) of every outermost condition in masked text."""
    for match in re.finditer(r"\b(?:if|while)\s*\(", text):
        begin = match.end()
        end = closing(text, begin - 1)
        last = split_top(text, begin, end, [";"])[-1]
        begin, end = trimmed(text, *last)
        if DECLARATION.match(text[begin:end]):
            yield begin, end, "declaration"
        elif begin != end:
            yield begin, end, "plain"
    for match in re.finditer(r"\?", text):
        # Backwards to where the condition begins.
        i, depth = match.start() - 1, 0
        while i >= 0:
            c = text[i]
            if c in CLOSE:
                depth += 1
            elif c in OPEN:
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0:
                if c in ",;?" or (c == ":" and text[i - 1] != ":" and text[i + 1] != ":"):
                    break
                if c == "=" and text[i - 1] not in "=!<>" and text[i + 1] != "=":
                    break
                if text[i - 5:i + 1] == "return" and not text[i + 1].isalnum():
                    break
            i -= 1
        yield (*trimmed(text, i + 1, match.start()), "plain")
    for match in re.finditer(r"\breturn\b", text):
        i, depth = match.end(), 0
        while depth > 0 or text[i] != ";":
            depth += text[i] in OPEN
            depth -= text[i] in CLOSE
            i += 1
        begin, end = trimmed(text, match.end(), i)
        if begin == end or len(split_top(text, begin, end, ["?"])) > 1 or text[begin] in "{[":
            continue
        if compares(text, begin, end):
            yield begin, end, "plain"
    for match in re.finditer(r"\bfor\s*\(", text):
        parts = split_top(text, match.end(), closing(text, match.end() - 1), [";"])
        if len(parts) == 3:
            yield (*trimmed(text, *parts[1]), "plain")
    # What a variable is set to.
    for match in re.finditer(r"(?<![=!<>+\-*/%&|^\[])=(?![=\]])", text):
        i, depth = match.end(), 0
        while depth > 0 or text[i] not in ";,)}":
            depth += text[i] in OPEN
            depth -= text[i] in CLOSE
            i += 1
        begin, end = trimmed(text, match.end(), i)
        if begin != end and text[begin] not in "{[" and len(split_top(text, begin, end, ["?"])) == 1 and \
                compares(text, begin, end):
            yield begin, end, "plain"


def wrap(source, first):
    """The source with numbered conditions from `first` on, and what each is."""
    text = masked(source)
    found, names = [], []
    for begin, end, kind in conditions(text):
        if kind == "declaration":
            found.append((begin, end, kind))
        else:
            found += [(b, e, "plain") for b, e in atoms(text, begin, end)]
    found = sorted(set(found), key=lambda f: (f[0], -f[1]))
    opens, closes = {}, {}
    for begin, end, kind in found:
        number = first + len(names)
        line = source.count("\n", 0, begin) + 1
        names.append((number, line, " ".join(source[begin:end].split())))
        call = f"fragscope_mutation::condition<{number}>("
        if kind == "declaration":
            name = DECLARATION.match(text[begin:end]).group(1)
            closes.setdefault(end, []).insert(0, f"; {call}{name})")
        else:
            opens.setdefault(begin, []).append(call)
            closes.setdefault(end, []).insert(0, ")")
    out = []
    for i, c in enumerate(source + "\0"):
        out += closes.get(i, [])
        out += opens.get(i, [])
        out.append(c)
    return "".join(out)[:-1], names


def commands_of(build, target):
    out = subprocess.run(["ninja", "-C", build, "-t", "commands", "-s", target], capture_output=True, text=True, check=True)
    return out.stdout.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    build = options.build.resolve()
    database = {pathlib.Path(e["file"]).name: e for e in json.loads((build / "compile_commands.json").read_text())
                if "/analysis/" in str((build / e["file"]).resolve()) and "libanalysis" in e.get("output", e["command"])}
    everything = []
    sources = [name for name in SOURCES if not options.only or name in options.only.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "mutation.h").write_text(HEADER)
        jobs = []
        for name in sources:
            entry = database[name]
            folder = (build / entry["file"]).resolve().parent
            text, names = wrap((folder / name).read_text(), len(everything) + 1)
            everything += [(name, *each) for each in names]
            (scratch / name).write_text(text)
            words = shlex.split(entry["command"])
            words = words[1:] if words[0].endswith("ccache") else words
            words[words.index("-o") + 1] = str(scratch / (name + ".o"))
            words[words.index("-c") + 1] = str(scratch / name)
            for flag in ("-MF", "-MQ"):
                if flag in words:
                    del words[words.index(flag):words.index(flag) + 2]
            words = [w for w in words if w not in ("-MD", "-Werror")]
            # Behind what is included first: a precompiled header has to be that.
            jobs.append([*words, "-w", "-include", str(scratch / "mutation.h")])
        if options.list:
            for each in everything:
                print(*each)
            return 0
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda words: subprocess.run(words, cwd=build, check=True), jobs))
            tests = []
            for target, arguments in TESTS:
                words = shlex.split(commands_of(build, target))
                words = words[1:] if words[0].endswith("ccache") else words
                program = scratch / pathlib.Path(target).name
                words[words.index("-o") + 1] = str(program)
                # Before the library: of that only what is still missing is taken.
                first = next(i for i, w in enumerate(words) if w.endswith(".o"))
                words[first:first] = [str(scratch / (name + ".o")) for name in sources]
                subprocess.run(words, cwd=build, check=True)
                tests.append([program, "--abort-after=1", *arguments])

            took = {}

            def notices(number):
                environment = dict(os.environ, FRAGSCOPE_MUTANT=str(number))
                for words in tests:
                    # An inverted condition may loop for ever: much longer than without is noticed too.
                    limit = 30 + 20 * took.get(words[0], 30)
                    begun = time.monotonic()
                    try:
                        done = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.DEVNULL, timeout=limit)
                    except subprocess.TimeoutExpired:
                        return True
                    if done.returncode != 0:
                        return True
                    took.setdefault(words[0], time.monotonic() - begun)
                return False

            if notices(0):
                print("the tests fail without any change")
                return 1
            chosen = [e for e in everything if e[1] >= options.first]
            counts = {name: [0, 0, 0] for name in sources}  # noticed, known to change nothing, survivors
            for each, noticed in zip(chosen, pool.map(lambda e: notices(e[1]), chosen)):
                name, number, line, condition = each
                known = (name, condition) in EQUIVALENT
                counts[name][0 if noticed else 1 if known else 2] += 1
                if not noticed and not known:
                    print(f"survivor {number}: {name}:{line}: {condition}", flush=True)
    for name, (noticed, known, unknown) in counts.items():
        print(f"{name}: {noticed + known + unknown} conditions inverted, {noticed} noticed, {known} known to change nothing, "
              f"{unknown} survivors")
    noticed, known, unknown = (sum(each) for each in zip(*counts.values()))
    print(f"in all: {len(chosen)} conditions inverted, {noticed} noticed, {known} known to change nothing, {unknown} survivors")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
