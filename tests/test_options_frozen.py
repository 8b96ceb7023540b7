"""The flags of stock fairseq stay as they are; which flags this package adds is recorded in ``tests/recorded``."""

from __future__ import annotations

import argparse

from fairseq.models import ARCH_MODEL_REGISTRY

FOR_THE_WHOLE_MODEL = {"--no-weight-decay-on"}
OF_STOCK = {"--decoder-input-dim"}
"""A setting of stock's that stock has a YAML key for, but no flag."""
HIDDEN = {"--max-source-positions", "--max-target-positions"}
"""Flags of stock's model that the task declares as well; ours leaves them to the task."""


def flags(arch: str) -> dict[str, argparse.Action]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return {
        name: action for action in parser._actions for name in action.option_strings if name not in ("-h", "--help")
    }


def test_no_flag_of_stock_is_missing() -> None:
    ours, stock = flags("deep_transformer"), flags("transformer")
    assert set(stock) - set(ours) <= HIDDEN


def test_flags_of_stock_take_the_same_kind_of_value() -> None:
    ours, stock = flags("deep_transformer"), flags("transformer")
    different = {
        name: (type(ours[name]), type(stock[name]))
        for name in set(ours) & set(stock)
        if type(ours[name]) is not type(stock[name]) or ours[name].choices != stock[name].choices
    }
    assert different == {}


def test_every_added_flag_says_what_it_does_and_its_values() -> None:
    ours, stock = flags("deep_transformer"), flags("transformer")
    added = set(ours) - set(stock) - OF_STOCK
    assert {"--norm", "--residual", "--attention"} <= added
    for name in added:
        help_text = ours[name].help
        assert help_text is not None
        assert "ENCODER,DECODER" in help_text or name in FOR_THE_WHOLE_MODEL, name
