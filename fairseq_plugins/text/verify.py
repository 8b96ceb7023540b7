"""``fairseq-deep verify-data DIR``: is this the corpus of the papers, and is it complete?

Prints counts and checksums of every file, contradictions between files, and how the directory differs from a corpus
whose published counts and checksums are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

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
    parser = OneLineParser(
        prog="fairseq-deep verify-data",
        description="Count and checksum a corpus, and compare it with what is published. Exit code 0: as known; "
        "1: something differs or is broken; 2: no corpus found.",
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
    arguments = parser.read(argv)
    if arguments.list:
        print("\n".join(f"{corpus.name:<22}{corpus.title}" for corpus in corpora().values()))
        return 0
    if arguments.directory is None:
        raise UserError("no directory given: fairseq-deep verify-data DIR")
    if arguments.expect is not None and arguments.expect not in corpora():
        raise UserError(unknown_name("corpus", arguments.expect, corpora()))
    measured = measure(arguments.directory)
    corpus = corpora()[arguments.expect] if arguments.expect else recognise(measured)
    verdicts = [*faults(measured), *leaks(measured), *compare_test_sets(measured), *judgement(measured, corpus)]
    if arguments.json:
        content = asdict(measured) | {"joined_dictionary": measured.joined, "corpus": corpus.name if corpus else None}
        content["verdicts"] = [asdict(verdict) for verdict in verdicts]
        print(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        print(report(measured, corpus, verdicts))
    return int(any(verdict.level in (DIFFERS, BROKEN) for verdict in verdicts))


def judgement(measured: Directory, corpus: Corpus | None) -> Iterator[Verdict]:
    """The differences from a known corpus."""
    if corpus is None:
        return
    if not set(corpus.languages) <= set(measured.languages) or bool(corpus.languages) != bool(measured.languages):
        languages = " and ".join(corpus.languages) or "no language in the file names"
        has = " and ".join(measured.languages) or "none"
        yield Verdict(DIFFERS, "languages", f"{has}; {corpus.name} has {languages}")
        return
    facts = list(corpus.compare(measured))
    yield from facts
    if not any(fact.level == SAME for fact in facts):
        yield Verdict(DIFFERS, "corpus", f"nothing in it agrees with {corpus.name}")


# Contradictions -----------------------------------------------------------------------------------------------------


def faults(measured: Directory) -> Iterator[Verdict]:
    """Problems of any corpus, known or not."""
    for file in measured.files:
        yield from (Verdict(BROKEN, file.path, fault) for fault in file.faults)
    for vocabulary in measured.vocabularies:
        yield from (Verdict(BROKEN, vocabulary.path, fault) for fault in vocabulary.faults)
    for split in dict.fromkeys(file.split for file in measured.files):
        yield from _unequal_languages(measured.of_split(split), measured.languages)
        yield from _unequal_kinds(measured.of_split(split))
    for file in measured.files:
        # Running text has empty lines between paragraphs.
        if file.empty and file.language and file.kind != "raw":
            yield Verdict(BROKEN, file.path, f"{file.empty:,} empty lines")


def _unequal_languages(files: Sequence[File], languages: Sequence[str]) -> Iterator[Verdict]:
    """Sentence k of one language must translate sentence k of the other."""
    groups: dict[str, list[File]] = {}
    for file in files:
        # By the name without the language: train.tok.de and train.de are not compared here.
        name = file.path.removesuffix(".bin").removesuffix(".gz").removesuffix(file.language)
        groups.setdefault(name, []).append(file)
    for alike in groups.values():
        if len({file.rows for file in alike}) > 1:
            counts = ", ".join(f"{file.path} has {file.rows:,}" for file in alike)
            yield Verdict(BROKEN, alike[0].split, f"unequal numbers of rows: {counts}")
        missing = sorted(set(languages) - {file.language for file in alike})
        if missing:
            yield Verdict(BROKEN, alike[0].path, f"no such file in {', '.join(missing)}")


def _unequal_kinds(files: Sequence[File]) -> Iterator[Verdict]:
    """Raw, tokenised and binarised forms of one text must have equal rows, and binarising must keep every token."""
    for text, other in product([file for file in files if file.kind == "text"], files):
        if other.kind in ("text", "plain") or other.language != text.language:
            continue
        # The training text may have been cleaned after it was tokenised.
        if other.rows != text.rows and (text.split != "train" or other.kind == "binarised"):
            yield Verdict(BROKEN, other.path, f"{other.rows:,} rows, but {text.path} has {text.rows:,}")
        elif other.kind == "binarised" and other.tokens != text.tokens:
            how = f"{other.tokens:,} tokens, but {text.path} has {text.tokens:,}: binarised from another text"
            yield Verdict(BROKEN, other.path, how)


# Training text in other sets ----------------------------------------------------------------------------------------


def leaks(measured: Directory) -> Iterator[Verdict]:
    """Validation and test sets that are the training text, or share pairs with it."""
    for kind in ("text", "plain", "binarised"):
        splits: dict[str, list[File]] = {}
        for file in measured.files:
            if file.kind == kind and file.language in measured.languages and not file.faults:
                splits.setdefault(file.split, []).append(file)
        whole = {name: files for name, files in splits.items() if len(files) == len(measured.languages) > 1}
        training = whole.pop("train", None)
        if training is not None and whole:
            yield from _leaks(measured, training, whole)
            return


def _leaks(measured: Directory, training: Sequence[File], others: Mapping[str, Sequence[File]]) -> Iterator[Verdict]:
    def pairs(files: Sequence[File]) -> Iterator[tuple[bytes, ...]]:
        return zip(*(rows_of(measured, file) for file in files), strict=False)

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


# Output -------------------------------------------------------------------------------------------------------------


def report(measured: Directory, corpus: Corpus | None, verdicts: Sequence[Verdict]) -> str:
    """The tables and the verdict."""
    bad = sum(verdict.level in (DIFFERS, BROKEN) for verdict in verdicts)
    lines = [f"{measured.path} ({measured.layout}; {' '.join(measured.languages) or 'one language'})", ""]
    head = ("file", "rows", "tokens", "types", "<unk>", "empty", "SHA-256")
    lines.append(_table([head, *map(_row, measured.files)]))
    if measured.vocabularies:
        rows = [(item.path, f"{item.types:,}", item.sha256[:SHOWN]) for item in measured.vocabularies]
        shared = "dictionary, joined" if measured.joined and len(rows) > 1 else "dictionary"
        lines += ["", _table([(shared, "types", "SHA-256"), *rows])]
    lines += ["", f"{corpus.name}: {corpus.title}" if corpus else "not one of the known corpora (--list)"]
    messages: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        messages.setdefault((verdict.level, verdict.about), []).append(verdict.message)
    joined = [Verdict(level, about, "; ".join(dict.fromkeys(parts))) for (level, about), parts in messages.items()]
    lines += [f"  {verdict}" for verdict in sorted(joined, key=lambda verdict: LEVELS.index(verdict.level))]
    known = any(verdict.level == SAME for verdict in verdicts)
    fine = "all as known" if known else "nothing is broken; no known corpus to compare with"
    return "\n".join([*lines, "", f"differing or broken: {bad}" if bad else fine])


def _row(file: File) -> tuple[str, ...]:
    unk = "" if file.unk is None or not file.tokens else f"{100 * file.unk / file.tokens:.3g}%"
    numbers = (f"{file.rows:,}", f"{file.tokens:,}", f"{file.types:,}", unk, f"{file.empty:,}")
    return (file.path, *numbers, file.sha256[:SHOWN])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Align the first and the last column (names and checksums) left, numbers right."""
    return tabulated(rows, "plain", left=(0, len(rows[0]) - 1))
