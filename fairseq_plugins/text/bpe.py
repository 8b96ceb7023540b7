"""Byte-pair encoding by subword-nmt: learn merges, joint for all files, and apply them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr
from pathlib import Path

from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.learn_bpe import learn_bpe

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.options import at_least
from fairseq_plugins.text.command import add_files, add_workers, parser_of
from fairseq_plugins.workers import map_lines


def learn(lines: Iterable[str], merges: int, name: str) -> list[str]:
    """The lines of a codes file with at most ``merges`` merges, learned on ``lines``, which errors call ``name``.

    Raises:
        UserError: no pair of symbols occurs twice, so there is nothing to learn.
    """
    codes = io.StringIO()
    # Hide the learner's progress bar; the number of lines shows whether it stopped early.
    with redirect_stderr(io.StringIO()):
        try:
            learn_bpe(lines, codes, merges)
        except ValueError as error:  # max() of an empty list of pairs
            if isinstance(error, UserError):
                raise
            raise UserError(f"{name}: no subwords to learn: every word is one letter long") from None
    learned = codes.getvalue().removesuffix("\n").split("\n")
    if len(learned) < 2:
        raise UserError(f"{name}: no subwords to learn: no pair of letters occurs twice")
    return learned


def load(codes: Path, vocabulary: Path | None = None, threshold: int = 0) -> BPE:
    """The merges of a codes file.

    Args:
        codes: written by subword-nmt.
        vocabulary: subwords and their counts.
        threshold: subwords with a smaller count in ``vocabulary`` are split further.

    Raises:
        UserError: not a codes file.
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


def main_of_learn(argv: Sequence[str]) -> int:
    """``learn-bpe --merges N INPUT ... OUTPUT``."""
    flags = parser_of("learn-bpe", __doc__)
    flags.add_argument("--merges", type=at_least(1), required=True, metavar="N")
    add_files(flags)
    args = flags.read(argv)
    learned = write_lines(args.output, learn(read_lines(*args.inputs), args.merges, str(args.inputs[0]))) - 1
    print(f"{learned:,} merges" + (f" (no pair is left for {args.merges:,})" if learned < args.merges else ""))
    return 0


def main_of_apply(argv: Sequence[str]) -> int:
    """``apply-bpe --codes CODES INPUT ... OUTPUT``."""
    flags = parser_of("apply-bpe", __doc__)
    flags.add_argument("--codes", type=Path, required=True, metavar="CODES")
    flags.add_argument("--vocabulary", type=Path, metavar="FILE", help="subwords and their counts (`count`)")
    flags.add_argument("--threshold", type=at_least(1), default=1, metavar="N", help="with --vocabulary; default: 1")
    add_workers(flags)
    add_files(flags)
    args = flags.read(argv)
    bpe = load(args.codes, args.vocabulary, args.threshold)
    write_lines(args.output, map_lines(lambda: bpe.process_line, read_lines(*args.inputs), args.workers))
    return 0
