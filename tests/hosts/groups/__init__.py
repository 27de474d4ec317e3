"""One module a subject; importing them registers their checks."""
from groups import clients  # noqa: F401
