"""From checkpoints to a score: average, translate the test set, restore its order, detokenise, sacreBLEU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics import BLEU

from fairseq_plugins.demo.children import Children, fairseq_command
from fairseq_plugins.demo.text import Tokeniser
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.generated import hypotheses_in_order


@dataclass(frozen=True)
class Search:
    """How translations are searched for."""

    beam: int
    length_penalty: float
    batch_size: int = 64


def translate(
    checkpoints: Sequence[Path],
    data: Path,
    directory: Path,
    search: Search,
    languages: tuple[str, str],
    children: Children,
    *,
    expected: int,
    gpu: bool,
) -> None:
    """Average ``checkpoints`` and translate the test set into ``directory/hypotheses.<target>``, plain text.

    Raises:
        CommandFailed: averaging or translating ended with an error.
        UserError: not every test sentence was translated.
    """
    averaged, output = directory / "averaged.pt", directory / "generate.out"
    average = [sys.executable, "-m", "fairseq_plugins.checkpoints.average", "--output", str(averaged)]
    children.run("averaging", [*average, "--inputs", *map(str, checkpoints)], directory / "average.log")
    children.run("translation", generate_command(averaged, data, search, languages, gpu=gpu), output)
    with open(output, encoding="utf-8", newline="\n") as lines:
        tokens = hypotheses_in_order(lines, expected)
    detokenise = Tokeniser(languages[1]).join
    text = "".join(detokenise(line) + "\n" for line in tokens)
    write_whole(directory / f"hypotheses.{languages[1]}", text)


def generate_command(model: Path, data: Path, search: Search, languages: tuple[str, str], *, gpu: bool) -> list[str]:
    """The complete translation command."""
    return [
        *fairseq_command("generate"),
        str(data),
        "--path",
        str(model),
        "--gen-subset",
        "test",
        "--source-lang",
        languages[0],
        "--target-lang",
        languages[1],
        "--task",
        "translation",
        "--beam",
        str(search.beam),
        "--lenpen",
        str(search.length_penalty),
        # A model that has learned nothing repeats a word up to this length.
        "--max-len-a",
        "1.5",
        "--max-len-b",
        "10",
        "--remove-bpe",
        "--batch-size",
        str(search.batch_size),
        "--num-workers",
        "0",
        *([] if gpu else ["--cpu"]),
    ]


@dataclass(frozen=True)
class Score:
    """A corpus score and how it was made."""

    bleu: float
    signature: str


def sacrebleu_score(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """SacreBLEU of plain-text translations against the raw references.

    Raises:
        UserError: the counts differ.
    """
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} translations but {len(references)} references")
    metric = BLEU()
    bleu = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(float(bleu.score), str(metric.get_signature()))
