"""Types of the arguments of public functions: a wrong type is a TypeError that names the argument."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, wraps
from inspect import formatannotation, signature
from numbers import Integral, Real
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Function = TypeVar("Function", bound=Callable[..., Any])


def fits(value: object, kind: Any) -> bool:
    """Return whether a value is of an annotated type; a text is no list of texts, and an iterator is not consumed."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is None:
        return isinstance(value, {int: Integral, float: Real}.get(kind, kind))
    if not isinstance(origin, type) or not issubclass(origin, Iterable):
        return any(fits(value, one) for one in inner)  # a union
    if isinstance(value, (str, bytes)) or isinstance(value, Mapping) != issubclass(origin, Mapping):
        return False
    if isinstance(value, Collection):
        return all(fits(one, inner[-1]) for one in (value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, Iterable) and not issubclass(origin, Collection)


def typed(function: Function) -> Function:
    """Decorate a function whose arguments are checked by their annotations."""
    form, hints = signature(function), cache(lambda: get_type_hints(function))  # of names that are defined below it

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kinds, given = hints(), form.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if name in kinds and not fits(value, kinds[name]):
                wanted = formatannotation(kinds[name]).replace("collections.abc.", "")
                raise TypeError(f"{function.__qualname__}: {name} must be {wanted}, not {repr(value)[:80]}")
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]
