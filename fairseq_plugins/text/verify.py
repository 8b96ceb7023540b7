"""``fairseq-deep verify-data DIR``: is this the corpus of the papers, and is it complete?

Prints counts and checksums of every file, contradictions between files, and how the directory differs from a corpus
whose published counts and checksums ``known_corpora.yaml`` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tables import tabulated
from fairseq_plugins.text.measure import File, measure, rows_of
from fairseq_plugins.text.parallel import shared_rows

LEVELS = BROKEN, DIFFERS, NOTE, SAME = ("broken", "differs", "note", "same")
"""Levels of a verdict in the order of printing; the first two make the exit code 1."""
SHOWN = 16
"""Characters of a checksum in the table."""


@dataclass(frozen=True)
class Verdict:
    """A line of the verdict: its level, the file or subject that it is about, and a message."""

    level: str
    about: str
    message: str


@cache
def known() -> Mapping[str, Mapping[str, Any]]:
    """The entries of ``known_corpora.yaml``, whose head describes them, by group and name."""
    text = files(__package__).joinpath("known_corpora.yaml").read_text(encoding="utf-8")
    return {group: {entry["name"]: entry for entry in entries} for group, entries in yaml.safe_load(text).items()}


def main(argv: Sequence[str]) -> int:
    """Measure, compare and print; 0 if everything is as known, 1 if anything differs or is contradictory."""
    description = (
        "Count and checksum a corpus, and compare it with what is published. Exit code 0: as known; 1: something "
        "differs or is broken; 2: no corpus found."
    )
    parser = OneLineParser(prog="fairseq-deep verify-data", description=description)
    kinds = "made by prepare or by fairseq-preprocess, or of text files (train.de, test.tok.en, train.de.gz, ...)"
    parser.add_argument("directory", type=Path, metavar="DIR", help=kinds)
    parser.add_argument("--expect", metavar="NAME", choices=known()["corpora"], help="the corpus that it must be")
    arguments = parser.read(argv)
    measured = measure(arguments.directory)
    name = arguments.expect or recognised(measured)
    verdicts = judged(arguments.directory, measured, name)
    print(report(measured, name, verdicts))
    return int(any(verdict.level in (DIFFERS, BROKEN) for verdict in verdicts))


def judged(directory: Path, measured: Sequence[File], name: str | None) -> list[Verdict]:
    """Compare the files of a directory with each other, and with the known corpus ``name``."""
    verdicts = [*faults(measured), *leaks(directory, measured), *compare_test_sets(measured)]
    return verdicts + (list(compare(known()["corpora"][name], measured)) if name else [])


# Published counts and checksums -------------------------------------------------------------------------------------


def recognised(measured: Sequence[File]) -> str | None:
    """The known corpus of most facts that agree, if a count of its training text or a checksum does; None without."""
    training = {file.path: file.rows for file in measured if file.split == "train"}
    evidence = {}
    for name, corpus in known()["corpora"].items():
        same = [verdict for verdict in compare(corpus, measured) if verdict.level == SAME]
        if any(verdict.about in training or "exactly" in verdict.message for verdict in same):
            # An exact number counts more than a range.
            exact = any(form["rows"] in training.values() for form in corpus["splits"]["train"])
            evidence[name] = exact, len(same)
    return max(evidence, key=lambda name: evidence[name]) if evidence else None


def compare(corpus: Mapping[str, Any], measured: Sequence[File]) -> Iterator[Verdict]:
    """Compare files with everything that is known of a corpus."""
    languages = _languages(measured)
    if languages != sorted(corpus["languages"]):
        has, needs = (" and ".join(names) or "none" for names in (languages, corpus["languages"]))
        yield Verdict(DIFFERS, "languages", f"{has}; {corpus['name']} has {needs}")
        return
    facts = [Verdict(level, file.path, said) for file in measured for level, said in _facts(corpus, file)]
    types = {file.language: file.types for file in measured if file.kind == "dictionary"}
    if types and "dictionaries" in corpus:
        form = next((form for form in corpus["dictionaries"] if form["types"] == types), None)
        sizes = " and ".join(f"{count:,}" for count in dict.fromkeys(types.values()))
        how = ", not the published number" if form is None else f": {form['is']}" if "is" in form else ""
        facts.append(Verdict(NOTE if form is None else SAME, "dictionary", f"{sizes} types{how}"))
    yield from facts
    if not any(fact.level == SAME for fact in facts):
        yield Verdict(DIFFERS, "corpus", f"nothing in it agrees with {corpus['name']}")


def _facts(corpus: Mapping[str, Any], file: File) -> Iterator[tuple[str, str]]:
    """Levels and messages about one file."""
    published = corpus.get("sha256", {})
    if file.sha256 in published.values():
        yield SAME, "exactly the published file"
    elif f"{file.kind}/{file.split}.{file.language}" in published:
        yield DIFFERS, "not the published file: its SHA-256 differs"
    forms = corpus["splits"].get(file.split, ())
    # The published text may have more rows than the training text, which lacks sentences that are too long.
    if not forms or (file.split == "train" and file.kind in ("raw", "tok")):
        return
    form = next((form for form in forms if _agrees(file.rows, form["rows"])), None)
    if form is None:
        yield DIFFERS, f"{file.rows:,} rows instead of {_shown(forms[0]['rows'])}"
        return
    if form["rows"] is not None:
        yield SAME, f"{file.rows:,} rows" + (f": {form['is']}" if "is" in form else "")
    tokens = form.get("tokens", {}).get(file.language)
    if tokens is not None and file.kind in ("text", "binarised"):
        if _agrees(file.tokens, tokens):
            yield SAME, f"{file.tokens:,} tokens"
        else:
            how = "tokenised or split into subwords differently"
            yield DIFFERS, f"{file.tokens:,} tokens instead of {_shown(tokens)}: {how}"


def _agrees(number: int, published: int | Sequence[int] | None) -> bool:
    """Whether a number is the published one, or in its range; any is where none is published."""
    if published is None or isinstance(published, int):
        return published in (None, number)
    return published[0] <= number <= published[1]


def _shown(published: int | Sequence[int]) -> str:
    return " to ".join(f"{number:,}" for number in ([published] if isinstance(published, int) else published))


def compare_test_sets(measured: Sequence[File]) -> Iterator[Verdict]:
    """Published test sets among the files, by name, and by checksum under any name."""
    published = known()["test_sets"]
    texts = {text: (name, side) for name in published for side, text in published[name].get("sha256", {}).items()}
    for file in measured:
        rows = published[file.split]["rows"] if file.split in published else None
        if isinstance(rows, dict):  # by the language besides English
            rows = next((rows[language] for language in _languages(measured) if language in rows), None)
        if file.sha256 in texts:
            name, language = texts[file.sha256]
            # `test` may be any of them; a set under the name of another set is an error.
            misnamed = language != file.language or (file.split in published and file.split != name)
            yield Verdict(DIFFERS if misnamed else SAME, file.path, f"exactly {name} in {language}")
        elif rows is not None:
            how = "" if rows == file.rows else f" instead of {rows:,}"
            yield Verdict(DIFFERS if how else SAME, file.path, f"{file.rows:,} rows{how}")


def _languages(measured: Sequence[File]) -> list[str]:
    return sorted({file.language for file in measured if file.split} - {""})


def _without_language(file: File) -> str:
    return file.path.removesuffix(".bin").removesuffix(".gz").removesuffix(file.language)


# Contradictions -----------------------------------------------------------------------------------------------------


def faults(measured: Sequence[File]) -> Iterator[Verdict]:
    """Problems of any corpus, known or not."""
    sides: dict[str, list[File]] = {}
    for file in measured:
        yield from (Verdict(BROKEN, file.path, fault) for fault in file.faults)
        # Running text has empty lines between paragraphs.
        if file.empty and file.language and file.kind != "raw":
            yield Verdict(BROKEN, file.path, f"{file.empty:,} empty lines")
        if file.split:
            # By the name without the language: train.tok.de and train.de are not compared here.
            sides.setdefault(_without_language(file), []).append(file)
    for alike in sides.values():
        # Sentence k of one language must translate sentence k of the other.
        if len({file.rows for file in alike}) > 1:
            counts = ", ".join(f"{file.path} has {file.rows:,}" for file in alike)
            yield Verdict(BROKEN, alike[0].split, f"unequal numbers of rows: {counts}")
        if missing := set(_languages(measured)) - {file.language for file in alike}:
            yield Verdict(BROKEN, alike[0].path, f"no such file in {', '.join(sorted(missing))}")
    yield from _unequal_forms(measured)


def _unequal_forms(measured: Sequence[File]) -> Iterator[Verdict]:
    """Raw, tokenised and binarised forms of one text must have equal rows, and binarising must keep every token."""
    for text, other in product([file for file in measured if file.kind == "text"], measured):
        if other.kind in ("text", "plain") or (other.split, other.language) != (text.split, text.language):
            continue
        # The training text may have been cleaned after it was tokenised.
        if other.rows != text.rows and (text.split != "train" or other.kind == "binarised"):
            yield Verdict(BROKEN, other.path, f"{other.rows:,} rows, but {text.path} has {text.rows:,}")
        elif other.kind == "binarised" and other.tokens != text.tokens:
            how = f"{other.tokens:,} tokens, but {text.path} has {text.tokens:,}: binarised from another text"
            yield Verdict(BROKEN, other.path, how)


def leaks(directory: Path, measured: Sequence[File]) -> Iterator[Verdict]:
    """Validation and test sets that are the training text, or share pairs with it."""
    for kind in ("text", "plain", "tok", "binarised"):
        names: dict[str, list[File]] = {}
        for file in measured:
            if file.kind == kind and file.language and not file.faults:
                names.setdefault(_without_language(file), []).append(file)
        sets: dict[str, list[File]] = {}
        # There may be train.bpe.de beside train.de, and test.2013.de beside test.2014.de.
        for name in sorted(names, key=len):
            sides, split = names[name], names[name][0].split
            if len(sides) == len(_languages(measured)) > 1 and not (split == "train" and split in sets):
                sets[sides[0].path if split in sets else split] = sides
        if "train" in sets and len(sets) > 1:
            yield from _leaks(directory, sets)
            return


def _leaks(directory: Path, sets: Mapping[str, Sequence[File]]) -> Iterator[Verdict]:
    digests = {name: [file.sha256 for file in sides] for name, sides in sets.items()}
    for name in sets:
        if name != "train" and digests[name] == digests["train"]:
            yield Verdict(BROKEN, name, "the same text as train: what is measured on it says nothing")
        elif name not in ("train", "valid") and digests[name] == digests.get("valid"):
            yield Verdict(NOTE, name, "the same text as valid, on which checkpoints are chosen")
    pairs = {name: zip(*(rows_of(directory, file) for file in sets[name]), strict=False) for name in sets}
    for name, count in shared_rows(pairs.pop("train"), pairs).items():
        if count:
            yield Verdict(NOTE, name, f"{count:,} of {sets[name][0].rows:,} pairs are also in train")


# Output -------------------------------------------------------------------------------------------------------------


def report(measured: Sequence[File], corpus: str | None, verdicts: Sequence[Verdict]) -> str:
    """The table and the verdict."""
    rows = []
    for file in measured:
        unk = "" if file.unk is None or not file.tokens else f"{100 * file.unk / file.tokens:.3g}%"
        counts = [f"{count:,}" if file.split else "" for count in (file.rows, file.tokens, file.empty)]
        types = f"{file.types:,}" if file.kind != "codes" else ""
        rows.append((file.path, counts[0], counts[1], types, unk, counts[2], file.sha256[:SHOWN]))
    head = ("file", "rows", "tokens", "types", "<unk>", "empty", "SHA-256")
    lines = [tabulated([head, *rows], "plain", left=(0, len(head) - 1)), ""]
    title = known()["corpora"][corpus]["title"] if corpus else ""
    lines.append(f"{corpus}: {title}" if corpus else f"not one of the known corpora: {', '.join(known()['corpora'])}")
    messages: dict[tuple[str, str], list[str]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: LEVELS.index(verdict.level)):
        messages.setdefault((verdict.level, verdict.about), []).append(verdict.message)
    lines += [f"  {level:<9}{about}: {'; '.join(dict.fromkeys(said))}" for (level, about), said in messages.items()]
    bad = sum(verdict.level in (DIFFERS, BROKEN) for verdict in verdicts)
    fine = "all as known" if any(verdict.level == SAME for verdict in verdicts) else "nothing is broken"
    return "\n".join([*lines, "", f"differing or broken: {bad}" if bad else fine])
