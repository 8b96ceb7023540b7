"""``fairseq-deep verify-data DIR``: is this the corpus of the papers, and is it complete?

Prints counts and checksums of every file, contradictions between files, and what was recognised: a known corpus or
variant, the data of another year, lost sentences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tables import tabulated
from fairseq_plugins.text.known_corpora import (
    BROKEN,
    DIFFERS,
    NOTE,
    SAME,
    Corpus,
    Verdict,
    compare,
    compare_test_sets,
    corpora,
    recognise,
)
from fairseq_plugins.text.measure import Directory, File, measure, rows_of
from fairseq_plugins.text.parallel import shared_rows

LEVELS = (BROKEN, DIFFERS, NOTE, SAME)
"""Order of printing, the worst first."""

SHOWN = 16
"""Characters of a checksum in the table; ``--json`` has all."""


def main(argv: Sequence[str]) -> int:
    """Measure, compare and print; 0 if everything is as known, 1 if anything differs or is contradictory.

    Raises:
        UserError: the directory contains no corpus, or ``--expect`` is unknown.
    """
    arguments = _parser().read(argv)
    if arguments.list:
        print("\n".join(f"{corpus.name:<22}{corpus.title}" for corpus in corpora().values()))
        return 0
    if arguments.directory is None:
        raise UserError("no directory given: fairseq-deep verify-data DIR")
    expected = _expected(arguments.expect)
    found = measure(arguments.directory)
    recognised = recognise(found)
    verdicts = [*faults(found), *leaks(found), *judgement(found, recognised, expected)]
    corpus = expected or recognised
    print(_json(found, corpus, verdicts) if arguments.json else report(found, corpus, verdicts))
    return int(any(verdict.level in (DIFFERS, BROKEN) for verdict in verdicts))


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="fairseq-deep verify-data",
        description="Count, checksum and recognise a corpus. Exit code 0: as known; 1: something differs or is broken; "
        "2: no corpus found.",
    )
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="a directory made by scripts/prepare*.sh, one made by fairseq-preprocess, or one of text files "
        "(train.de, train.en, test.tok.en, train.de.gz, ...)",
    )
    parser.add_argument("--expect", metavar="NAME", help="the corpus that it must be; --list shows the names")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, with whole checksums")
    parser.add_argument("--list", action="store_true", help="list the known corpora")
    return parser


def _expected(name: str | None) -> Corpus | None:
    if name is None:
        return None
    if name not in corpora():
        raise UserError(unknown_name("corpus", name, corpora()))
    return corpora()[name]


# Contradictions -----------------------------------------------------------------------------------------------------


def faults(found: Directory) -> Iterator[Verdict]:
    """Problems of any corpus, known or not."""
    for file in found.files:
        yield from (Verdict(BROKEN, file.path, fault) for fault in file.faults)
    for vocabulary in found.vocabularies:
        yield from (Verdict(BROKEN, vocabulary.path, fault) for fault in vocabulary.faults)
    for split in dict.fromkeys(file.split for file in found.files):
        yield from _unequal_languages(found.of_split(split), found.languages)
        yield from _unequal_kinds(found.of_split(split))
    for file in found.files:
        # Running text has empty lines between paragraphs.
        if file.empty and file.language and file.kind != "raw":
            yield Verdict(BROKEN, file.path, f"{file.empty:,} empty lines")
    yield from _other_dictionary(found)


def _unequal_languages(files: Sequence[File], languages: Sequence[str]) -> Iterator[Verdict]:
    """Sentence k of one language must translate sentence k of the other."""
    groups: dict[str, list[File]] = {}
    for file in files:
        # By the name without the language: train.tok.de and train.de are not compared here.
        groups.setdefault(_without_language(file), []).append(file)
    for alike in groups.values():
        if len({file.rows for file in alike}) > 1:
            counts = ", ".join(f"{file.path} has {file.rows:,}" for file in alike)
            yield Verdict(BROKEN, alike[0].split, f"unequal numbers of rows: {counts}")
        missing = sorted(set(languages) - {file.language for file in alike})
        if missing:
            yield Verdict(BROKEN, alike[0].path, f"no such file in {', '.join(missing)}")


def _without_language(file: File) -> str:
    path = file.path.removesuffix(".bin").removesuffix(".gz")
    return path.removesuffix(file.language)


def _unequal_kinds(files: Sequence[File]) -> Iterator[Verdict]:
    """Raw, tokenised and binarised forms of one text must have equal rows, and binarising must keep every token."""
    for text, other in product([file for file in files if file.kind == "text"], files):
        if other.kind in ("text", "plain") or other.language != text.language:
            continue
        # The training text may have been cleaned after it was tokenised.
        if other.rows != text.rows and (text.split != "train" or other.kind == "binarised"):
            yield Verdict(BROKEN, other.path, _lost(other, text))
        elif other.kind == "binarised" and other.tokens != text.tokens:
            how = f"{other.tokens:,} tokens, but {text.path} has {text.tokens:,}: binarised from another text"
            yield Verdict(BROKEN, other.path, how)


def _lost(other: File, text: File) -> str:
    missing = text.rows - other.rows
    dropped = f": {missing:,} sentences dropped" if missing > 0 and other.kind == "binarised" else ""
    return f"{other.rows:,} rows, but {text.path} has {text.rows:,}{dropped}"


def _other_dictionary(found: Directory) -> Iterator[Verdict]:
    """The counts in a dictionary must be those of the training text."""
    words = {file.language: file.tokens - file.rows for file in found.of_split("train") if file.kind == "binarised"}
    for vocabulary in found.vocabularies[: 1 if found.joined else None]:
        trained = sum(words.values()) if found.joined else words.get(vocabulary.language)
        if trained and vocabulary.counted and vocabulary.counted != trained:
            says = f"counts {vocabulary.counted:,} words, the training text has {trained:,}: made from another text"
            yield Verdict(NOTE, vocabulary.path, says)


# Training text in other sets ----------------------------------------------------------------------------------------


def leaks(found: Directory) -> Iterator[Verdict]:
    """Validation and test sets that are the training text, or share pairs with it."""
    for kind in ("text", "plain", "binarised"):
        splits: dict[str, list[File]] = {}
        for file in found.files:
            if file.kind == kind and file.language in found.languages and not file.faults:
                splits.setdefault(file.split, []).append(file)
        whole = {name: files for name, files in splits.items() if len(files) == len(found.languages) > 1}
        training = whole.pop("train", None)
        if training is not None and whole:
            yield from _leaks(found, training, whole)
            return


def _leaks(found: Directory, training: Sequence[File], others: Mapping[str, Sequence[File]]) -> Iterator[Verdict]:
    def pairs(files: Sequence[File]) -> Iterator[tuple[bytes, ...]]:
        return zip(*(rows_of(found, file) for file in files), strict=False)

    def digests(files: Sequence[File]) -> list[str]:
        return [file.sha256 for file in files]

    validation = others.get("valid")
    for name, files in others.items():
        if digests(files) == digests(training):
            yield Verdict(BROKEN, name, "the same text as train: what is measured on it says nothing")
        elif validation is not None and files is not validation and digests(files) == digests(validation):
            yield Verdict(NOTE, name, "the same text as valid, on which checkpoints are chosen")
    for name, count in shared_rows(pairs(training), {name: pairs(files) for name, files in others.items()}).items():
        if count:
            yield Verdict(NOTE, name, f"{count:,} of {others[name][0].rows:,} pairs are also in train")


# The corpus ---------------------------------------------------------------------------------------------------------


def judgement(found: Directory, recognised: Corpus | None, expected: Corpus | None) -> Iterator[Verdict]:
    """The recognised corpus, and the differences from it; ``expected`` is the user's expectation."""
    sets = list(compare_test_sets(found))
    yield from sets
    if expected is not None and recognised is not None and expected is not recognised:
        yield Verdict(DIFFERS, "corpus", f"it is not {expected.name} but {recognised.name}: {recognised.title}")
    corpus = expected or recognised
    if corpus is None:
        if any(verdict.level == SAME for verdict in sets):
            return
        yield Verdict(NOTE, "corpus", "none that is known here (fairseq-deep verify-data --list)")
        return
    if not corpus.speaks_of(found):
        languages = " and ".join(sorted(corpus.languages)) or "no language in the file names"
        has = " and ".join(found.languages) or "none"
        yield Verdict(DIFFERS, "languages", f"{has}; {corpus.name} has {languages}")
        return
    if corpus.variant_of and expected is None:
        yield Verdict(NOTE, "corpus", f"not {corpus.variant_of}: compare scores with care")
    facts = list(compare(corpus, found))
    yield from facts
    if not any(fact.level == SAME for fact in facts):
        yield Verdict(DIFFERS, "corpus", f"nothing in it agrees with {corpus.name}")


# Output -------------------------------------------------------------------------------------------------------------


def report(found: Directory, corpus: Corpus | None, verdicts: Sequence[Verdict]) -> str:
    """The tables and the verdict."""
    bad = sum(verdict.level in (DIFFERS, BROKEN) for verdict in verdicts)
    lines = [f"{found.path} ({found.layout}; {' '.join(found.languages) or 'one language'})", ""]
    head = ("file", "rows", "tokens", "types", "<unk>", "empty", "SHA-256")
    lines.append(_table([head, *map(_row, found.files)]))
    if found.vocabularies:
        rows = [(item.path, f"{item.types:,}", item.sha256[:SHOWN]) for item in found.vocabularies]
        shared = "dictionary, joined" if found.joined and len(found.vocabularies) > 1 else "dictionary"
        lines += ["", _table([(shared, "types", "SHA-256"), *rows])]
    lines += ["", f"{corpus.name}: {corpus.title}" if corpus else "not one of the known corpora"]
    lines += [f"  {verdict}" for verdict in sorted(_joined(verdicts), key=lambda verdict: LEVELS.index(verdict.level))]
    known = any(verdict.level == SAME for verdict in verdicts)
    fine = "all as known" if known else "nothing is broken; no known corpus to compare with"
    return "\n".join([*lines, "", f"differing or broken: {bad}" if bad else fine])


def _joined(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One verdict for each file and level, with all its messages."""
    messages: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        messages.setdefault((verdict.level, verdict.about), []).append(verdict.message)
    return [Verdict(level, about, "; ".join(parts)) for (level, about), parts in messages.items()]


def _row(file: File) -> tuple[str, ...]:
    unk = "" if file.unk is None or not file.tokens else f"{100 * file.unk / file.tokens:.3g}%"
    numbers = (f"{file.rows:,}", f"{file.tokens:,}", f"{file.types:,}", unk, f"{file.empty:,}")
    return (file.path, *numbers, file.sha256[:SHOWN])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Align the first and the last column (names and checksums) left, numbers right."""
    return tabulated(rows, "plain", left=(0, len(rows[0]) - 1))


def _json(found: Directory, corpus: Corpus | None, verdicts: Sequence[Verdict]) -> str:
    content: dict[str, Any] = asdict(found)
    content["joined_dictionary"] = found.joined
    content["corpus"] = corpus.name if corpus else None
    content["verdicts"] = [asdict(verdict) for verdict in verdicts]
    return json.dumps(content, indent=1, ensure_ascii=False)
