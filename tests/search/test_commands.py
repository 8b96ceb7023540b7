"""The GNMT form through the commands: the scores that they print, with models of fairseq and of this package."""

import json
import logging
import math
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from fairseq_plugins.integrity import NON_FINITE_ALLOWED
from tests import toy
from tests.refusals import line_of
from tests.search.searching import gnmt

FORM = ("--lenpen-form", "gnmt", "--lenpen", "0.6")
WIDE = ("--beam", "4", "--nbest", "4")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.binarise(tmp_path_factory.mktemp("toy"), {**toy.SIZES, "test": 8})


@pytest.fixture(scope="module")
def checkpoints(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of the stock task ``translation``, stopped while they are still unsure of their sentences' ends."""
    flags = ("--max-update", "40", "--no-epoch-checkpoints", "--task", "translation")
    return {
        arch: toy.train_toy(data, tmp_path_factory.mktemp(arch), *flags, arch=arch)
        for arch in ("transformer", "admin_transformer")
    }


class Line(NamedTuple):
    """One hypothesis as printed, in base 2: its score, and the log-probabilities of its tokens to four decimals."""

    score: float
    text: str
    positional: list[float]


def printed(report: str) -> dict[int, list[Line]]:
    """The hypotheses of each sentence, in the order in which they stand in the report of a command."""
    heads: list[tuple[int, float, str]] = []
    found: dict[int, list[Line]] = {}
    for line in report.splitlines():
        if line.startswith("H-"):
            number, score, text = line[2:].split("\t")
            heads.append((int(number), float(score), text))
        elif line.startswith("P-"):
            number, text = line[2:].split("\t")
            assert heads[-1][0] == int(number)
            found.setdefault(int(number), []).append(Line(*heads[-1][1:], [float(one) for one in text.split()]))
    return found


def translated(data: Path, path: str, results: Path, *flags: str) -> dict[int, list[Line]]:
    toy.translate_toy(data, Path(path), results, *flags)
    return printed((results / "generate-test.txt").read_text(encoding="utf-8"))


def assert_printed_in_form(found: dict[int, list[Line]], alpha: float) -> None:
    """Each score is the sum of what is printed for the tokens, over the penalty of their number."""
    lengths = set()
    for lines in found.values():
        for line in lines:
            # The words of the text and the end mark; fairseq does not print special symbols, which may be chosen, too.
            length = len(line.positional)
            assert length >= len(line.text.split()) + 1
            rounding = 5e-5 * length + 1e-4
            assert line.score * gnmt(length, alpha) == pytest.approx(sum(line.positional), abs=rounding)
            lengths.add(length)
        assert [line.score for line in lines] == sorted((line.score for line in lines), reverse=True)
    assert len(lengths) > 1


def test_the_flag_changes_scores_and_order_and_nothing_else(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    for arch, path in checkpoints.items():
        ours = translated(data, str(path), tmp_path / arch / "gnmt", *FORM, *WIDE)
        assert sorted(ours) == list(range(8))
        assert {len(lines) for lines in ours.values()} == {4}
        assert_printed_in_form(ours, 0.6)
        stock = translated(data, str(path), tmp_path / arch / "stock", "--lenpen", "0.6", *WIDE)
        for number, lines in ours.items():
            assert sorted((line.text, line.positional) for line in lines) == sorted(
                (line.text, line.positional) for line in stock[number]
            )
            for line in stock[number]:
                length = len(line.positional)
                assert line.score * length**0.6 == pytest.approx(sum(line.positional), abs=5e-5 * length + 1e-4)


@pytest.mark.parametrize("arch", ["transformer", "admin_transformer"])
@pytest.mark.parametrize("value", [3e38, math.nan])
def test_a_model_that_computes_no_numbers_is_one_line(
    value: float, arch: str, data: Path, checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq says ``AssertionError: 5 < 5``."""
    monkeypatch.setenv(NON_FINITE_ALLOWED, "1")
    state = torch.load(checkpoints[arch], weights_only=True)
    for weight in state["model"].values():
        weight.fill_(value)
    torch.save(state, tmp_path / "bad.pt")
    line = str(line_of(toy.translate_toy, data, tmp_path / "bad.pt", tmp_path / "results"))
    assert line.startswith("the model's log-probabilities are not finite, so no translation ends: ")


def test_bleu_while_training(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The option text of the documentation, in a training that validates."""
    search = {"beam": 2, "max_len_b": 9, "lenpen": 0.6, "lenpen_form": "gnmt"}
    flags = ("--eval-bleu", "--eval-bleu-args", json.dumps(search), "--max-update", "2", "--no-epoch-checkpoints")
    with caplog.at_level(logging.INFO):
        toy.train_toy(data, tmp_path, *flags, "--log-format", "json", validate=True)
    assert "length penalty of the GNMT form: ((5 + length) / 6) ** 0.6, the end mark counted" in caplog.text
    assert '"valid_bleu"' in caplog.text


def test_a_training_may_carry_the_search_of_its_evaluation(data: Path, tmp_path: Path) -> None:
    """In a YAML file; but that of its own validation must be legal."""
    for validation, message in (
        (
            ("--eval-bleu", "--eval-bleu-args", '{"beem": 2}'),
            "eval_bleu_args 'beem' (did you mean 'beam'?); legal values:",
        ),
        (
            ("--eval-bleu", "--eval-bleu-args", "{beam: 2}"),
            "take JSON such as '{\"beam\": 4}': Expecting property name",
        ),
        (("--eval-bleu", "--eval-bleu-args", "[2]"), "take JSON such as '{\"beam\": 4}': "),
        (("--eval-bleu", "--eval-bleu-args", '{"max_len_b": 9, "lenpen_form": "gnmt"}'), ""),
        ((), ""),
    ):
        config = toy.parse_training(data, tmp_path, "--max-update", "1", *validation)
        config.generation.lenpen_form = "gnmt"
        if message:
            assert message in str(line_of(toy.run_training, config))
        else:
            toy.run_training(config)
        assert (tmp_path / "checkpoint_last.pt").exists() is not bool(message)
        (tmp_path / "checkpoint_last.pt").unlink(missing_ok=True)
