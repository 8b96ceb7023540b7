"""A sentence that is longer than the model takes: the only one missing in fairseq-interactive."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import interactive

from fairseq_plugins.errors import UserError

LONG = " ".join(["eins"] * 2000)


def hypotheses(data: Path, checkpoint: Path, text: Path, *flags: str) -> None:
    arguments = [str(data), "--path", str(checkpoint), "--cpu", "--beam", "1", "--max-len-b", "5", "--input", str(text)]
    args = options.parse_args_and_arch(options.get_interactive_generation_parser(), [*arguments, *flags])
    interactive.main(convert_namespace_to_omegaconf(args))


def numbers(printed: str) -> list[int]:
    return [int(line[2:].partition("\t")[0]) for line in printed.splitlines() if line.startswith("H-")]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.de"
    path.write_text(f"drei vier\n{LONG}\nneun\nzwei\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("buffer", ["1", pytest.param("3", marks=pytest.mark.slow), "10"])
def test_every_other_line_is_translated_under_its_number(
    buffer: str, toy_data: Path, toy_checkpoint: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="1 of 4 lines have no translation because they are too long"):
        hypotheses(toy_data, toy_checkpoint, text, "--buffer-size", buffer)
    printed = capsys.readouterr()
    assert numbers(printed.out) == [0, 2, 3]
    assert printed.err.endswith(
        "error: line 2 has 2,001 tokens with the end mark, more than 1,024 (the model or "
        "--max-source-positions): not translated\n"
    )
    alone = text.with_name("alone.de")
    alone.write_text("drei vier\n\nneun\nzwei\n", encoding="utf-8")
    hypotheses(toy_data, toy_checkpoint, alone)
    whole = [line for line in capsys.readouterr().out.splitlines() if line.startswith("H-") and line[:3] != "H-1"]
    assert [line for line in printed.out.splitlines() if line.startswith("H-")] == whole


def test_lines_longer_than_a_batch(
    toy_data: Path, toy_checkpoint: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="2 of 4 lines"):
        hypotheses(toy_data, toy_checkpoint, text, "--max-tokens", "2", "--buffer-size", "2")
    printed = capsys.readouterr()
    assert numbers(printed.out) == [2, 3]
    assert "error: line 1 has 3 tokens with the end mark, more than 2 (--max-tokens): not translated\n" in printed.err


def test_who_asks_that_they_are_left_out_has_no_error(
    toy_data: Path, toy_checkpoint: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hypotheses(toy_data, toy_checkpoint, text, "--skip-invalid-size-inputs-valid-test")
    assert numbers(capsys.readouterr().out) == [0, 2, 3]


def test_stock_ends_in_a_trace(
    toy_data: Path, toy_checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive, "make_batches", inspect.unwrap(interactive.make_batches))
    with pytest.raises(Exception, match="Size of sample #0 is invalid"):
        hypotheses(toy_data, toy_checkpoint, text)
