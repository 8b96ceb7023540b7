"""Put a function around one of fairseq's, once, at the place where fairseq looks it up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any


def _layers(function: Any) -> Iterator[Any]:
    """``function`` and everything it wraps, outermost first."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def is_wrapped(function: Any, wrapper: Callable[..., Any]) -> bool:
    """Whether ``wrapper`` is already around ``function``, perhaps under later layers."""
    name = f"{wrapper.__module__}.{wrapper.__qualname__}"
    return any(getattr(layer, "mended_by", None) == name for layer in _layers(function))


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``wrapper(original, ...)``; a second call changes nothing.

    Args:
        owner: the module or class on which fairseq looks the function up.
        name: the attribute.
        wrapper: called with the original function first, then the caller's arguments.
    """
    original = getattr(owner, name)
    if is_wrapped(original, wrapper):
        return

    @functools.wraps(original)
    def mended(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    mended.mended_by = f"{wrapper.__module__}.{wrapper.__qualname__}"  # type: ignore[attr-defined]
    setattr(owner, name, mended)
