"""Wrap a function of fairseq where fairseq looks it up: each wrapper once, in an order that the wrappers state."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

Wrapper = Callable[..., Any]
WRAPPERS = "fairseq_plugins_wrappers"
"""Attribute of a wrapped function: its wrappers with their places, the outermost first."""


def name_of(wrapper: Wrapper) -> str:
    """Return the name of a wrapper, relative to this package."""
    return f"{wrapper.__module__}.{wrapper.__qualname__}".removeprefix("fairseq_plugins.")


def wrap(owner: Any, name: str, wrapper: Wrapper, order: int = 0) -> None:
    """Put ``wrapper(original, ...)`` around ``owner.name``; repeating it does nothing.

    Args:
        owner: the module or class on which fairseq looks the function up.
        name: the attribute.
        wrapper: called with the wrapped function first, then the caller's arguments.
        order: sort key of the wrappers of a function, independent of call order. The lowest is the outermost: it is
            called first and sees the result last.

    Raises:
        ValueError: another wrapper of the function has the same place.
    """
    wrappers: list[tuple[int, Wrapper]] = getattr(vars(owner).get(name), WRAPPERS, [])
    if name_of(wrapper) in [name_of(known) for _, known in wrappers]:
        return
    for place, known in wrappers:
        if place == order:
            raise ValueError(f"{owner.__name__}.{name}: {name_of(known)} and {name_of(wrapper)} have order {order}")
    wrappers.append((order, wrapper))
    wrappers.sort(key=lambda placed: placed[0])
    if len(wrappers) > 1:
        return
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        inner = original
        for _, each in reversed(wrappers):
            inner = functools.partial(each, inner)
        return inner(*args, **kwargs)

    setattr(call, WRAPPERS, wrappers)
    setattr(owner, name, call)


@contextlib.contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Let attributes of ``owner``, a module or an object, have other values inside."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


def replace_settings(group: str, extended: type[Any]) -> None:
    """Let fairseq make flags and YAML keys of a dataclass in place of its own of that ``group``, the first base."""
    # Imported here: the first patch must come before any import of fairseq.
    from fairseq import options
    from fairseq.dataclass.configs import FairseqConfig
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    # fairseq makes flags from the first and the configuration from the others; Hydra has a copy, which is updated.
    setattr(options, extended.__bases__[0].__name__, extended)
    FairseqConfig.__annotations__[group] = extended
    declared = FairseqConfig.__dataclass_fields__[group]
    declared.type = declared.default = extended
    ConfigStore.instance().store(group, extended)
    ConfigStore.instance().repo["config.yaml"].node[group] = OmegaConf.structured(extended)
