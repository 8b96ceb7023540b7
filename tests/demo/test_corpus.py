"""Sentences of the embedded corpus, held against forms and orders written down here by hand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

from fairseq_plugins.tools.demo.corpus import (
    Clause,
    Pair,
    Word,
    english_clause,
    german_clause,
    lexicon,
    noun_phrase,
    pairs,
    write_corpus,
)

NOTHING = Pair("", "")
NEW_BOOK = {"definite": Pair("das neue Buch", "the new book"), "negative": Pair("kein neues Buch", "a new book")}


def word(kind: str, german: str) -> Word:
    (entry,) = [entry for entry in lexicon()[kind] if entry["german"] == german]
    return entry


def clause_of(verb: Word, tense: str, more: Sequence[str]) -> Clause:
    """*der Mann* does something, with *das neue Buch* where the verb takes an object; ``more`` is what differs."""
    takes_object = verb["takes"] == "accusative" and "alone" not in more
    return Clause(
        subject=noun_phrase(word("noun", "Mann"), None, "definite", "nominative", "plural" in more),
        plural="plural" in more,
        verb=verb,
        tense=tense,
        modal=word("modal", "wird" if "wird" in more else "kann"),
        objects=NEW_BOOK["negative" if "kein" in more else "definite"] if takes_object else NOTHING,
        time=Pair("heute", "today") if "today" in more else NOTHING,
        place=Pair("hier", "here") if "today" in more else NOTHING,
        negated="not" in more,
        nicht="not" in more and "kein" not in more,
    )


ENGLISH = """
indefinite        Apfel -      | an apple
indefinite        Apfel frisch | a fresh apple
indefinite        Buch  alt    | an old book
negative          Buch  alt    | an old book
indefinite plural Buch  alt    | old books
negative plural   Buch  alt    | any old books
definite plural   Frau  -      | the women
"""


def test_english_noun_phrases() -> None:
    for line in ENGLISH.strip().splitlines():
        words, _, english = line.partition(" | ")
        article, *plural, noun, adjective = words.split()
        described = None if adjective == "-" else word("adjective", adjective)
        assert noun_phrase(word("noun", noun), described, article, "accusative", bool(plural)).english == english


CLAUSES = """
past lesen today | statement | der Mann hat heute das neue Buch hier gelesen | the man read the new book here today
past lesen today | time first | heute hat der Mann das neue Buch hier gelesen | today the man read the new book here
past lesen today | question | hat der Mann heute das neue Buch hier gelesen | did the man read the new book here today
past lesen today | subordinate | der Mann heute das neue Buch hier gelesen hat | the man read the new book here today
present ab|holen alone        | statement   | der Mann holt ab | the man picks up
present ab|holen alone plural | statement   | die Männer holen ab | the men pick up
present ab|holen alone        | question    | holt der Mann ab | does the man pick up
present ab|holen alone        | subordinate | der Mann abholt | the man picks up
present ab|holen alone plural | subordinate | die Männer abholen | the men pick up
past ab|holen alone           | statement   | der Mann hat abgeholt | the man picked up
past ab|holen alone plural    | subordinate | die Männer abgeholt haben | the men picked up
modal ab|holen alone          | statement   | der Mann kann abholen | the man can pick up
modal ab|holen alone plural   | subordinate | die Männer abholen können | the men can pick up
modal ab|holen alone plural   | question    | können die Männer abholen | can the men pick up
present lesen not       | statement   | der Mann liest das neue Buch nicht | the man does not read the new book
present lesen not kein  | statement   | der Mann liest kein neues Buch | the man does not read a new book
past lesen not          | question    | hat der Mann das neue Buch nicht gelesen | did the man not read the new book
modal lesen not         | subordinate | der Mann das neue Buch nicht lesen kann | the man cannot read the new book
past schlafen not       | statement   | der Mann hat nicht geschlafen | the man did not sleep
modal schlafen not      | question    | kann der Mann nicht schlafen | can the man not sleep
modal schlafen not      | statement   | der Mann kann nicht schlafen | the man cannot sleep
modal schlafen not wird | statement   | der Mann wird nicht schlafen | the man will not sleep
"""
"""Tense, verb and what else is said; order; German; English."""


def test_word_order_tenses_and_negation_of_both_languages() -> None:
    for line in CLAUSES.strip().splitlines():
        content, order, german, english = (cell.strip() for cell in line.split(" | "))
        tense, verb, *more = content.split()
        clause = clause_of(word("verb", verb), tense, more)
        assert (german_clause(clause, order), english_clause(clause, order)) == (german, english)


def test_both_sides_say_the_same() -> None:
    """Counted apart from the generator: each content word on one side has its translation on the other."""
    forms = ("german", "german_plural", "english", "english_plural")
    for pair in islice(pairs(20), 4000):
        german, english = (re.findall(r"\w+", side.lower()) for side in pair)
        for noun in lexicon()["noun"]:
            singular, plural, one, several = (noun[form].lower() for form in forms)
            in_german = sum(word in (singular, plural, plural + "n") for word in german)
            assert in_german == sum(word in (one, several) for word in english), pair
        assert pair.german[-1] == pair.english[-1]
        assert (", " in pair.german) == bool({"that", "because", "although"} & set(english)), pair
        negations = len(re.findall(r"\b(nicht|[Kk]ein\w*)\b", pair.german))
        assert negations == len(re.findall(r"\b(not|cannot)\b", pair.english)), pair


FILES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")]
SIZES = {"train": 8000, "valid": 200, "test": 200}


DIGEST = "f00f31e3d9ce1dfe0ec5f437b35574803c859abe592b76247d2463c0d430f558"
"""SHA-256 of the six files at the size of the demo; other text would make other scores than the published ones."""


def test_the_demo_s_text_never_changes_and_its_splits_share_nothing(tmp_path: Path) -> None:
    write_corpus(tmp_path, **SIZES)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    texts = {name: (tmp_path / name).read_bytes() for name in FILES}
    assert hashlib.sha256(b"".join(texts[name] for name in sorted(texts))).hexdigest() == DIGEST
    words: dict[str, set[str]] = {}
    for language in ("de", "en"):
        lines = {split: texts[f"{split}.{language}"].decode().splitlines() for split in SIZES}
        assert {split: len(sentences) for split, sentences in lines.items()} == SIZES
        assert len(set(chain.from_iterable(lines.values()))) == sum(SIZES.values())
        words |= {f"{split}.{language}": set(re.findall(r"\w+", " ".join(lines[split]))) for split in lines}
    # Every word to be translated is known from training.
    assert words["test.de"] <= words["train.de"]
