"""The abstract sentence: what both languages say, before either of them says it.

A :class:`Sentence` holds clauses, a :class:`Clause` a verb with its arguments and adverbials, and these hold nominals.
The grammar samples trees; :mod:`german_syntax` and :mod:`english_syntax` each put a tree into words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .lexicon import Adjective, Noun, Verb


@dataclass(frozen=True)
class Phrase:
    """A fixed phrase in both languages: an adverb, a date, a price."""

    german: str
    english: str


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun; ``key`` as in :data:`german_words.PRONOUNS`."""

    key: str


@dataclass(frozen=True)
class PersonName:
    """A proper name, perhaps with a title: ``Frau Schmidt`` / ``Mrs. Schmidt``."""

    german: str
    english: str
    sex: str
    titled: bool = False


@dataclass(frozen=True)
class Coordination:
    """Two persons: ``Anna und Peter``."""

    first: PersonName
    second: PersonName


@dataclass(frozen=True)
class Interrogative:
    """``wer`` / ``who`` or, for things, ``was`` / ``what``."""

    thing: bool


@dataclass(frozen=True)
class Gap:
    """What a relative pronoun stands for."""

    noun: Noun
    number: str


@dataclass(frozen=True)
class Expletive:
    """The subject ``es`` of the weather and of ``es gibt``; in English ``it`` or ``there``."""

    english: str = "it"
    number: str = "sg"


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what agrees with it.

    Args:
        determiner: ``def``, ``indef``, ``none``, ``no`` (kein), ``this``, ``every``, ``which``, ``poss`` with
            ``owner``, ``name`` with ``possessor`` (Annas Buch), or ``role``: bare in German, a/an in English (er ist
            Lehrer).
        adjectives: pairs (adjective, ``positive`` | ``comparative`` | ``superlative``).
        count: a number of at least 2 in both languages.
        possessor: a genitive after the noun, or the name before it.
    """

    noun: Noun
    number: str = "sg"
    determiner: str = "def"
    owner: str = ""
    adjectives: tuple[tuple[Adjective, str], ...] = ()
    count: Phrase | None = None
    possessor: NounPhrase | PersonName | None = None
    relative: Clause | None = None


Nominal = NounPhrase | Pronoun | PersonName | Coordination | Interrogative | Gap | Expletive


@dataclass(frozen=True)
class PrepositionalPhrase:
    """A preposition in both languages and its nominal in ``case``."""

    german: str
    case: str
    english: str
    nominal: Nominal


Adverbial = Phrase | PrepositionalPhrase


@dataclass(frozen=True)
class AdjectivePredicate:
    """``ist müde``, ``ist größer als …``, ``ist so groß wie …``; ``standard`` is what is compared with."""

    adjective: Adjective
    comparison: str = ""
    standard: Nominal | None = None
    very: bool = False


Predicate = AdjectivePredicate | NounPhrase | Phrase


@dataclass(frozen=True)
class Subordinate:
    """A finite subordinate clause with its conjunction."""

    conjunction: Phrase
    clause: Clause


@dataclass(frozen=True)
class Purpose:
    """An infinitive clause: ``… zu lesen``, or with ``um`` (in order to). Its subject is that of the main clause."""

    clause: Clause
    um: bool = False


@dataclass(frozen=True)
class Clause:
    """One verb with its arguments and adverbials.

    Args:
        tense: German tense (present, past, perfect, pluperfect, future); ``english_tense`` the English one.
        modal: key of :data:`german_verbs.IRREGULAR_PRESENT`, ``gern`` (likes to), or empty.
        negated: sentence negation; that by ``kein`` is in the determiner ``no`` of an object instead.
        front: the part before the finite verb of a German main clause, by field name; an adverbial goes first in
            English too. In a relative clause and in a question it is the part that holds the relative or
            interrogative word.
    """

    subject: Nominal
    verb: Verb
    tense: str = "present"
    english_tense: str = "present"
    modal: str = ""
    negated: bool = False
    progressive: bool = False
    passive: bool = False
    accusative: Nominal | None = None
    dative: Nominal | None = None
    prepositional: Adverbial | None = None
    predicate: Predicate | None = None
    sentence: Phrase | None = None
    time: Adverbial | None = None
    frequency: Phrase | None = None
    manner: Phrase | None = None
    companion: PrepositionalPhrase | None = None
    place: Adverbial | None = None
    direction: Adverbial | None = None
    complement: Subordinate | Purpose | None = None
    adverbial: Subordinate | Purpose | None = None
    front: str = "subject"


@dataclass(frozen=True)
class Sentence:
    """``mood`` is ``statement``, ``question`` (without an interrogative word), ``wh`` or ``imperative``."""

    clauses: tuple[Clause, ...]
    mood: str = "statement"
    coordinator: Phrase | None = None


def with_parts(clause: Clause, changes: dict[str, Any]) -> Clause:
    """The clause with parts replaced whose names are known only when the program runs."""
    return replace(clause, **changes)


def agreement(nominal: Nominal) -> str:
    """Person and number for the verb: ``1sg`` … ``3pl``; the formal address counts as ``3pl``."""
    if isinstance(nominal, Pronoun):
        return "3pl" if nominal.key == "formal" else nominal.key[:3]
    if isinstance(nominal, Coordination):
        return "3pl"
    if isinstance(nominal, (NounPhrase, Gap, Expletive)):
        return "3" + nominal.number
    return "3sg"


def owner_key(nominal: Nominal) -> str:
    """Key of the possessive pronoun that refers back to ``nominal``, or empty where English or German would balk."""
    if isinstance(nominal, Pronoun):
        return nominal.key
    if isinstance(nominal, PersonName):
        return "3sg" + nominal.sex
    if agreement(nominal) == "3pl":
        return "3pl"
    if isinstance(nominal, (NounPhrase, Gap)) and nominal.noun.sex and nominal.noun.gender == nominal.noun.sex:
        return "3sg" + nominal.noun.sex
    return ""
