"""Every combination of choices either trains, or is refused with a message for the user; never anything else."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugins.core.method import PARTS, Axis, all_options
from fairseq_plugins.errors import UserError, flag
from tests.models import batch, logits, tiny
from tests.representatives import slow_but

SMALL: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "dropout": 0.1, "attention_dropout": 0.1}
STRUCTURE = [axis for axis in Axis if axis not in (Axis.INIT, Axis.BASE_INIT)]
PAIRS = list(itertools.combinations(STRUCTURE, 2))


def refusal(**values: Any) -> tuple[str, ...]:
    """The problems that refuse a model; none if it was built, and then gave a gradient to every parameter.

    Parameters behind ReZero's closed gates have a gradient of zero, but they have one.
    """
    try:
        model = tiny("deep_transformer", **SMALL, **values).train()
    except UserError as error:
        return error.problems
    output = logits(model, batch())
    assert bool(output.isfinite().all())
    output.square().mean().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())
    with torch.no_grad():
        assert bool(logits(model.eval(), batch()).isfinite().all())
    return ()


def offenders(first: Axis, second: Axis) -> Iterator[str]:
    """Pairs of parts of two axes that fail, or are refused by a message that names neither part."""
    for one, other in itertools.product(PARTS[first], PARTS[second]):
        try:
            problems = refusal(**{first.value: one, second.value: other})
        except Exception as error:
            yield f"{one}, {other}: {type(error).__name__}: {error}"
        else:
            named = (f"{flag(first.value)} {one}", f"{flag(second.value)} {other}")
            if problems and not any(part in "\n".join(problems) for part in named):
                yield f"{one}, {other}: {problems}"


@pytest.mark.parametrize("pair", slow_but([pair for pair in PAIRS if Axis.RESIDUAL in pair], PAIRS), ids="-".join)
def test_every_pair_of_parts_trains_or_is_refused_by_name(pair: tuple[Axis, Axis]) -> None:
    """The initialisation never decides whether a structure is possible."""
    assert list(offenders(*pair)) == []


def one_or_two(values: list[str]) -> st.SearchStrategy[str]:
    """One value for both stacks, or one for each."""
    one = st.sampled_from(values)
    return st.one_of(one, st.tuples(one, one).map(",".join))


legal = st.fixed_dictionaries({axis.value: one_or_two(sorted(PARTS[axis])) for axis in Axis})
options = st.fixed_dictionaries(
    {}, optional={option.name: one_or_two(list(option.choices) or ["0.5", "1", "2"]) for option in all_options()}
)
switches = ("layernorm_embedding", "encoder_normalize_before", "decoder_normalize_before", "no_cross_attention")
switches += ("share_all_embeddings", "checkpoint_activations")
sampled: dict[str, list[Any]] = {
    **dict.fromkeys(switches, [False, True]),
    "encoder_layerdrop": [0.0, 0.3],
    "encoder_embed_dim": [8, 16, 17],
    "encoder_layers": [0, 1, 2],
    "activation_fn": ["relu", "gelu"],
}
stock = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in sampled.items()})


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
