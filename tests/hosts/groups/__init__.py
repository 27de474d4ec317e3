"""One module a subject; importing them registers their checks."""
from groups import arguments, capture, clients, drivers, ends, families, unseen  # noqa: F401
