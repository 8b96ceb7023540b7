"""Byte-pair encoding by subword-nmt: learn merges, joint for all files, and apply them."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path

from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.learn_bpe import learn_bpe

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.workers import map_lines


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


def load(codes: Path, vocabulary: Path | None = None, threshold: int = 0) -> BPE:
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
            return BPE(io.StringIO(lines, newline="\n"), vocab=frequent)
        except (SystemExit, ValueError, IndexError):
            cause = stderr.getvalue().partition("\n")[0].removeprefix("Error: ")
            raise UserError(f"{codes}: not BPE codes: {cause or 'no version line'}") from None


def apply_bpe(
    source: Path, output: Path, *, codes: Path, vocabulary: Path | None = None, threshold: int = 1, workers: int = 1
) -> None:
    """Split words by learned merges.

    Options:
        vocabulary: subwords and their counts, from the step vocabulary
        threshold: subwords with a smaller count are split further
    """
    bpe = load(codes, vocabulary, threshold)
    write_lines(output, map_lines(lambda: bpe.process_line, read_lines(source), workers))


def write_vocabulary(source: Path, output: Path) -> str:
    """Count the tokens of a text, and write each with its count, the most frequent first."""
    types: Counter[str] = Counter()
    for line in read_lines(source):
        types.update(line.split())
    ranked = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    write_lines(output, (f"{token} {count}" for token, count in ranked))
    return f"{source}: {types.total():,} tokens, {len(types):,} types"
