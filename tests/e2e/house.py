"""What no output of Fragscope may say: "free", where nothing says what is free. The same rule as tests/unit/words/unqualified.h."""
import json
import re

# A word of its own: not in cuMemFree, freed, free_sum. Said properly: eligible free memory, device-free memory.
BARE = re.compile(r"(?<![A-Za-z0-9_])(?<![Dd]evice-)(?<![Ee]ligible )(?<![Pp]ool-)(?<![Aa]llocator-)[Ff]ree(?![A-Za-z0-9_])")

# What a traced program is called, says of itself and has in its stacks is not Fragscope's word.
PROGRAMS_OWN = {"command_line", "executable", "frames", "thread_name", "trace", "imported_from"}


def no_bare_free(text, where):
    found = BARE.search(text)
    assert not found, f"{where} says a bare 'free': …{text[max(0, found.start() - 60):found.end() + 30]}…"


def no_bare_free_in_json(line, where):
    def walk(value, path):
        if isinstance(value, dict):
            for key, below in value.items():
                no_bare_free(key, f"{where} {path}")
                if key not in PROGRAMS_OWN:
                    walk(below, f"{path}.{key}")
        elif isinstance(value, list):
            for below in value:
                walk(below, path)
        elif isinstance(value, str):
            no_bare_free(value, f"{where} {path}")

    walk(json.loads(line), "")
