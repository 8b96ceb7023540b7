"""SentencePiece: learn one model for all files, and apply it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import sentencepiece

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, whole_files, write_lines
from fairseq_plugins.options import at_least
from fairseq_plugins.text.command import add_files, add_workers, parser_of
from fairseq_plugins.workers import Transform, map_lines

KINDS = ("unigram", "bpe")

_THREADS = 16
"""Fixed, because the last digits of a model depend on the number of threads."""


def learn(paths: Sequence[Path], size: int, kind: str = "unigram", coverage: float = 1.0) -> bytes:
    """A model of ``size`` pieces, learned on all of ``paths``.

    Raises:
        UserError: the text does not yield so many pieces, or has no text.
    """
    model = io.BytesIO()
    mistakes: list[UserError] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_until_mistake(paths, mistakes),
            model_writer=model,
            vocab_size=size,
            model_type=kind,
            character_coverage=coverage,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, SystemError) as error:  # the latter from SentencePiece up to 0.2.0
        if mistakes:
            raise mistakes[0] from None
        cause = str(error).rpartition("] ")[2] or str(error)
        raise UserError(f"{paths[0]}: SentencePiece cannot learn {size} pieces: {cause}") from None
    return model.getvalue()


def _until_mistake(paths: Sequence[Path], mistakes: list[UserError]) -> Iterator[str]:
    """The lines. An error is stored, because the trainer turns every exception into text."""
    try:
        yield from read_lines(*paths)
    except UserError as error:
        mistakes.append(error)
        raise


def encoder(model: Path) -> Transform:
    """The function that splits a line into pieces.

    Raises:
        UserError: ``model`` is missing or not a SentencePiece model.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "not a SentencePiece model"
        raise UserError(f"{model}: {cause}") from None
    return lambda line: " ".join(processor.encode(line, out_type=str))


def main_of_learn(argv: Sequence[str]) -> int:
    """``learn-sentencepiece --size N INPUT ... OUTPUT``."""
    flags = parser_of("learn-sentencepiece", __doc__)
    flags.add_argument("--size", type=at_least(1), required=True, metavar="N")
    flags.add_argument("--kind", choices=KINDS, default="unigram", help="default: unigram")
    flags.add_argument(
        "--coverage", type=float, default=1.0, metavar="P", help="share of the characters to cover; default: 1"
    )
    add_files(flags)
    args = flags.read(argv)
    model = learn(args.inputs, args.size, args.kind, args.coverage)
    with whole_files(args.output) as [writer]:
        writer.write(model)
    return 0


def main_of_apply(argv: Sequence[str]) -> int:
    """``apply-sentencepiece --model MODEL INPUT ... OUTPUT``."""
    flags = parser_of("apply-sentencepiece", __doc__)
    flags.add_argument("--model", type=Path, required=True, metavar="MODEL")
    add_workers(flags)
    add_files(flags)
    args = flags.read(argv)
    encoder(args.model)
    write_lines(args.output, map_lines(lambda: encoder(args.model), read_lines(*args.inputs), args.workers))
    return 0
