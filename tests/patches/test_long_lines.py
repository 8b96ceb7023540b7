"""A sentence that is longer than the model takes: named by fairseq-generate, the only one missing in interactive."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import FairseqTask
from fairseq_cli import interactive

from fairseq_plugins.errors import UserError
from tests import toy

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


def test_generate_names_sentence_and_limit(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    lengths = [len(source.split()) + 1 for source, _ in toy.sentence_pairs(toy.SIZES["test"], 3)]
    longest = max(lengths)
    limits = ("--max-source-positions", str(longest - 1), "--max-target-positions", "1000")
    with pytest.raises(UserError) as caught:
        toy.translate_toy(toy_data, toy_checkpoint, tmp_path, *limits)
    (line,) = caught.value.problems
    first = lengths.index(longest)
    assert line.startswith(f"sentence {first + 1} has {longest} and {longest} tokens with the end mark, at most ")
    assert f"{longest - 1} and 1,000 are possible" in line
    assert f"({lengths.count(longest)} in all) with --skip-invalid-size-inputs-valid-test" in line


def test_stock_ends_in_a_trace(
    toy_data: Path, toy_checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive, "make_batches", inspect.unwrap(interactive.make_batches))
    monkeypatch.setattr(FairseqTask, "filter_indices_by_size", inspect.unwrap(FairseqTask.filter_indices_by_size))
    with pytest.raises(Exception, match="Size of sample #0 is invalid"):
        hypotheses(toy_data, toy_checkpoint, text)
