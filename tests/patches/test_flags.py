"""Numbers that no training can have are refused in one line, by flag and in a configuration, before anything is loaded.

Misspelt flags are in ``tests/cli/test_mistakes.py``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from tests import toy
from tests.patches.conftest import Unpatch
from tests.refusals import problems_of

BETAS = "two numbers in brackets, each at least 0 and below 1"
SEED = "from 0 to 4294967295, as numpy requires"
NOWHERE = ("nowhere", "--arch", "transformer", "--optimizer", "adam", *toy.RECIPE)

NUMBERS: Mapping[str, str] = {
    "--lr -0.1": "--lr must be at least 0, not [-0.1]",
    "--lr 0.1,1e999": "--lr must be at least 0, not [0.1, inf]",
    "--seed -1": f"--seed must be {SEED}, not -1",
    "--max-tokens 0": "--max-tokens must be at least 1, not 0",
    "--max-tokens-valid 4k": "--max-tokens-valid must be at least 1, not 4k",
    "--update-freq 1,0": "--update-freq must be at least 1, not [1, 0]",
    "--update-freq []": "--update-freq must be at least 1, not []",
    "--dropout 1.5": "--dropout must be at least 0 and below 1, not 1.5",
    "--label-smoothing 1": "--label-smoothing must be at least 0 and below 1, not 1.0",
    "--adam-betas (0.9": f"--adam-betas must be {BETAS}, not (0.9",
    "--adam-betas 0.9": f"--adam-betas must be {BETAS}, not 0.9",
    "--adam-betas '(0.9, 1)'": f"--adam-betas must be {BETAS}, not (0.9, 1)",
}
"""What is added to a good training, and its whole line."""


def parse(*flags: str) -> object:
    return options.parse_args_and_arch(options.get_training_parser(), [*NOWHERE, *flags])


def test_numbers() -> None:
    said = {words: problems_of(parse, *shlex.split(words)) for words in NUMBERS}
    assert said == {words: (line,) for words, line in NUMBERS.items()}
    assert len(problems_of(parse, "--max-tokens", "0", "--lr", "-1")) == 2
    flags = "--lr 0 --clip-norm 0 --update-freq 4,2 --warmup-updates 0 --max-epoch 0 --dropout 0 --seed 0"
    parse(*flags.split(), "--adam-betas", "(0.9, 0.98)", "--warmup-init-lr", "-1")
    options.parse_args_and_arch(options.get_generation_parser(), ["nowhere", "--retain-dropout"])


def test_configurations() -> None:
    wrong: dict[tuple[str, str, object], str] = {
        ("optimization", "lr", (-0.1,)): "optimization.lr must be at least 0, not [-0.1]",
        ("optimization", "update_freq", (0,)): "optimization.update_freq must be at least 1, not [0]",
        ("common", "seed", -1): f"common.seed must be {SEED}, not -1",
        ("dataset", "max_tokens", 0): "dataset.max_tokens must be at least 1, not 0",
        ("optimizer", "adam_betas", "(0.9, 1)"): f"optimizer.adam_betas must be {BETAS}, not (0.9, 1)",
    }
    for (group, name, value), line in wrong.items():
        config = convert_namespace_to_omegaconf(parse())
        config[group][name] = list(value) if isinstance(value, tuple) else value
        said = problems_of(distributed_utils.call_main, config, lambda cfg: pytest.fail("it began"))
        assert said == (line,)


def test_stock_prints_its_usage_and_takes_any_number(unpatch: Unpatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse("--help")
    assert (end.value.code, "--max-tokens" in capsys.readouterr().out) == (0, True)
    unpatch(options, "parse_args_and_arch")
    with pytest.raises(SystemExit):
        parse("--encoder-layrs", "3")
    assert capsys.readouterr().err.count("\n") > 50
    parse("--lr", "-0.1", "--clip-norm", "-1", "--seed", "-1")


def test_a_bleu_that_is_not_of_translated_words_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """97.20 was printed where the words had 94.83."""

    def said(dictionary: str, *flags: str) -> str:
        (tmp_path / "dict.en.txt").write_text(f"der 9\n{dictionary} 2\n", encoding="utf-8")
        caplog.clear()
        options.parse_args_and_arch(options.get_generation_parser(), [str(tmp_path), "--path", "model.pt", *flags])
        return caplog.text

    for mark in ("hau@@", "▁Haus"):
        assert "the BLEU at the end is that of subwords: add --remove-bpe" in said(mark)
        assert said(mark, "--remove-bpe") == ""
    assert said("Haus") == ""
    assert "the BLEU at the end is always 100" in said("hau@@", "--score-reference")
