"""The mends are applied once, in a stated order, and every file of the folder is among them."""

from __future__ import annotations

import pkgutil

from fairseq.data import data_utils
from fairseq.trainer import Trainer

from fairseq_plugins import patches
from fairseq_plugins.patches import wrapping


def layers(function: object) -> int:
    return len(list(wrapping._layers(function))) - 1


def test_every_module_is_listed() -> None:
    found = {module.name for module in pkgutil.iter_modules(patches.__path__)}
    assert found - {"wrapping"} == set(patches.MODULES)
    assert len(set(patches.MODULES)) == len(patches.MODULES)


def test_repeating_changes_nothing() -> None:
    before = (data_utils.batch_by_size, Trainer.train_step, Trainer.__init__)
    patches.apply()
    assert (data_utils.batch_by_size, Trainer.train_step, Trainer.__init__) == before
    assert layers(data_utils.batch_by_size) == 2  # the dropped sentences and the short --max-tokens


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
