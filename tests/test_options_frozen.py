"""The command line is an interface: what this package adds to stock fairseq's flags is listed here by hand."""

from __future__ import annotations

import argparse

from fairseq.models import ARCH_MODEL_REGISTRY

ADDED = {
    "--norm",
    "--residual",
    "--attention",
    "--history",
    "--bias",
    "--init",
    "--base-init",
    "--word-dropout",
    "--no-weight-decay-on",
    "--norm-on-top",
    "--admin-profile",
    "--admin-omega",
    "--admin-scale",
    "--b2t-skip",
    "--b2t-init-scale",
    "--b2t-init-scope",
    "--ds-init-alpha",
    "--ds-init-rule",
    "--rezero-alpha",
    "--rezero-alpha-per",
    "--deepnorm-init",
    "--admin-torch-change",
    "--admin-torch-omega",
    "--dlcl-window",
    "--dlcl-weights",
    "--dlcl-normalised",
    "--dlcl-init",
    "--realformer-logits",
    "--t-fixup-rule",
    "--fixup-rule",
    "--aan-ffn",
    # A setting of stock's that stock has a YAML key for, but no flag.
    "--decoder-input-dim",
}
"""A new flag is added here by hand, on purpose: whoever adds one shall think of the users who will rely on it."""
FOR_THE_WHOLE_MODEL = {"--no-weight-decay-on"}
HIDDEN = {"--max-source-positions", "--max-target-positions"}
"""Flags of stock's model that the task declares as well; ours leaves them to the task."""


def flags(arch: str) -> dict[str, argparse.Action]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return {
        name: action for action in parser._actions for name in action.option_strings if name not in ("-h", "--help")
    }


def test_flags_are_stock_and_a_named_handful() -> None:
    ours, stock = flags("deep_transformer"), flags("transformer")
    assert set(ours) - set(stock) == ADDED
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
    for name, action in flags("deep_transformer").items():
        if name in ADDED - {"--decoder-input-dim"}:
            assert action.help is not None
            assert "ENCODER,DECODER" in action.help or name in FOR_THE_WHOLE_MODEL, name
