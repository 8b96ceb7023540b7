"""Monkeypatches for bugs of fairseq, one module per kind of bug, named after the kind.

``WRAPPED`` of a module are the arguments of :func:`~fairseq_plugins.wrapping.wrap` for each function that it
wraps; a few change something else, in their ``apply()``. All may be applied any number of times and do nothing where
the bug is absent. :func:`apply` runs when fairseq is first imported where the plugin is; a spawned worker, which
imports it again by ``--user-dir``, is patched too. fairseq's functions are wrapped where they are looked up, never
copied.

``fairseq-hydra-train`` starts before it looks for a plugin; the patch for several processes on CPUs reaches it as
``fairseq-deep hydra-train``.
"""

from importlib import import_module
from pkgutil import iter_modules

from fairseq_plugins.patches import unneeded_imports
from fairseq_plugins.wrapping import wrap

MODULES = tuple(module.name for module in iter_modules(__path__))


def apply() -> None:
    """Patch every known bug of the installed fairseq; harmless when repeated."""
    unneeded_imports.apply()  # before the others import fairseq
    for name in MODULES:
        module = import_module(f"{__name__}.{name}")
        for place in getattr(module, "WRAPPED", ()):
            wrap(*place)
        if hasattr(module, "apply"):
            module.apply()
