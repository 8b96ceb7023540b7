"""Steps that treat text as lines: check, clean, split and select parallel files."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from re import findall

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import in_step, raw_lines, read_lines, whole_files, write_lines


def copy(source: Path, output: Path) -> None:
    """Copy a file byte for byte, or unpack it if its name ends in .gz: references stay as published."""
    with whole_files(output) as [stream]:
        stream.writelines(raw_lines(source))


def columns(source: Path, outputs: Sequence[Path]) -> None:
    """Split tab-separated text into columns, a file for each; every line has that many."""
    with whole_files(*outputs) as streams:
        for number, line in enumerate(read_lines(source), start=1):
            fields = line.split("\t")
            if len(fields) != len(streams):
                raise UserError(f"{source}: line {number:,} has {len(fields)} columns, not {len(streams)}")
            for stream, field in zip(streams, fields, strict=True):
                stream.write(f"{field}\n".encode())


def split(source: Path, rest: Path, taken: Path, *, every: int) -> None:
    """Move every n-th line to another file, as fairseq splits a validation set off; neither may become empty."""
    with whole_files(rest, taken) as [stays, goes]:
        number = 0
        for number, line in enumerate(read_lines(source), start=1):
            (stays if number % every else goes).write(f"{line}\n".encode())
        if number < every or every < 2:
            raise UserError(f"{source}: {number:,} lines cannot be split at every {every}th: one part would be empty")


def select_every(inputs: Sequence[Path], output: Path, *, every: int = 1) -> None:
    """Select lines n, 2n, ... (from 1) of concatenated files; a UserError if there are fewer than n."""
    selected = islice(read_lines(*inputs), every - 1, None, every)
    first = next(selected, None)
    if first is None:
        raise UserError(f"{' '.join(map(str, inputs))}: fewer than {every} lines")
    write_lines(output, chain([first], selected))


def select(inputs: Sequence[Path], output: Path, *, lines: Path) -> None:
    """Select lines of concatenated files by number, for example to keep a second file parallel.

    Options:
        lines: a file of line numbers, from 1, ascending, one per line

    Raises:
        UserError: there is no such line, or it is not behind the one before.
    """
    text = enumerate(read_lines(*inputs), start=1)

    def selected() -> Iterator[str]:
        for wanted in read_lines(lines):
            line = next((line for number, line in text if str(number) == wanted), None)
            if line is None:
                raise UserError(f"{inputs[-1]}: has no line {wanted}, which is in {lines}")
            yield line

    write_lines(output, selected())


# Cleaning -----------------------------------------------------------------------------------------------------------


LONGEST_TOKEN = 1000
"""Maximum characters of a token, as in clean-corpus-n."""


def fault(sides: Sequence[Sequence[str]], min_length: int, max_length: int, ratio: float) -> str | None:
    """Why a pair of token lists is dropped; None if it stays."""
    shorter, longer = sorted(map(len, sides))
    if not shorter:
        return "with an empty side"
    if longer > max_length:
        return f"with more than {max_length} tokens"
    if shorter < min_length:
        return f"with fewer than {min_length} tokens"
    if longer / shorter > ratio:
        return f"with one side more than {ratio:g} times as long as the other"
    if any(len(token) > LONGEST_TOKEN for side in sides for token in side):
        return f"with a token of more than {LONGEST_TOKEN} characters"
    return None


def clean(
    inputs: tuple[Path, Path],
    outputs: tuple[Path, Path],
    kept: Path,
    *,
    min_length: int = 1,
    max_length: int = 250,
    ratio: float = 9.0,
) -> str:
    """Drop pairs that are empty, too long, too short or too unequal: the rules of Moses' clean-corpus-n.

    One rule is omitted: "|", which separates factors in Moses, stays in the text. Tokens get single spaces.

    Options:
        kept: the line numbers of the pairs that stay, from 1

    Raises:
        UserError: the files are not parallel or not UTF-8, or no pair stays.
    """
    faults: Counter[str] = Counter()
    count = 0
    with whole_files(*outputs, kept) as [*streams, numbers]:
        for number, lines in enumerate(in_step(inputs), start=1):
            sides = [line.split() for line in lines]
            if problem := fault(sides, min_length, max_length, ratio):
                faults[problem] += 1
                continue
            count += 1
            numbers.write(f"{number}\n".encode())
            for stream, side in zip(streams, sides, strict=True):
                stream.write(f"{' '.join(side)}\n".encode())
        dropped = ", ".join(f"{number:,} {problem}" for problem, number in faults.most_common())
        if not count:
            raise UserError(f"{inputs[0]}: no pair is left after cleaning: {dropped}")
    return f"kept {count:,} of {count + faults.total():,} pairs" + (f"; dropped: {dropped}" if dropped else "")


# Overlap ------------------------------------------------------------------------------------------------------------


def shared_rows(
    training: Iterable[Sequence[Hashable]], held_out: Mapping[str, Iterable[Sequence[Hashable]]]
) -> dict[str, int]:
    """How many pairs of each held-out set are in the training text, too, with both sides; blank pairs do not count.

    Only a number for each held-out pair is in memory, and the training text is read once.
    """
    numbers = {name: [hash(tuple(row)) for row in rows if any(row)] for name, rows in held_out.items()}
    wanted = {number for row_numbers in numbers.values() for number in row_numbers}
    trained = wanted.intersection(hash(tuple(row)) for row in training)
    return {name: sum(number in trained for number in row_numbers) for name, row_numbers in numbers.items()}


def drop_near_copies(training: tuple[Path, Path], inputs: tuple[Path, Path], outputs: tuple[Path, Path]) -> str:
    """Drop pairs of a held-out set of which a side is at most one word apart from the same side of a training pair.

    Apart means added, removed or replaced; case and punctuation do not count. So "Er schläft." is near to "Sie
    schläft!" and to "Er schläft noch".

    Raises:
        UserError: the files are not parallel or not UTF-8, or no pair stays.
    """
    pairs = list(in_step(inputs))
    near: set[int] = set()
    for side, file in enumerate(training):
        numbers: dict[int, list[int]] = {}
        for number, pair in enumerate(pairs):
            for pattern in _one_word_open(pair[side]):
                numbers.setdefault(pattern, []).append(number)
        for line in read_lines(file):
            for pattern in _one_word_open(line):
                near.update(numbers.get(pattern, ()))
    if len(near) == len(pairs):
        raise UserError(f"{inputs[0]}: every pair is at most one word apart from a training pair")
    for side, file in enumerate(outputs):
        write_lines(file, (pair[side] for number, pair in enumerate(pairs) if number not in near))
    kept = f"{len(pairs) - len(near):,} of {len(pairs):,}"
    return f"{inputs[0]}: kept {kept} pairs; the others are near copies of training pairs"


def _one_word_open(line: str) -> Iterator[int]:
    """A number for the words of a line with one of them left open, and with an open one between them, at every place.

    Two lines have one in common if they are equal or one word apart, and only then. A line without a word has none.
    """
    words = findall(r"\w+", line.casefold())
    for place in range(len(words)):
        yield hash((*words[:place], None, *words[place + 1 :]))
        yield hash((*words[:place], None, *words[place:]))
    if words:
        yield hash((*words, None))
