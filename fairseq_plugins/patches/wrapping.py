"""Wrap a function of fairseq where fairseq looks it up: each wrapper once, in a stated order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq_plugins.patches.events import ORDER

Wrapper = Callable[..., Any]
WRAPPERS = "fairseq_plugins_wrappers"
"""Attribute of a wrapped function: its wrappers, the outermost first."""


def full_name(owner: Any, name: str) -> str:
    """Return a name such as ``fairseq.trainer.Trainer.train_step``; ``owner`` is a class or a module."""
    return f"{owner.__module__}.{owner.__qualname__}.{name}" if isinstance(owner, type) else f"{owner.__name__}.{name}"


def name_of(wrapper: Wrapper) -> str:
    """Return the name of a wrapper in :data:`~fairseq_plugins.patches.events.ORDER`."""
    return f"{wrapper.__module__}.{wrapper.__qualname__}".removeprefix("fairseq_plugins.")


def wrappers_of(function: Any) -> tuple[str, ...]:
    """Return the names of the wrappers around ``function``, the outermost first."""
    return tuple(map(name_of, getattr(function, WRAPPERS, ())))


def wrap(owner: Any, name: str, wrapper: Wrapper) -> None:
    """Put ``wrapper(original, ...)`` around ``owner.name``, in the order of ``ORDER``; repeating it does nothing.

    Args:
        owner: the module or class on which fairseq looks the function up.
        name: the attribute.
        wrapper: called with the wrapped function first, then the caller's arguments.

    Raises:
        ValueError: the function has other wrappers, and the order does not name this one.
    """
    found = vars(owner).get(name)
    wrappers: list[Wrapper] = getattr(found, WRAPPERS, [])
    if name_of(wrapper) in map(name_of, wrappers):
        return
    wrappers.append(wrapper)
    order = ORDER.get(full_name(owner, name), ())
    if len(wrappers) > 1 and (missing := set(map(name_of, wrappers)) - set(order)):
        wrappers.remove(wrapper)
        raise ValueError(f"{full_name(owner, name)}: patches/events.py does not list {', '.join(sorted(missing))}")
    if len(wrappers) > 1:
        wrappers.sort(key=lambda one: order.index(name_of(one)))
    else:
        setattr(owner, name, _wrapped(getattr(owner, name), wrappers))


def _wrapped(original: Any, wrappers: list[Wrapper]) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        inner = original
        for wrapper in reversed(wrappers):
            inner = functools.partial(wrapper, inner)
        return inner(*args, **kwargs)

    setattr(call, WRAPPERS, wrappers)
    return call
