"""Numbers that make no sense are refused before anything is loaded, by flag and in YAML."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from fairseq_plugins.errors import UserError
from tests import toy

BETAS = "two numbers in brackets, each at least 0 and below 1"
NOWHERE = ("nowhere", "--arch", "transformer", "--optimizer", "adam", *toy.RECIPE)


def parse(*flags: str) -> object:
    return options.parse_args_and_arch(options.get_training_parser(), [*NOWHERE, *flags])


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--lr", "-0.1"), "--lr must be at least 0, not [-0.1]"),
        (("--lr", "0.1,1e999"), "--lr must be at least 0, not [0.1, inf]"),
        (("--seed", "-1"), "--seed must be from 0 to 4294967295, as numpy requires, not -1"),
        (("--seed", "4294967296"), "--seed must be from 0 to 4294967295, as numpy requires, not 4294967296"),
        (("--max-tokens", "0"), "--max-tokens must be at least 1, not 0"),
        (("--max-tokens", "-5"), "--max-tokens must be at least 1, not -5"),
        (("--max-tokens-valid", "0"), "--max-tokens-valid must be at least 1, not 0"),
        (("--max-tokens-valid", "4k"), "--max-tokens-valid must be at least 1, not 4k"),
        (("--batch-size", "0"), "--batch-size must be at least 1, not 0"),
        (("--update-freq", "1,0"), "--update-freq must be at least 1, not [1, 0]"),
        (("--update-freq", "[]"), "--update-freq must be at least 1, not []"),
        (("--dropout", "1.5"), "--dropout must be at least 0 and below 1, not 1.5"),
        (("--attention-dropout", "-0.1"), "--attention-dropout must be at least 0 and below 1, not -0.1"),
        (("--clip-norm", "-1"), "--clip-norm must be at least 0, not -1.0"),
        (("--warmup-updates", "-1"), "--warmup-updates must be at least 0, not -1"),
        (("--label-smoothing", "1"), "--label-smoothing must be at least 0 and below 1, not 1.0"),
        (("--adam-betas", "(0.9"), f"--adam-betas must be {BETAS}, not (0.9"),
        (("--adam-betas", "(0.9, 1)"), f"--adam-betas must be {BETAS}, not (0.9, 1)"),
    ],
)
def test_flags(flags: Sequence[str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(*flags)
    assert caught.value.problems == (line,)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--beam", "0"), "--beam must be at least 1, not 0"),
        (("--lenpen", "nan"), "--lenpen must be a finite number, not nan"),
        (("--temperature", "0"), "--temperature must be above 0, not 0.0"),
    ],
)
def test_flags_of_a_search(flags: Sequence[str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        options.parse_args_and_arch(options.get_generation_parser(), ["nowhere", *flags])
    assert caught.value.problems == (line,)


@pytest.mark.parametrize(
    ("group", "name", "value", "line"),
    [
        ("optimization", "lr", [-0.1], "optimization.lr must be at least 0, not [-0.1]"),
        ("common", "seed", -1, "common.seed must be from 0 to 4294967295, as numpy requires, not -1"),
        ("dataset", "max_tokens", 0, "dataset.max_tokens must be at least 1, not 0"),
        ("optimizer", "adam_betas", "0.9", f"optimizer.adam_betas must be {BETAS}, not 0.9"),
    ],
)
def test_configurations(group: str, name: str, value: object, line: str) -> None:
    config = convert_namespace_to_omegaconf(parse())
    config[group][name] = value
    with pytest.raises(UserError) as caught:
        distributed_utils.call_main(config, lambda cfg: pytest.fail("the training began"))
    assert caught.value.problems == (line,)


def test_one_line_for_each_mistake() -> None:
    with pytest.raises(UserError) as caught:
        parse("--max-tokens", "0", "--lr", "-1")
    assert len(caught.value.problems) == 2


def test_legal_values_pass() -> None:
    flags = "--lr 0 --clip-norm 0 --update-freq 4,2 --warmup-updates 0 --max-epoch 0 --dropout 0 --seed 0"
    parse(*flags.split(), "--adam-betas", "(0.9, 0.98)", "--warmup-init-lr", "-1")
    options.parse_args_and_arch(options.get_generation_parser(), ["nowhere", "--retain-dropout"])


def test_stock_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "parse_args_and_arch", inspect.unwrap(options.parse_args_and_arch))
    parse("--lr", "-0.1", "--clip-norm", "-1", "--seed", "-1")
