"""clang-tidy over the project's own sources, by the commands that they are compiled with.

Usage: tidy.py BUILD [PATH_PART …]     only files whose path contains one of the parts
Prints each finding once; the last line counts them. Exit status 1 where there are any.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDERS = ("proto", "interpose", "collector", "analysis", "tools", "tests")
# What GCC knows and clang does not, and the precompiled headers, which are GCC's.
UNKNOWN = re.compile(r"^-(Winvalid-pch|Wno-maybe-uninitialized|fno-threadsafe-statics|Wno-.*)$")


def commands(build, source, parts):
    """One compile command for each source of ours, in a form for clang."""
    kept = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if not file.is_relative_to(source) or file.is_relative_to(build.resolve()) or file.suffix != ".cpp":
            continue
        relative = str(file.relative_to(source))
        if relative.split("/")[0] not in FOLDERS or (parts and not any(part in relative for part in parts)):
            continue
        words = entry["command"].split()
        if words[0].endswith("ccache"):
            words = words[1:]
        out, skip = [], False
        for word, following in zip(words, [*words[1:], ""]):
            if skip:
                skip = False
            elif word == "-include" and "pch" in following:
                skip = True
            elif not UNKNOWN.match(word):
                out.append(word)
        kept.setdefault(relative, {"directory": entry["directory"], "file": entry["file"], "command": " ".join(out)})
    return kept


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    source = pathlib.Path(__file__).resolve().parent.parent
    kept = commands(build, source, sys.argv[2:])
    findings = {}
    with tempfile.TemporaryDirectory(prefix="fragscope-tidy-") as folder:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(list(kept.values())))

        def one(relative):
            done = subprocess.run(["clang-tidy", "-quiet", f"-p={folder}", str(source / relative)],
                                  capture_output=True, text=True, cwd=source)
            return relative, done

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for relative, done in pool.map(one, sorted(kept)):
                for line in done.stdout.splitlines():
                    found = re.match(r"(/[^:]+):(\d+):\d+: (?:error|warning): (.*)", line)
                    if found:
                        place = os.path.relpath(found.group(1), source)
                        findings.setdefault(f"{place}:{found.group(2)}: {found.group(3)}", relative)
                if done.returncode != 0 and not done.stdout.strip():
                    findings.setdefault(f"{relative}: clang-tidy ended with status {done.returncode}: "
                                        f"{done.stderr.strip()[-300:]}", relative)
    for finding in sorted(findings):
        print(finding)
    print(f"{len(kept)} files, {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())
