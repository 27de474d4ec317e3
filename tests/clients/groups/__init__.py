"""One module a group of checks; importing this package registers all of them."""
import importlib
import pkgutil

NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__))
for name in NAMES:
    importlib.import_module(f"{__name__}.{name}")
