"""Every combination of choices either trains, or is refused with a message for the user; never anything else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugins.core.method import PARTS, Axis, all_options
from fairseq_plugins.errors import UserError
from tests.building import batch, logits, tiny

SMALL: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "dropout": 0.1, "attention_dropout": 0.1}
STRUCTURE = [axis for axis in Axis if axis not in (Axis.INIT, Axis.BASE_INIT)]


def trains_or_is_refused(**values: Any) -> bool:
    """Whether the model was built, and then gave a gradient to every parameter.

    Parameters behind ReZero's closed gates have a gradient of zero, but they have one.
    """
    try:
        model = tiny("deep_transformer", **SMALL, **values).train()
    except UserError:
        return False
    output = logits(model, batch())
    assert bool(output.isfinite().all())
    output.square().mean().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())
    with torch.no_grad():
        assert bool(logits(model.eval(), batch()).isfinite().all())
    return True


PAIRS = [
    (one, name, other, second)
    for one, other in itertools.combinations(STRUCTURE, 2)
    for name, second in itertools.product(PARTS[one], PARTS[other])
]


@pytest.mark.parametrize(("one", "name", "other", "second"), PAIRS, ids=[f"{p[1]}-{p[3]}" for p in PAIRS])
def test_every_pair_of_parts_trains_or_is_refused_by_name(one: Axis, name: str, other: Axis, second: str) -> None:
    """The initialisation never decides whether a structure is possible."""
    structure = {one.value: name, other.value: second}
    if trains_or_is_refused(**structure):
        return
    with pytest.raises(UserError) as refused:
        tiny("deep_transformer", **SMALL, **structure)
    parts = [f"--{one.value} {name}", f"--{other.value} {second}"]
    assert any(part in message for message in refused.value.problems for part in parts)


STRUCTURES = [(axis, name) for axis in STRUCTURE for name in PARTS[axis]]


INITS, BASES = list(PARTS[Axis.INIT]), list(PARTS[Axis.BASE_INIT])
EACH = list(zip(INITS, itertools.cycle(BASES), strict=False)) + [(INITS[0], base) for base in BASES[len(INITS) :]]
"""Pairs in which every initialisation is once, and every base at least once."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "pairs",
    [EACH, pytest.param(list(itertools.product(INITS, BASES)), marks=pytest.mark.slow)],
    ids=["each once", "every pair"],
)
@pytest.mark.parametrize(("axis", "name"), STRUCTURES, ids=[name for _, name in STRUCTURES])
def test_every_part_with_every_initialisation(axis: Axis, name: str, pairs: list[tuple[str, str]]) -> None:
    built = {trains_or_is_refused(**{axis.value: name}, init=init, base_init=base) for init, base in pairs}
    assert len(built) == 1, "no initialisation makes a structure impossible"


SENSELESS = [("b2t", "pre"), ("admin", "pre"), ("admin", "none")]


@pytest.mark.parametrize(("residual", "norm"), SENSELESS)
def test_combinations_without_sense_are_refused(residual: str, norm: str) -> None:
    assert not trains_or_is_refused(residual=residual, norm=norm)


def one_or_two(values: list[str]) -> st.SearchStrategy[str]:
    """One value for both stacks, or one for each."""
    one = st.sampled_from(values)
    return st.one_of(one, st.tuples(one, one).map(",".join))


legal = st.fixed_dictionaries({axis.value: one_or_two(sorted(PARTS[axis])) for axis in Axis})
options = st.fixed_dictionaries(
    {},
    optional={option.name: one_or_two(list(option.choices) or ["0.5", "1", "2"]) for option in all_options()},
)
stock = st.fixed_dictionaries(
    {},
    optional={
        "layernorm_embedding": st.booleans(),
        "encoder_normalize_before": st.booleans(),
        "decoder_normalize_before": st.booleans(),
        "no_cross_attention": st.booleans(),
        "share_all_embeddings": st.booleans(),
        "checkpoint_activations": st.booleans(),
        "encoder_layerdrop": st.sampled_from([0.0, 0.3]),
        "encoder_embed_dim": st.sampled_from([8, 16, 17]),
        "encoder_layers": st.sampled_from([0, 1, 2]),
        "activation_fn": st.sampled_from(["relu", "gelu"]),
    },
)


@settings(max_examples=60)
@given(axes=legal, values=options, others=stock)
def test_any_mixture(axes: dict[str, str], values: dict[str, str], others: dict[str, Any]) -> None:
    parts = [PARTS[Axis(axis)][name] for axis, names in axes.items() for name in names.split(",")]
    read = {option.name for part in parts for option in part.options}
    values = {name: value for name, value in values.items() if name in read}  # the others are refused
    try:
        model = tiny("deep_transformer", **{**SMALL, **axes, **values, **others}).train()
    except UserError:
        return
    output = logits(model, batch())
    assert bool(output.isfinite().all())
    output.square().mean().backward()


@settings(max_examples=60)
@given(
    axis=st.sampled_from([axis.value for axis in Axis] + [option.name for option in all_options()]),
    text=st.text(alphabet="abcdxyz0159.,- ", max_size=12),
)
def test_no_text_whatever_gives_anything_but_a_message(axis: str, text: str) -> None:
    messages: tuple[str, ...] = ()
    try:
        tiny("deep_transformer", **SMALL, **{axis: text})
    except UserError as error:
        messages = error.problems
    assert all(f"--{axis.replace('_', '-')}" in message for message in messages)
