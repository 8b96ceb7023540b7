"""The patches are applied once, in a stated order, and every file of the folder is among them."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable

import pytest
from fairseq.data import data_utils
from fairseq.trainer import Trainer

from fairseq_plugins import patches
from fairseq_plugins.patches import wrapping
from fairseq_plugins.patches.events import ORDER


def test_every_module_is_listed() -> None:
    found = {module.name for module in pkgutil.iter_modules(patches.__path__)}
    assert found - {"events", "wrapping"} == set(patches.MODULES)
    assert len(set(patches.MODULES)) == len(patches.MODULES)


def test_repeating_changes_nothing() -> None:
    before = (data_utils.batch_by_size, Trainer.train_step, Trainer.__init__)
    patches.apply()
    assert (data_utils.batch_by_size, Trainer.train_step, Trainer.__init__) == before


def test_what_runs_around_each_function_is_what_events_says() -> None:
    for full_name, order in ORDER.items():
        *path, name = full_name.split(".")
        found = pkgutil.resolve_name(".".join(path))
        assert wrapping.full_name(found, name) == full_name
        assert wrapping.wrappers_of(getattr(found, name)) == order, full_name


def test_every_wrapped_function_is_in_events() -> None:
    wrapped = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli", "hydra"):
            owners = [module, *(kind for kind in vars(module).values() if isinstance(kind, type))]
            wrapped |= {
                wrapping.full_name(owner, attribute)
                for owner in owners
                for attribute, value in list(vars(owner).items())
                if wrapping.wrappers_of(value) and not attribute.endswith("build_generator")
            }
    # A function is known by other names where a module has imported it.
    originals = {wrapping.wrappers_of(pkgutil.resolve_name(name)) for name in wrapped}
    assert originals <= set(ORDER.values())


def test_the_order_of_events_decides_whoever_wraps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        @staticmethod
        def letters() -> str:
            return ""

    def a(inner: Callable[[], str]) -> str:
        return "a" + inner()

    def b(inner: Callable[[], str]) -> str:
        return "b" + inner()

    def c(inner: Callable[[], str]) -> str:
        return "c" + inner()

    name = wrapping.full_name(Owner, "letters")
    monkeypatch.setattr(wrapping, "ORDER", {name: (wrapping.name_of(a), wrapping.name_of(b))})
    wrapping.wrap(Owner, "letters", b)
    wrapping.wrap(Owner, "letters", a)
    assert Owner.letters() == "ab"
    with pytest.raises(ValueError, match=r"patches/events.py does not list .*<locals>\.c$"):
        wrapping.wrap(Owner, "letters", c)
    assert Owner.letters() == "ab"
    assert inspect.unwrap(Owner.letters)() == ""


def test_wrapping_twice_calls_the_wrapper_once() -> None:
    class Owner:
        @staticmethod
        def double(x: int) -> int:
            return 2 * x

    def add_one(original, x: int) -> int:
        return original(x) + 1

    wrapping.wrap(Owner, "double", add_one)
    wrapping.wrap(Owner, "double", add_one)
    assert Owner.double(3) == 7
    assert Owner.double.__name__ == "double"
