"""``fairseq-score`` gives sacrebleu's own number, and a number for each sentence."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import sacrebleu
from fairseq_cli import score

HYPOTHESES = ["the cat sat on the mat", "a dog barks at night"]
REFERENCES = ["the cat sat on a mat", "a dog barks at night"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run ``fairseq-score`` on the two texts with the given flags."""
    for name, lines in (("sys", HYPOTHESES), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def run(*flags: str, function=score.cli_main) -> None:
        files = ["--sys", str(tmp_path / "sys"), "--ref", str(tmp_path / "ref")]
        monkeypatch.setattr(sys, "argv", ["fairseq-score", *files, *flags])
        function()

    return run


def test_sacrebleu(command, capsys: pytest.CaptureFixture[str]) -> None:
    command("--sacrebleu")
    assert sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).format() in capsys.readouterr().out


def test_sentences(command, capsys: pytest.CaptureFixture[str]) -> None:
    command("--sentence-bleu")
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert "BLEU4 = 100.00" in second
    assert "BLEU4 = 100.00" not in first


@pytest.mark.parametrize("flag", ["--sacrebleu", "--sentence-bleu"])
def test_stock_fails(command, flag: str) -> None:
    with pytest.raises(TypeError):
        command(flag, function=inspect.unwrap(score.cli_main))
