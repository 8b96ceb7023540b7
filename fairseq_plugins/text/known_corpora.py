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


@dataclass(frozen=True)
class Corpus:
    """One preparation of one corpus, with the facts that papers or logs state; see the head of ``known_corpora.yaml``.

    Args:
        name: for ``--expect``.
        title: what it is.
        languages: of its files; empty for a language model.
        splits: the known forms of each split, the canonical one first.
        dictionaries: the known types, by language or joined.
        sha256: of texts, dictionaries and merges.
    """

    name: str
    title: str
    languages: Sequence[str]
    splits: Mapping[str, Sequence[Mapping[str, Any]]]
    dictionaries: Sequence[Mapping[str, Any]] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)

    def compare(self, measured: Directory) -> Iterator[Verdict]:
        """Compare a directory with every known fact."""
        for file in measured.files:
            yield from self._compare_file(file, measured.joined)
        if self.dictionaries and measured.vocabularies:
            yield self._compare_dictionaries(measured)
        for vocabulary in measured.vocabularies:
            if vocabulary.sha256 in self.sha256.values():
                yield Verdict(SAME, vocabulary.path, "exactly the known dictionary")
        for name, digest in measured.codes.items():
            if digest in self.sha256.values():
                yield Verdict(SAME, name, "exactly the known byte-pair merges")

    def _compare_file(self, file: File, joined: bool) -> Iterator[Verdict]:
        forms = self.splits.get(file.split, ())
        # The published text may have more rows than the training text, which lacks sentences that are too long.
        if not forms or (file.split == "train" and file.kind in ("raw", "tok")):
            return
        form = next((form for form in forms if _agrees(file.rows, form["rows"])), None)
        if form is None:
            yield Verdict(DIFFERS, file.path, f"{file.rows:,} rows instead of {_shown(forms[0]['rows'])}")
            return
        if form["rows"] is not None:
            described = f": {form['is']}" if "is" in form else ""
            yield Verdict(SAME, file.path, f"{file.rows:,} rows{described}")
        if file.kind in ("text", "binarised"):
            yield from _compare_counts(file, form, joined)
        if file.sha256 in self.sha256.values():
            yield Verdict(SAME, file.path, "exactly the known text")
        elif f"{file.kind}/{file.split}.{file.language}" in self.sha256:
            yield Verdict(DIFFERS, file.path, "not the known text: its SHA-256 differs")

    def _compare_dictionaries(self, measured: Directory) -> Verdict:
        about = ", ".join(vocabulary.path for vocabulary in measured.vocabularies)
        types = {vocabulary.language: vocabulary.types for vocabulary in measured.vocabularies}
        sizes = " and ".join(f"{count:,}" for count in dict.fromkeys(types.values()))
        for entry in self.dictionaries:
            if entry.get("types") == types or (measured.joined and {entry.get("joined")} == set(types.values())):
                return Verdict(SAME, about, f"{sizes} types" + (f": {entry['is']}" if "is" in entry else ""))
        known = "; ".join(
            f"{entry['joined']:,} joined"
            if "joined" in entry
            else " and ".join(f"{count:,} ({language})" for language, count in entry["types"].items())
            for entry in self.dictionaries
        )
        # A joined dictionary where only separate ones are known, or vice versa, is not a defect.
        comparable = any(("joined" in entry) == measured.joined for entry in self.dictionaries)
        return Verdict(DIFFERS if comparable else NOTE, about, f"{sizes} types; known: {known}")


def _agrees(number: int, known: Count | None) -> bool:
    """Whether a number is the known one, or in the known range; any is where none is known."""
    if known is None or isinstance(known, int):
        return known in (None, number)
    return known[0] <= number <= known[1]


def _shown(known: Count) -> str:
    return f"{known:,}" if isinstance(known, int) else " to ".join(f"{number:,}" for number in known)


def _compare_counts(file: File, form: Mapping[str, Any], joined: bool) -> Iterator[Verdict]:
    tokens, unk = (form.get(count, {}).get(file.language) for count in ("tokens", "unk"))
    if tokens is not None:
        same = _agrees(file.tokens, tokens)
        how = "" if same else f" instead of {_shown(tokens)}: tokenised or split into subwords differently"
        yield Verdict(SAME if same else DIFFERS, file.path, f"{file.tokens:,} tokens{how}")
    # The known numbers are for separate dictionaries; a joined one also has the words of the other language.
    if unk is not None and file.unk is not None and not joined:
        how = "" if unk == file.unk else f" instead of {unk:,}"
        yield Verdict(DIFFERS if how else SAME, file.path, f"{file.unk:,} <unk>{how}")


@cache
def _data() -> Mapping[str, Any]:
    text = files(__package__).joinpath("known_corpora.yaml").read_text(encoding="utf-8")
    data: Mapping[str, Any] = yaml.safe_load(text)
    return data


@cache
def corpora() -> Mapping[str, Corpus]:
    """All known corpora by name."""
    return {entry["name"]: Corpus(**entry) for entry in _data()["corpora"]}


def recognise(measured: Directory) -> Corpus | None:
    """The known corpus of most facts that agree, if a count of its training text or a checksum does; None without."""
    training = {file.path for file in measured.of_split("train")}
    rows = [file.rows for file in measured.of_split("train")]
    evidence = {}
    for corpus in corpora().values():
        same = [verdict for verdict in corpus.compare(measured) if verdict.level == SAME]
        exact = any(form["rows"] in rows for form in corpus.splits["train"])
        told = any(verdict.about in training or "exactly" in verdict.message for verdict in same)
        if told and set(corpus.languages) == set(measured.languages):
            # An exact number counts more than a range.
            evidence[corpus.name] = exact, len(same)
    return corpora()[max(evidence, key=lambda name: evidence[name])] if evidence else None


def compare_test_sets(measured: Directory) -> Iterator[Verdict]:
    """Published test sets among the files, by name, and by checksum under any name."""
    known = {entry["name"]: entry for entry in _data()["test_sets"]}
    texts = {digest: (name, language) for name in known for language, digest in known[name].get("sha256", {}).items()}
    for file in measured.files:
        rows = known[file.split]["rows"] if file.split in known else None
        if isinstance(rows, dict):  # by the language besides English
            rows = next((rows[language] for language in measured.languages if language in rows), None)
        if file.sha256 in texts:
            name, language = texts[file.sha256]
            # `test` may be any of them; a set under the name of another set is an error.
            misnamed = language != file.language or (file.split in known and file.split != name)
            yield Verdict(DIFFERS if misnamed else SAME, file.path, f"exactly {name} in {language}")
        elif rows is not None:
            how = "" if rows == file.rows else f" instead of {rows:,}"
            yield Verdict(DIFFERS if how else SAME, file.path, f"{file.rows:,} rows{how}")
