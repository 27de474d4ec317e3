"""One module a subject; importing them registers their checks."""
from groups import (arguments, capture, clients, collector, crowds, drivers, ends, families, memory,  # noqa: F401
                    preloads, unseen)
