"""fairseq's parsers answer every mistake in one line, with the nearest legal name."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from fairseq import options
from fairseq_cli import score

from fairseq_plugins.cli.stock import USER_DIR
from fairseq_plugins.errors import UserError

TRAIN = ("data", "--arch", "post_ln_transformer")


def parse_training(*flags: str) -> object:
    return options.parse_args_and_arch(options.get_training_parser(), list(flags))


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ((*TRAIN, "--encoder-layrs", "3"), "unknown option '--encoder-layrs' (did you mean '--encoder-layers'?); "),
        ((*TRAIN, "--lr=0.1", "--optimiser=adam"), "unknown option '--optimiser' (did you mean '--optimizer'?); "),
        (("data", "--arhc", "post_ln_transformer"), "unknown option '--arhc' (did you mean '--arch'?)"),
        ((*TRAIN, "more"), "unexpected: 'more' ("),
        (TRAIN[1:], "the following arguments are required: data ("),
        ((*TRAIN, "--lr"), "argument --lr: expected one argument ("),
        ((*TRAIN, "--lr", "abc"), "--lr abc: not a number, or several with commas between them"),
        ((*TRAIN, "--max-tokens", "4k"), "--max-tokens 4k: not a whole number"),
        ((*TRAIN, "--encoder-layers", "x"), "--encoder-layers x: not a whole number"),
        ((*TRAIN, "--dropout", "0,1"), "--dropout 0,1: not a number"),
        ((*TRAIN, "--optimizer", "admm"), "unknown --optimizer 'admm' (did you mean 'adam'?); legal values: "),
        ((*TRAIN, "--criterion", "cross_entrop"), "unknown --criterion 'cross_entrop' (did you mean 'cross_entropy'?"),
        ((*TRAIN, "--task", "transaltion"), "unknown --task 'transaltion' (did you mean 'translation'?); "),
        ((*TRAIN, "--lr-scheduler", "inverse_sqr"), "unknown --lr-scheduler 'inverse_sqr' (did you mean 'inverse_sqrt"),
        (
            ("data", "--arch", "admin_transfromer"),
            "unknown --arch 'admin_transfromer' (did you mean 'admin_transformer'?); legal: METHOD_transformer ",
        ),
        (
            ("data", "--arch=transformer_iwslt_deen"),
            "unknown --arch 'transformer_iwslt_deen' (did you mean 'transformer_iwslt_de_en'?); legal: ",
        ),
        (("data",), "--arch is missing; legal: METHOD_transformer or "),
        (
            ("data", "--arch", "dsinit_matt_transformer_lm"),
            "--attention matt is part of the cross-attention, and a language model has none",
        ),
        (
            ("data", "--arch", "t_fixup_transformer_lm_gpt"),
            "--init t_fixup has no published rule for a language model",
        ),
    ],
)
def test_training(flags: Sequence[str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_training(*flags)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(line)
    assert "\n" not in caught.value.problems[0]


@pytest.mark.parametrize(
    ("parser", "flags", "line"),
    [
        (options.get_generation_parser, ("data", "--beem", "5"), "unknown option '--beem' (did you mean '--beam'?)"),
        (
            options.get_interactive_generation_parser,
            ("data", "--bufer-size", "5"),
            "unknown option '--bufer-size' (did you mean '--buffer-size'?)",
        ),
        (
            options.get_eval_lm_parser,
            ("data", "--context-widow", "5"),
            "unknown option '--context-widow' (did you mean '--context-window'?)",
        ),
    ],
)
def test_other_commands(parser: object, flags: Sequence[str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        options.parse_args_and_arch(parser(), list(flags))  # type: ignore[operator]
    assert caught.value.problems[0].startswith(line)


def test_preprocessing() -> None:
    with pytest.raises(UserError, match="unknown option '--trainprf' .did you mean '--trainpref'"):
        options.get_preprocessing_parser().parse_args(["--trainprf", "x"])


def test_scoring() -> None:
    with pytest.raises(UserError, match="unknown option '--refs' .did you mean '--ref'"):
        score.get_parser().parse_args(["--refs", "x"])
    # fairseq-score takes the beginning of an option for the option.
    assert score.get_parser().parse_args(["--ref", "x", "--sent"]).sentence_bleu


def test_stock_prints_its_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(options, "parse_args_and_arch", inspect.unwrap(options.parse_args_and_arch))
    with pytest.raises(SystemExit):
        parse_training(*TRAIN, "--encoder-layrs", "3")
    assert capsys.readouterr().err.count("\n") > 50


def test_help_is_fairseqs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_training(*TRAIN, "--help")
    assert end.value.code == 0
    assert "--max-tokens" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "flags", "line"),
    [
        ("train", (*TRAIN, "--encoder-layrs", "3"), "unknown option '--encoder-layrs' (did you mean '--encoder-"),
        pytest.param(
            *("preprocess", ("-s", "de", "-t", "en", "--trainpref", "absent"), "absent.de: no such file"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_stock_commands_with_the_user_directory(command: str, flags: Sequence[str], line: str, tmp_path: Path) -> None:
    code = f"import sys; from fairseq_cli.{command} import cli_main; sys.exit(cli_main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "--user-dir", USER_DIR, *flags],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {line}")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
