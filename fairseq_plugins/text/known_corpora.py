"""The corpora of ``known_corpora.yaml``, and the comparison of a measured directory with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from fairseq_plugins.text.measure import Directory, File

Count = int | Sequence[int]
"""One number, or the first and the last of a range."""

NEAR = 0.01
"""Maximum share of lost sentences for a split to be recognised."""

SAME, NOTE, DIFFERS, BROKEN = "same", "note", "differs", "broken"
"""Levels of a verdict; the last two make the exit code 1."""


@dataclass(frozen=True)
class Verdict:
    """One line of the verdict: a level, the file or subject, and a message."""

    level: str
    about: str
    message: str

    def __str__(self) -> str:
        return f"{self.level:<9}{self.about}: {self.message}"


def is_one_of(number: int, known: Count) -> bool:
    """Whether ``number`` equals the known one or is in the known range."""
    return number == known if isinstance(known, int) else known[0] <= number <= known[1]


def shown(known: Count) -> str:
    """``1,000``, or ``1,000 to 1,100``."""
    return f"{known:,}" if isinstance(known, int) else " to ".join(f"{number:,}" for number in known)


@dataclass(frozen=True)
class Form:
    """One known form of a split; see the head of ``known_corpora.yaml``."""

    rows: Count | None
    tokens: Mapping[str, Count] = field(default_factory=dict)
    unk: Mapping[str, int] = field(default_factory=dict)
    description: str = ""
    wrong: bool = False
    tells: bool = False

    def has(self, rows: int) -> bool:
        """Whether a split of ``rows`` rows may be this one."""
        return self.rows is None or is_one_of(rows, self.rows)

    def lost(self, rows: int) -> int:
        """Number of lost sentences, if the split is this one with few sentences lost; else 0."""
        if not isinstance(self.rows, int):
            return 0
        missing = self.rows - rows
        return missing if 0 < missing <= NEAR * self.rows else 0


@dataclass(frozen=True)
class Corpus:
    """One known preparation of one corpus; see the head of ``known_corpora.yaml``."""

    name: str
    title: str
    languages: frozenset[str]
    splits: Mapping[str, Sequence[Form]]
    dictionaries: Sequence[Mapping[str, Any]] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    variant_of: str | None = None

    def form(self, split: str, rows: int) -> Form | None:
        """The known form of a split with this number of rows."""
        return next((form for form in self.splits.get(split, ()) if form.has(rows)), None)

    def speaks_of(self, found: Directory) -> bool:
        """Whether its languages match the directory's."""
        return bool(found.languages) == bool(self.languages) and self.languages <= set(found.languages)


@dataclass(frozen=True)
class TestSet:
    """A published test set, known in any corpus by its name."""

    __test__ = False
    name: str
    rows: int | Mapping[str, int]
    known_as: Mapping[int, str]
    sha256: Mapping[str, str]

    def rows_with(self, languages: Sequence[str]) -> int | None:
        """Number of rows; None if it depends on the language besides English and that is unknown."""
        if isinstance(self.rows, int):
            return self.rows
        return next((self.rows[language] for language in languages if language in self.rows), None)


@cache
def _data() -> Mapping[str, Any]:
    text = files(__package__).joinpath("known_corpora.yaml").read_text(encoding="utf-8")
    data: Mapping[str, Any] = yaml.safe_load(text)
    return data


@cache
def corpora() -> Mapping[str, Corpus]:
    """All known corpora by name."""
    return {entry["name"]: _corpus(entry) for entry in _data()["corpora"]}


@cache
def test_sets() -> Mapping[str, TestSet]:
    """All known test sets by name."""
    entries = _data()["test_sets"]
    return {
        entry["name"]: TestSet(entry["name"], entry["rows"], entry.get("known_as", {}), entry.get("sha256", {}))
        for entry in entries
    }


def _corpus(entry: Mapping[str, Any]) -> Corpus:
    splits = {name: [_form(form) for form in forms] for name, forms in entry["splits"].items()}
    return Corpus(
        entry["name"],
        entry["title"],
        frozenset(entry["languages"]),
        splits,
        entry.get("dictionaries", ()),
        entry.get("sha256", {}),
        entry.get("variant_of"),
    )


def _form(entry: Mapping[str, Any]) -> Form:
    return Form(
        entry["rows"],
        entry.get("tokens", {}),
        entry.get("unk", {}),
        entry.get("is", ""),
        entry.get("wrong", False),
        entry.get("tells", False),
    )


def recognise(found: Directory) -> Corpus | None:
    """The known corpus that is most similar to the directory; None if none is.

    A corpus is recognised by its training set or by a checksum. The size of a test set only counts if it is marked as
    distinctive, because many corpora have one of 1,000 rows.
    """
    ranked = [(evidence(corpus, found), corpus) for corpus in corpora().values() if corpus.speaks_of(found)]
    best = max(ranked, key=lambda pair: pair[0], default=None)
    return best[1] if best is not None and best[0] >= 1 else None


def evidence(corpus: Corpus, found: Directory) -> float:
    """How well ``found`` agrees with ``corpus``; at least 1 means that it is this corpus."""
    total = 0.0
    for file in found.files:
        forms = corpus.splits.get(file.split, ())
        alike = [form for form in forms if form.rows is not None and form.has(file.rows)]
        if file.split == "train":
            # An exact number counts more than a range.
            total += max((2.0 if form.rows == file.rows else 1.9 for form in alike), default=0.0) or any(
                form.lost(file.rows) for form in forms
            )
        total += 2.0 if any(form.tells for form in alike) else 0.01 * bool(alike)
        total += any(is_one_of(file.tokens, form.tokens.get(file.language, -1)) for form in forms)
        total += file.sha256 in corpus.sha256.values()
    total += 0.5 * (_agreeing_dictionary(corpus, found) is not None)
    return total + sum(vocabulary.sha256 in corpus.sha256.values() for vocabulary in found.vocabularies)


def compare(corpus: Corpus, found: Directory) -> Iterator[Verdict]:
    """Compare the directory with every known fact of ``corpus``."""
    for split in dict.fromkeys(file.split for file in found.files):
        if split in corpus.splits:
            yield from _compare_rows(corpus, split, found)
    for file in found.files:
        yield from _compare_tokens(corpus, file, found.joined)
    yield from _compare_dictionaries(corpus, found)
    yield from _compare_sums(corpus, found)


def _compare_rows(corpus: Corpus, split: str, found: Directory) -> Iterator[Verdict]:
    # The published text may have more rows than the training text, which lacks sentences that are too long.
    kept = [file for file in found.of_split(split) if split != "train" or file.kind not in ("raw", "tok")]
    verdicts = (_rows_verdict(corpus, split, rows) for rows in dict.fromkeys(file.rows for file in kept))
    yield from (verdict for verdict in verdicts if verdict is not None)


def _rows_verdict(corpus: Corpus, split: str, rows: int) -> Verdict | None:
    """Compare the number of rows; None if it is unknown."""
    form = corpus.form(split, rows)
    if form is not None:
        if form.rows is None:
            return None
        says = f"{rows:,} rows" + (f": {form.description}" if form.description else "")
        return Verdict(DIFFERS if form.wrong else SAME, split, says)
    usual = corpus.splits[split][0]
    lost = usual.lost(rows)
    why = f": {lost:,} sentences dropped" if lost else ""
    return Verdict(DIFFERS, split, f"{rows:,} rows instead of {shown(usual.rows or 0)}{why}")


def _compare_tokens(corpus: Corpus, file: File, joined: bool) -> Iterator[Verdict]:
    form = corpus.form(file.split, file.rows)
    if form is None or file.kind not in ("text", "binarised"):
        return
    tokens, unk = form.tokens.get(file.language), form.unk.get(file.language)
    if tokens is not None:
        same = is_one_of(file.tokens, tokens)
        how = "" if same else f" instead of {shown(tokens)}: tokenised or split into subwords differently"
        yield Verdict(SAME if same else DIFFERS, file.path, f"{file.tokens:,} tokens{how}")
    # The known numbers are for separate dictionaries; a joined one also has the words of the other language.
    if unk is not None and file.unk is not None and not joined:
        how = "" if unk == file.unk else f" instead of {unk:,}"
        yield Verdict(DIFFERS if how else SAME, file.path, f"{file.unk:,} <unk>{how}")


def _compare_dictionaries(corpus: Corpus, found: Directory) -> Iterator[Verdict]:
    if not corpus.dictionaries or not found.vocabularies:
        return
    about = ", ".join(vocabulary.path for vocabulary in found.vocabularies)
    types = {vocabulary.language: vocabulary.types for vocabulary in found.vocabularies}
    sizes = " and ".join(f"{count:,}" for count in dict.fromkeys(types.values()))
    agreeing = _agreeing_dictionary(corpus, found)
    if agreeing is not None:
        described = f": {agreeing['is']}" if "is" in agreeing else ""
        yield Verdict(SAME, about, f"{sizes} types{described}")
        return
    known = "; ".join(_described(entry) for entry in corpus.dictionaries)
    # A joined dictionary where only separate ones are known, or vice versa, is not a defect.
    chosen = any(("joined" in entry) == found.joined for entry in corpus.dictionaries)
    yield Verdict(DIFFERS if chosen else NOTE, about, f"{sizes} types; known: {known}")


def _agreeing_dictionary(corpus: Corpus, found: Directory) -> Mapping[str, Any] | None:
    """The known dictionaries that have as many types."""
    types = {vocabulary.language: vocabulary.types for vocabulary in found.vocabularies}
    for entry in corpus.dictionaries:
        if entry.get("types") == types or (found.joined and {entry.get("joined")} == set(types.values())):
            return entry
    return None


def _described(entry: Mapping[str, Any]) -> str:
    if "joined" in entry:
        return f"{entry['joined']:,} joined"
    return " and ".join(f"{count:,} ({language})" for language, count in entry["types"].items())


def _compare_sums(corpus: Corpus, found: Directory) -> Iterator[Verdict]:
    known = {total: name for name, total in corpus.sha256.items()}
    for file in found.files:
        if file.sha256 in known:
            yield Verdict(SAME, file.path, f"exactly the known text ({known[file.sha256]})")
        elif _should_be_known(corpus, file):
            yield Verdict(DIFFERS, file.path, "not the known text: its SHA-256 differs")
    for vocabulary in found.vocabularies:
        if vocabulary.sha256 in known:
            yield Verdict(SAME, vocabulary.path, "exactly the known dictionary")
    for name, total in found.codes.items():
        if total in known:
            yield Verdict(SAME, name, "exactly the known byte-pair merges")


def _should_be_known(corpus: Corpus, file: File) -> bool:
    """Whether the checksum of such a file is known and worth comparing: other rows always have another one."""
    if corpus.form(file.split, file.rows) is None:
        return False
    return file.kind in ("text", "tok", "raw") and f"{file.kind}/{file.split}.{file.language}" in corpus.sha256


def compare_test_sets(found: Directory) -> Iterator[Verdict]:
    """Published test sets among the files, recognised by name, or by checksum under any name."""
    known_texts = {
        total: (name, language) for name, known in test_sets().items() for language, total in known.sha256.items()
    }
    for file in found.files:
        if file.sha256 in known_texts:
            name, language = known_texts[file.sha256]
            # `test` may be any of them; a set under the name of another set is an error.
            misnamed = language != file.language or (file.split in test_sets() and file.split != name)
            yield Verdict(DIFFERS if misnamed else SAME, file.path, f"exactly {name} in {language}")
    for split, known in test_sets().items():
        expected = known.rows_with(found.languages)
        for rows in dict.fromkeys(file.rows for file in found.of_split(split) if expected is not None):
            if rows == expected:
                yield Verdict(SAME, split, f"{rows:,} rows")
            elif rows in known.known_as:
                yield Verdict(NOTE, split, f"{rows:,} rows: {known.known_as[rows]}")
            else:
                yield Verdict(DIFFERS, split, f"{rows:,} rows instead of {expected:,}")
