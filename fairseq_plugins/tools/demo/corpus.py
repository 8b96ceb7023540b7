"""The embedded corpus: German-English sentence pairs, both sides of a pair from one derivation of one grammar.

A deep narrow model learns it in minutes, but it needs real translation. German puts the finite verb second and the
other verbs last, or all verbs last in a subordinate clause, and declines article, adjective and noun by gender, number
and case. English asks and negates with *do* and keeps its word order. The words are in ``lexicon.tsv``.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.files import write_whole

Word = Mapping[str, str]
"""A line of the lexicon: forms by column."""

_TENSES = ("past", "present", "modal")
_GENDERS = ("m", "f", "n", "plural")
# Article and ending of the adjective, for each of _GENDERS. Dative endings are all -en.
_DECLENSION = {
    ("definite", "nominative"): ("der -e", "die -e", "das -e", "die -en"),
    ("definite", "accusative"): ("den -en", "die -e", "das -e", "die -en"),
    ("definite", "dative"): ("dem -en", "der -en", "dem -en", "den -en"),
    ("indefinite", "nominative"): ("ein -er", "eine -e", "ein -es", "-e"),
    ("indefinite", "accusative"): ("einen -en", "eine -e", "ein -es", "-e"),
    ("indefinite", "dative"): ("einem -en", "einer -en", "einem -en", "-en"),
    ("negative", "accusative"): ("keinen -en", "keine -e", "kein -es", "keine -en"),
    ("negative", "dative"): ("keinem -en", "keiner -en", "keinem -en", "keinen -en"),
}


class Pair(NamedTuple):
    """A phrase or a sentence in both languages."""

    german: str
    english: str


class Clause(NamedTuple):
    """The content of a clause in both languages, without word order."""

    subject: Pair
    plural: bool
    verb: Word
    tense: str
    modal: Word
    objects: Pair
    time: Pair
    place: Pair
    negated: bool
    nicht: bool
    """Whether German negates with *nicht*, not with the article of the object."""


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


@cache
def lexicon() -> dict[str, list[Word]]:
    """The words of each kind. The first line of a block of ``lexicon.tsv`` has its kind and column names."""
    text = Path(__file__).with_name("lexicon.tsv").read_text(encoding="utf-8")
    words: dict[str, list[Word]] = {}
    for block in text.strip().split("\n\n"):
        (kind, *columns), *lines = (line.split("\t") for line in block.split("\n"))
        words[kind] = [dict(zip(columns, line, strict=True)) for line in lines]
    return words


def noun_phrase(noun: Word, adjective: Word | None, article: str, case: str, plural: bool) -> Pair:
    """Article, adjective and noun: in German declined, in English with *a* or *an*, *any* where negated."""
    column = _GENDERS.index("plural" if plural else noun["gender"])
    *german_article, ending = _DECLENSION[article, case][column].split()
    german = noun["german_plural" if plural else "german"]
    if plural and case == "dative" and german[-1] not in "ns":
        german += "n"
    english = noun["english_plural" if plural else "english"]
    if adjective is not None:
        german = _join(adjective["german"] + ending[1:], german)
        english = _join(adjective["english"], english)
    if article == "definite":
        english = f"the {english}"
    elif not plural:
        english = f"an {english}" if english[0] in "aeiou" else f"a {english}"
    elif article == "negative":
        english = f"any {english}"
    return Pair(_join(*german_article, german), english)


def german_clause(clause: Clause, order: str) -> str:
    """The clause as ``statement``, with its ``time first``, as ``question`` or as ``subordinate`` clause."""
    particle, bar, stem = clause.verb["german"].rpartition("|")
    infinitive = particle + stem
    if clause.tense == "past":
        finite, last = ("haben" if clause.plural else "hat"), particle + clause.verb["participle"]
    elif clause.tense == "modal":
        finite, last = clause.modal["german_plural" if clause.plural else "german"], infinitive
    else:
        finite, last = (stem if clause.plural else clause.verb["german_present"]), particle
    rest = _join(clause.objects.german, "nicht" if clause.nicht else "", clause.place.german, last)
    subject, time = clause.subject.german, clause.time.german
    if order == "subordinate":
        # A particle before its verb is one word with it.
        space = "" if bar and clause.tense == "present" else " "
        return _join(subject, time, rest) + space + finite
    orders = {"time first": (time, finite, subject), "question": (finite, subject, time)}
    return _join(*orders.get(order, (subject, finite, time)), rest)


def english_clause(clause: Clause, order: str) -> str:
    """The clause in English; a subordinate clause has the order of a statement."""
    verb, auxiliary, negation = clause.verb["english"], "", "not" if clause.negated else ""
    if clause.tense == "modal":
        auxiliary = clause.modal["english"]
    elif clause.negated or order == "question":
        auxiliary = "did" if clause.tense == "past" else "do" if clause.plural else "does"
    elif clause.tense == "past":
        verb = clause.verb["english_past"]
    elif not clause.plural:
        verb = clause.verb["english_present"]
    subject, time = clause.subject.english, clause.time.english
    rest = _join(verb, clause.objects.english, clause.place.english)
    if order == "question":
        return _join(auxiliary, subject, negation, rest, time)
    auxiliary = "cannot" if (auxiliary, negation) == ("can", "not") else _join(auxiliary, negation)
    return _join(time, subject, auxiliary, rest) if order == "time first" else _join(subject, auxiliary, rest, time)


class Grammar:
    """Draws sentences. The same seed gives the same sentences, for any hash seed of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words = lexicon()

    def sentence(self) -> Pair:
        """A statement or a question, or a statement with a subordinate clause."""
        german, english = self._in_lower_case()
        return Pair(german[0].upper() + german[1:], english[0].upper() + english[1:])

    def _in_lower_case(self) -> tuple[str, str]:
        tense = self._random.choice(_TENSES)
        if not self._chance(0.25):
            clause = self._clause(tense, 0.5)
            order = self._random.choice(("statement", "question", "time first" if clause.time.german else "statement"))
            mark = "?" if order == "question" else "."
            return german_clause(clause, order) + mark, english_clause(clause, order) + mark
        if self._chance(0.5):
            link = Pair("dass", "that")
            main = self._clause(self._random.choice(_TENSES), 0.0, ("clause",))
        else:
            link = _pair(self._random.choice(self._words["conjunction"]))
            main = self._clause(tense, 0.0, ("-",))
        clause = self._clause(tense, 0.25)
        german = f"{german_clause(main, 'statement')}, {link.german} {german_clause(clause, 'subordinate')}."
        return german, f"{english_clause(main, 'statement')} {link.english} {english_clause(clause, 'subordinate')}."

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _clause(self, tense: str, adverbials: float, takes: Sequence[str] = ("accusative", "dative", "-")) -> Clause:
        verb = self._random.choice([word for word in self._words["verb"] if word["takes"] in takes])
        negated = self._chance(0.2)
        noun = self._noun(verb["subjects"])
        plural = self._chance(0.3)
        if self._chance(0.2):
            pronoun = self._random.choice(self._words["pronoun"])
            subject, plural = _pair(pronoun), pronoun["number"] == "plural"
        else:
            article = "definite" if self._chance(0.7) else "indefinite"
            subject = self._noun_phrase(noun, article, "nominative", plural)
        objects, article = Pair("", ""), "definite"
        if verb["objects"] != "-":
            if self._chance(0.5):
                article = "negative" if negated else "indefinite"
            objects = self._noun_phrase(self._noun(verb["objects"], noun), article, verb["takes"], self._chance(0.3))
        return Clause(
            subject,
            plural,
            verb,
            tense,
            self._random.choice(self._words["modal"]),
            objects,
            self._adverbial([word for word in self._words["time"] if tense in word["tenses"]], adverbials),
            self._adverbial(self._words["place"], adverbials),
            negated,
            nicht=negated and article != "negative",
        )

    def _noun(self, kinds: str, other: Word | None = None) -> Word:
        nouns = [word for word in self._words["noun"] if word["kind"] in kinds.split(",") and word is not other]
        return self._random.choice(nouns)

    def _noun_phrase(self, noun: Word, article: str, case: str, plural: bool) -> Pair:
        adjectives = [word for word in self._words["adjective"] if noun["kind"] in word["kinds"].split(",")]
        adjective = self._random.choice(adjectives) if self._chance(0.3) else None
        return noun_phrase(noun, adjective, article, case, plural)

    def _adverbial(self, words: Sequence[Word], probability: float) -> Pair:
        return _pair(self._random.choice(words)) if self._chance(probability) else Pair("", "")


def _pair(word: Word) -> Pair:
    return Pair(word["german"], word["english"])


def pairs(seed: int) -> Iterator[Pair]:
    """Infinitely many sentence pairs without a repeated sentence in either language, determined by the seed."""
    grammar = Grammar(seed)
    seen: set[str] = set()
    while True:
        pair = grammar.sentence()
        if seen.isdisjoint(pair):
            seen.update(pair)
            yield pair


def write_corpus(directory: Path, train: int, valid: int, test: int) -> None:
    """Write so many pairs to ``{train,valid,test}.{de,en}`` in ``directory``; the three sets are disjoint.

    Test and validation sentences are drawn first, so they do not depend on the size of the training set.
    """
    source = pairs(seed=1)
    directory.mkdir(parents=True, exist_ok=True)
    for split, size in {"test": test, "valid": valid, "train": train}.items():
        german, english = zip(*(next(source) for _ in range(size)), strict=True)
        write_whole(directory / f"{split}.de", "\n".join(german) + "\n")
        write_whole(directory / f"{split}.en", "\n".join(english) + "\n")
