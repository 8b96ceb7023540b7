"""SentencePiece: learn one model for all files, and apply it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, whole_files, write_lines
from fairseq_plugins.workers import Transform, map_lines

_THREADS = 16
"""Fixed, because the last digits of a model depend on the number of threads."""


def learn_model(inputs: Sequence[Path], output: Path, *, size: int) -> None:
    """Learn a SentencePiece model of unigrams, joint for all files, if they yield so many pieces."""
    # Read before, because the trainer turns every exception into text.
    for _ in read_lines(*inputs):
        pass
    with whole_files(output) as [stream]:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=read_lines(*inputs),
                model_writer=stream,
                vocab_size=size,
                model_type="unigram",
                character_coverage=1.0,
                num_threads=_THREADS,
                minloglevel=2,
            )
        except (RuntimeError, SystemError) as error:  # the latter from SentencePiece up to 0.2.0
            cause = str(error).rpartition("] ")[2] or str(error)
            raise UserError(f"{inputs[0]}: SentencePiece cannot learn {size} pieces: {cause}") from None


def encoder(model: Path) -> Transform:
    """The function that splits a line into pieces; a UserError if ``model`` is no SentencePiece model."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "not a SentencePiece model"
        raise UserError(f"{model}: {cause}") from None
    return lambda line: " ".join(processor.encode(line, out_type=str))


def apply_model(source: Path, output: Path, *, model: Path, workers: int = 1) -> None:
    """Split lines by a SentencePiece model."""
    write_lines(output, map_lines(lambda: encoder(model), read_lines(source), workers))
