"""Sentences of the embedded corpus, held against forms and orders written down here by hand."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from fairseq_plugins.demo.corpus import (
    Clause,
    Pair,
    Word,
    english_clause,
    german_clause,
    lexicon,
    noun_phrase,
    pairs,
)

NOTHING = Pair("", "")
NEW_BOOK = {"definite": Pair("das neue Buch", "the new book"), "negative": Pair("kein neues Buch", "a new book")}

# Article and ending of the adjective, of every gender in every case: the tables of a school grammar.
DEFINITE = {
    "nominative": {"m": ("der", "e"), "f": ("die", "e"), "n": ("das", "e"), "plural": ("die", "en")},
    "accusative": {"m": ("den", "en"), "f": ("die", "e"), "n": ("das", "e"), "plural": ("die", "en")},
    "dative": {"m": ("dem", "en"), "f": ("der", "en"), "n": ("dem", "en"), "plural": ("den", "en")},
}
INDEFINITE = {
    "nominative": {"m": ("ein", "er"), "f": ("eine", "e"), "n": ("ein", "es"), "plural": ("", "e")},
    "accusative": {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es"), "plural": ("", "e")},
    "dative": {"m": ("einem", "en"), "f": ("einer", "en"), "n": ("einem", "en"), "plural": ("", "en")},
}
NEGATIVE = {
    case: {gender: (f"k{article}" if article else "", ending) for gender, (article, ending) in forms.items()}
    for case, forms in INDEFINITE.items()
}
NEGATIVE["accusative"]["plural"] = ("keine", "en")
NEGATIVE["dative"]["plural"] = ("keinen", "en")
TABLES = {"definite": DEFINITE, "indefinite": INDEFINITE, "negative": NEGATIVE}
CASES = [(article, case) for article in TABLES for case in DEFINITE if (article, case) != ("negative", "nominative")]
DATIVE_PLURALS = set(
    "Männern Frauen Kindern Vätern Müttern Tanten Ärzten Lehrerinnen Mädchen Hunden Katzen Pferden Äpfeln Suppen Eiern"
    " Tomaten Büchern Briefen Zeitungen Tischen Taschen Bildern Fahrrädern".split()
)
GENDERS = {
    "m": "Mann Vater Arzt Hund Apfel Brief Tisch",
    "f": "Frau Mutter Tante Lehrerin Katze Suppe Tomate Zeitung Tasche",
    "n": "Kind Mädchen Pferd Ei Buch Bild Fahrrad",
}


def word(kind: str, german: str) -> Word:
    (entry,) = [entry for entry in lexicon()[kind] if entry["german"] == german]
    return entry


def clause_of(
    verb: str,
    tense: str,
    *,
    plural: bool = False,
    article: str = "definite",
    negated: bool = False,
    time: Pair = NOTHING,
    place: Pair = NOTHING,
) -> Clause:
    """*der Mann* or *die Männer* do something, with *das neue Buch* where the verb takes an object."""
    entry = word("verb", verb)
    return Clause(
        subject=noun_phrase(word("noun", "Mann"), None, "definite", "nominative", plural),
        plural=plural,
        verb=entry,
        tense=tense,
        modal=word("modal", "kann"),
        objects=NEW_BOOK[article] if entry["takes"] == "accusative" else NOTHING,
        time=time,
        place=place,
        negated=negated,
        nicht=negated and article != "negative",
    )


def said(clause: Clause, order: str) -> tuple[str, str]:
    return german_clause(clause, order), english_clause(clause, order)


def test_every_noun_has_its_gender() -> None:
    assert {noun["german"]: noun["gender"] for noun in lexicon()["noun"]} == {
        noun: gender for gender, nouns in GENDERS.items() for noun in nouns.split()
    }


@pytest.mark.parametrize(("article", "case"), CASES)
def test_every_noun_agrees_with_article_and_adjective(article: str, case: str) -> None:
    table = TABLES[article][case]
    old = word("adjective", "alt")
    for noun in lexicon()["noun"]:
        for number, form in ((noun["gender"], noun["german"]), ("plural", noun["german_plural"])):
            before, ending = table[number]
            plural = number == "plural"
            *words, last = noun_phrase(noun, old, article, case, plural).german.split()
            assert words == [*before.split(), f"alt{ending}"]
            assert last == form or (plural and case == "dative" and last in DATIVE_PLURALS)
            assert noun_phrase(noun, None, article, case, plural).german.split() == [*before.split(), last]


def test_every_dative_plural_ends_in_n() -> None:
    found = {noun_phrase(noun, None, "definite", "dative", True).german for noun in lexicon()["noun"]}
    assert found == {f"den {noun}" for noun in DATIVE_PLURALS}


@pytest.mark.parametrize(
    ("noun", "adjective", "article", "plural", "english"),
    [
        ("Apfel", None, "indefinite", False, "an apple"),
        ("Apfel", "frisch", "indefinite", False, "a fresh apple"),
        ("Buch", "alt", "indefinite", False, "an old book"),
        ("Buch", "alt", "negative", False, "an old book"),
        ("Buch", "alt", "indefinite", True, "old books"),
        ("Buch", "alt", "negative", True, "any old books"),
        ("Frau", None, "definite", True, "the women"),
    ],
)
def test_english_noun_phrases(noun: str, adjective: str | None, article: str, plural: bool, english: str) -> None:
    found = noun_phrase(word("noun", noun), adjective and word("adjective", adjective), article, "accusative", plural)
    assert found.english == english


TODAY, IN_THE_GARDEN = Pair("heute", "today"), Pair("im Garten", "in the garden")


@pytest.mark.parametrize(
    ("order", "german", "english"),
    [
        (
            "statement",
            "der Mann hat heute das neue Buch im Garten gelesen",
            "the man read the new book in the garden today",
        ),
        (
            "time first",
            "heute hat der Mann das neue Buch im Garten gelesen",
            "today the man read the new book in the garden",
        ),
        (
            "question",
            "hat der Mann heute das neue Buch im Garten gelesen",
            "did the man read the new book in the garden today",
        ),
        (
            "subordinate",
            "der Mann heute das neue Buch im Garten gelesen hat",
            "the man read the new book in the garden today",
        ),
    ],
)
def test_each_language_has_its_order(order: str, german: str, english: str) -> None:
    assert said(clause_of("lesen", "past", time=TODAY, place=IN_THE_GARDEN), order) == (german, english)


@pytest.mark.parametrize(
    ("tense", "plural", "order", "german", "english"),
    [
        ("present", False, "statement", "der Mann holt ab", "the man picks up"),
        ("present", True, "statement", "die Männer holen ab", "the men pick up"),
        ("present", False, "question", "holt der Mann ab", "does the man pick up"),
        ("present", False, "subordinate", "der Mann abholt", "the man picks up"),
        ("present", True, "subordinate", "die Männer abholen", "the men pick up"),
        ("past", False, "statement", "der Mann hat abgeholt", "the man picked up"),
        ("past", True, "subordinate", "die Männer abgeholt haben", "the men picked up"),
        ("modal", False, "statement", "der Mann kann abholen", "the man can pick up"),
        ("modal", True, "subordinate", "die Männer abholen können", "the men can pick up"),
        ("modal", True, "question", "können die Männer abholen", "can the men pick up"),
    ],
)
def test_finite_verb_and_particle_in_every_tense(
    tense: str, plural: bool, order: str, german: str, english: str
) -> None:
    clause = clause_of("ab|holen", tense, plural=plural)._replace(objects=NOTHING)
    assert said(clause, order) == (german, english)


@pytest.mark.parametrize(
    ("verb", "tense", "article", "order", "german", "english"),
    [
        (
            "lesen",
            "present",
            "definite",
            "statement",
            "der Mann liest das neue Buch nicht",
            "the man does not read the new book",
        ),
        (
            "lesen",
            "present",
            "negative",
            "statement",
            "der Mann liest kein neues Buch",
            "the man does not read a new book",
        ),
        (
            "lesen",
            "past",
            "definite",
            "question",
            "hat der Mann das neue Buch nicht gelesen",
            "did the man not read the new book",
        ),
        (
            "lesen",
            "modal",
            "definite",
            "subordinate",
            "der Mann das neue Buch nicht lesen kann",
            "the man cannot read the new book",
        ),
        ("schlafen", "past", "definite", "statement", "der Mann hat nicht geschlafen", "the man did not sleep"),
    ],
)
def test_negation(verb: str, tense: str, article: str, order: str, german: str, english: str) -> None:
    assert said(clause_of(verb, tense, article=article, negated=True), order) == (german, english)


def test_a_question_has_not_behind_the_subject_and_a_statement_cannot_in_one_word() -> None:
    clause = clause_of("schlafen", "modal", negated=True)
    assert said(clause, "question") == ("kann der Mann nicht schlafen", "can the man not sleep")
    assert said(clause, "statement") == ("der Mann kann nicht schlafen", "the man cannot sleep")
    will = clause._replace(modal=word("modal", "wird"))
    assert said(will, "statement") == ("der Mann wird nicht schlafen", "the man will not sleep")


@pytest.fixture(scope="module")
def sampled() -> list[Pair]:
    return list(islice(pairs(20), 4000))


def test_sentences_are_plain_text(sampled: list[Pair]) -> None:
    for sentence in (side for pair in sampled for side in pair):
        assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß]*(,? [A-Za-zÄÖÜäöüß]+)+[.?]", sentence), sentence


def test_both_sides_say_the_same(sampled: list[Pair]) -> None:
    """Counted apart from the generator: each content word on one side has its translation on the other."""
    forms = ("german", "german_plural", "english", "english_plural")
    for pair in sampled:
        german, english = (re.findall(r"\w+", side.lower()) for side in pair)
        for noun in lexicon()["noun"]:
            singular, plural, one, several = (noun[form].lower() for form in forms)
            in_german = sum(word in (singular, plural, plural + "n") for word in german)
            assert in_german == sum(word in (one, several) for word in english), pair
        assert pair.german[-1] == pair.english[-1]
        assert (", " in pair.german) == bool({"that", "because", "although"} & set(english)), pair


def test_negation_is_on_both_sides(sampled: list[Pair]) -> None:
    for german, english in sampled:
        negations = len(re.findall(r"\b(nicht|[Kk]ein\w*)\b", german))
        assert negations == len(re.findall(r"\b(not|cannot)\b", english)), (german, english)


def test_everything_in_the_lexicon_is_said(sampled: list[Pair]) -> None:
    text = {side: " ".join(getattr(pair, side) for pair in sampled).lower() for side in ("german", "english")}
    for kind, entries in lexicon().items():
        for entry in entries:
            for column, form in entry.items():
                side = column.partition("_")[0]
                if side in text and not (kind == "verb" and "|" in form):
                    assert form.lower() in text[side], (kind, form)
