"""Deep Transformers for fairseq: a user directory, to import or to pass to ``--user-dir``.

In a process that imports this package, fairseq is patched and has the methods: at once if fairseq is there already, as
with ``--user-dir``, else as soon as anything imports it. Until then nothing here takes the seconds that torch and
fairseq take: ``from fairseq_plugins import Translator`` needs neither if the translator is an export for CTranslate2.
"""

# Before all else: Ctrl-C ends a command quietly from here on.
import fairseq_plugins.process  # noqa: F401

# isort: split
import gc
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from fairseq_plugins.process import log_as_fairseq_does

TOOLS = f"{__name__}.tools"
"""The programs around the plugin, which may be absent."""
NEED_FAIRSEQ = ("checkpoints.differences", "core", "methods", "patches", "search", "training", "tools.observe")
"""Parts of this package that :func:`register` imports."""
WITHOUT_FAIRSEQ = {*(f"{TOOLS}.observe{part}" for part in ("", ".recorder", ".recorder.entries")), f"{__name__}.search"}
"""Modules in them that need neither fairseq nor torch."""

_begun = False
"""Whether :func:`register` was called."""


def register() -> None:
    """Patch fairseq, then register every method with it; a second call does nothing.

    Order matters: fairseq is patched before anything else looks at it.
    """
    global _begun
    if _begun:
        return
    _begun = True
    log_as_fairseq_does()
    collecting = gc.isenabled()
    gc.disable()  # an import makes little garbage, and looking for it takes a seventh of the time
    try:
        # Imported here: this imports fairseq and torch, which takes seconds.
        from fairseq_plugins import patches

        patches.apply()

        from fairseq_plugins import methods, training  # noqa: F401  (these register what they hold)
        from fairseq_plugins.core.families import register_architectures, require_architecture
        from fairseq_plugins.options import EXPLAINED
        from fairseq_plugins.process import install_hook
        from fairseq_plugins.search import settings  # noqa: F401

        register_architectures()
        EXPLAINED["--arch"] = require_architecture
        if Path(__file__).with_name("tools").is_dir():
            import_module(f"{TOOLS}.observe.guard.installing")
        install_hook()
    except BaseException:
        _begun = False
        raise
    finally:
        if collecting:
            gc.enable()


class _RegisterFirst(MetaPathFinder):
    """Lets fairseq, and modules of this package that :func:`register` would find half imported, be loaded after it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the next finder's result, with a loader that registers: a finder holds the lock of all imports."""
        package, _, rest = fullname.partition(".")
        ours = package == __name__ and f"{rest}.".startswith(tuple(f"{part}." for part in NEED_FAIRSEQ))
        ours = ours and fullname not in WITHOUT_FAIRSEQ
        if _begun or not (ours or fullname in ("fairseq", "fairseq_cli")):
            return None
        # The names are compared, since importlib.reload makes another class.
        others = [finder for finder in sys.meta_path if type(finder).__name__ != type(self).__name__]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _register_first  # type: ignore[method-assign]
        return spec


def _register_first(module: ModuleType) -> None:
    """Register, and import the module anew: Python takes what is in ``sys.modules`` in the end."""
    del sys.modules[module.__name__]
    register()
    import_module(module.__name__)


def __getattr__(name: str) -> Any:
    """Import :class:`Translator` when it is first asked for: most processes never do."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{TOOLS}.translator.translate").Translator


if "fairseq" in sys.modules:
    register()
else:
    sys.meta_path.insert(0, _RegisterFirst())
