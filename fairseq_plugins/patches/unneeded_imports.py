"""Importing fairseq takes a second longer for scikit-learn and SciPy, which one task and one criterion use.

While fairseq is imported, modules stand in for them whose functions import the real one when they are called. Not where
fairseq has been imported before, as in stock ``fairseq-train``. Not reported upstream so far.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

MODULES = ("sklearn.metrics", "scipy.stats")
"""Names that fairseq imports of the two; it only calls functions of them."""


class StandIn(ModuleType):
    """A module whose every name is a function that imports the real module and calls its function of this name."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return that function; names that Python itself looks for in modules are absent."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: getattr(import_module(self.__name__), name)(*args, **kwargs)


def apply() -> None:
    """Import fairseq, if that has not been done, without modules that few of its users need."""
    if "fairseq" in sys.modules:
        return
    # Skip a package that is imported already or missing: without it fairseq cannot be imported.
    wanted = [name for name in MODULES if (top := name.partition(".")[0]) not in sys.modules and find_spec(top)]
    stand_ins: dict[str, ModuleType] = {name: StandIn(name) for name in wanted}
    if metrics := stand_ins.get("sklearn.metrics"):
        stand_ins["sklearn"] = ModuleType("sklearn")
        vars(stand_ins["sklearn"])["metrics"] = metrics
    sys.modules.update(stand_ins)
    try:
        import_module("fairseq")
    finally:
        for name in stand_ins:
            del sys.modules[name]
