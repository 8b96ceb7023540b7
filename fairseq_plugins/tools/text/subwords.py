"""Subwords, learned for all files together: byte-pair encoding by subword-nmt, and SentencePiece."""

import io
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Literal

import sentencepiece
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.learn_bpe import learn_bpe

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, whole_files, write_lines
from fairseq_plugins.tools.text.moses import Transform
from fairseq_plugins.tools.text.words import joined
from fairseq_plugins.tools.workers import map_lines

VERSIONS = ((0, 1), (0, 2))
"""Those of the files that subword-nmt reads."""
_THREADS = 16
"""Fixed, because the last digits of a model depend on the number of threads."""


def learn_merges(inputs: Sequence[Path], output: Path, *, merges: int) -> str:
    """Learn byte-pair merges, joint for all files; some pair of symbols occurs twice."""
    codes = io.StringIO()
    # Hide the learner's progress bar; the number of lines shows whether it stopped early.
    with redirect_stderr(io.StringIO()):
        try:
            learn_bpe(read_lines(*inputs), codes, merges)
        except ValueError as error:
            # Without any pair: max() of an empty sequence.
            if isinstance(error, UserError):
                raise
    learned = codes.getvalue().removesuffix("\n").split("\n")
    if len(learned) < 2:
        raise UserError(f"{inputs[0]}: no subwords to learn: no pair of letters occurs twice")
    count = write_lines(output, learned) - 1  # without the line of the version
    return f"{count:,} merges" + (f" (no pair is left for {merges:,})" if count < merges else "")


def load_bpe(codes: Path, vocabulary: Path | None = None, threshold: int = 0) -> BPE:
    """The merges of a codes file of subword-nmt, or a UserError.

    Subwords with a count below ``threshold`` in the file ``vocabulary`` are split further.
    """
    lines = "\n".join(read_lines(codes)) + "\n"
    frequent = None
    if vocabulary is not None:
        try:
            frequent = read_vocabulary(read_lines(vocabulary), threshold)
        except ValueError as error:
            raise error if isinstance(error, UserError) else UserError(f"{vocabulary}: not a vocabulary") from None
    stderr = io.StringIO()
    with redirect_stderr(stderr):
        try:
            bpe = BPE(io.StringIO(lines, newline="\n"), vocab=frequent)
        except (SystemExit, ValueError, IndexError):
            cause = stderr.getvalue().partition("\n")[0].removeprefix("Error: ")
            raise UserError(f"{codes}: not BPE codes: {cause or 'no version line'}") from None
    if bpe.version not in VERSIONS:
        raise UserError(f"{codes}: BPE codes of version {'.'.join(map(str, bpe.version))}; legal: 0.1, 0.2")
    return bpe


def apply_bpe(
    source: Path, output: Path, *, codes: Path, vocabulary: Path | None = None, threshold: int = 1, workers: int = 1
) -> None:
    """Split words by learned merges, rare subwords further: see :func:`load_bpe`."""
    bpe = load_bpe(codes, vocabulary, threshold)
    write_lines(output, map_lines(lambda: bpe.process_line, read_lines(source), workers))


def write_vocabulary(source: Path, output: Path) -> str:
    """Count the tokens of a text, and write each with its count, the most frequent first."""
    types: Counter[str] = Counter()
    for line in read_lines(source):
        types.update(line.split())
    ranked = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    write_lines(output, (f"{token} {count}" for token, count in ranked))
    return f"{source}: {types.total():,} tokens, {len(types):,} types"


def learn_pieces(inputs: Sequence[Path], output: Path, *, size: int) -> None:
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


def load_pieces(model: Path) -> Transform:
    """The function that splits a line into pieces; a UserError if ``model`` is no SentencePiece model."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "not a SentencePiece model"
        raise UserError(f"{model}: {cause}") from None
    return lambda line: " ".join(processor.encode(line, out_type=str))


def apply_pieces(source: Path, output: Path, *, model: Path, workers: int = 1) -> None:
    """Split lines by a SentencePiece model."""
    write_lines(output, map_lines(lambda: load_pieces(model), read_lines(source), workers))


def join_subwords(source: Path, output: Path, *, kind: Literal["bpe", "sentencepiece"]) -> None:
    """Join subwords into words."""
    write_lines(output, (joined(line, kind) for line in read_lines(source)))
