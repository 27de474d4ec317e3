"""The direction of dependencies, checked on the source: a folder includes only what the house allows it to.

The build's libraries already refuse a wrong link; this refuses a wrong #include, which a shared include root would let pass.
Usage: check_layers.py SOURCE_ROOT
"""
import pathlib
import re
import sys

# Folder -> folders whose headers it may include with quotes. A more exact entry ("proto/wire.h") names one header.
ALLOWED = {
    "proto": {"proto"},
    "interpose": {"interpose", "proto/wire.h", "proto/ring.h"},
    "collector": {"collector", "proto"},
    "analysis": {"analysis", "proto"},
    "tools": {"tools", "collector", "analysis", "proto"},
    "tests": {"tests", "tools", "collector", "analysis", "interpose", "proto"},
}
TOP = {"meson.build", "meson_options.txt", "LICENSE", "README.md", "interpose", "collector", "proto", "analysis", "tests", "tools"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# Standard headers that would put an operating-system call into the agreements, or a heavy library into the guest.
FORBIDDEN = {
    "proto/wire.h": re.compile(r"#\s*include\s+<(?!atomic>|cstdint>|cstddef>)"),
    "proto/ring.h": re.compile(r"#\s*include\s+<(?!atomic>|cstdint>|cstddef>)"),
    "interpose/": re.compile(r"#\s*include\s+<(boost|google|fmt|CLI|iostream|string>|vector>|map>|thread>|mutex>|functional>)"),
}


def problems(root: pathlib.Path):
    for entry in root.iterdir():
        if not entry.name.startswith(".") and entry.name not in TOP and not entry.name.startswith("build"):
            yield f"{entry.name}: does not belong at the top"
    for folder, allowed in ALLOWED.items():
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in {".h", ".cpp", ".c", ".cu", ".def"}:
                continue
            name = str(file.relative_to(root))
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for prefix, pattern in FORBIDDEN.items():
                    if name.startswith(prefix) and pattern.search(line):
                        yield f"{name}:{number}: {line.strip()}: not allowed here"
                found = INCLUDE.match(line)
                if not found:
                    continue
                target = found.group(1)
                if (file.parent / target).is_file() or "/" not in target:
                    continue  # beside the file, or generated beside it
                if target not in allowed and target.split("/")[0] not in allowed:
                    yield f"{name}:{number}: {folder}/ may not include {target}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = list(problems(root))
    print("\n".join(found) if found else "every include goes the way the data goes")
    sys.exit(1 if found else 0)


main()
