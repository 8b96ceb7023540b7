"""The bilingual lexicon: tables in ``lexicon/*.tsv`` read into nouns, verbs, adjectives, names and adverbs.

The tables say only what cannot be derived: gender and plural class, the principal parts of strong verbs, irregular
English forms, and which kinds of nouns a verb or an adjective goes with. Feminine nouns of persons (Lehrer,
Lehrerin) and compounds (Apfel + Kuchen) are derived here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import resources

from .english_words import regular_plural
from .german_words import feminine, genitive_singular, plural_form


@dataclass(frozen=True, eq=False)
class Location:
    """How one is at a place and how one gets there: ``in der Schule`` / ``at the school``, ``in die Schule``."""

    at: str
    towards: str
    english_at: str


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun and its translation; the plural of a mass noun is empty."""

    german: str
    gender: str
    genitive: str
    plural: str
    english: str
    english_plural: str
    classes: tuple[str, ...]
    weak: bool = False
    sex: str = ""
    location: Location | None = None
    definite_only: bool = False
    english_plural_only: bool = False
    compound: bool = False

    @property
    def mass(self) -> bool:
        """True for what is not counted: it has no plural and no indefinite article."""
        return not self.plural


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; comparative and superlative stems are empty where it is not compared."""

    german: str
    comparison: str
    english: str
    english_comparison: str
    classes: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Whether the adjective has a comparative and a superlative."""
        return self.comparison != "-"


@dataclass(frozen=True, eq=False)
class Selection:
    """A class of nouns that an argument place takes; ``constraint`` is ``def``, ``one`` (singular) or empty."""

    noun_class: str
    constraint: str = ""


@dataclass(frozen=True, eq=False)
class Frame:
    """The arguments of a verb beside its subject."""

    accusative: tuple[Selection, ...] = ()
    dative: tuple[Selection, ...] = ()
    prepositional: tuple[Selection, ...] = ()
    preposition: str = ""
    preposition_case: str = ""
    english_preposition: str = ""
    reflexive: bool = False
    place: str = ""
    place_classes: tuple[str, ...] = ()
    clause: str = ""
    special: str = ""


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb and its translation; ``prefix`` is the separable one, ``infinitive`` the verb without it.

    Empty principal parts are regular. Of an English verb of several words, ``english`` is the one that is inflected,
    ``english_tail`` follows it at once (look for), ``english_particle`` may follow its object (pick up).
    """

    prefix: str
    infinitive: str
    present: str
    past: str
    participle: str
    auxiliary: str
    english: str
    english_past: str
    english_participle: str
    english_tail: tuple[str, ...]
    english_particle: str
    subjects: tuple[str, ...]
    frame: Frame
    flags: frozenset[str]

    @property
    def german(self) -> str:
        """The infinitive with its prefix."""
        return self.prefix + self.infinitive


@dataclass(frozen=True, eq=False)
class Person:
    """A first or last name."""

    name: str
    sex: str


@dataclass(frozen=True, eq=False)
class ProperPlace:
    """A city, a country or a language; ``gender`` (or ``pl``) is given where German uses an article."""

    german: str
    english: str
    gender: str = ""


@dataclass(frozen=True, eq=False)
class Lexicon:
    """All words, indexed by what the grammar asks for."""

    nouns: tuple[Noun, ...]
    by_class: dict[str, tuple[tuple[Noun, ...], tuple[Noun, ...]]]
    verbs: tuple[Verb, ...]
    adjectives: tuple[Adjective, ...]
    adjectives_of_class: dict[str, tuple[Adjective, ...]]
    first_names: tuple[Person, ...]
    last_names: tuple[Person, ...]
    cities: tuple[ProperPlace, ...]
    countries: tuple[ProperPlace, ...]
    languages: tuple[ProperPlace, ...]
    adverbs: dict[str, tuple[tuple[str, str], ...]]


def _rows(table: str) -> Iterator[list[str]]:
    """Rows of ``lexicon/<table>.tsv`` without the header."""
    text = resources.files(__package__).joinpath("lexicon", f"{table}.tsv").read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        yield line.split("\t")


def _read_noun(row: list[str], groups: dict[str, list[str]]) -> Iterator[Noun]:
    german, gender, plural, english, english_plural, classes, extra = row
    options = dict(item.partition("=")[::2] for item in extra.split())
    location = Location(*options["loc"].split("/")) if "loc" in options else None
    weak = "weak" in options
    plural = plural_form(german, plural)
    noun = Noun(
        german=german,
        gender=gender,
        genitive=options.get("gen") or genitive_singular(german, gender, plural if weak else ""),
        plural=plural,
        english=english,
        english_plural={"-": regular_plural(english), "0": ""}.get(english_plural, english_plural),
        classes=tuple(classes.split(",")) + tuple(groups.get(german, ())),
        weak=weak,
        sex=options.get("sex", ""),
        location=location,
        definite_only="defonly" in options,
        english_plural_only="pluralonly_en" in options,
    )
    yield noun
    if "in" in options or "¨in" in options:
        yield _feminine(noun, umlaut="¨in" in options)


def _feminine(noun: Noun, umlaut: bool = False) -> Noun:
    german = feminine(noun.german, umlaut)
    return replace(noun, german=german, gender="f", genitive=german, plural=german + "nen", weak=False, sex="f")


def _compound(modifier: str, english: str, head: Noun) -> Noun:
    def joined(word: str) -> str:
        return modifier + word[0].lower() + word[1:] if word else ""

    def translated(word: str) -> str:
        return english[:-1] + word if english.endswith("+") else f"{english} {word}"

    return replace(
        head,
        german=joined(head.german),
        genitive=joined(head.genitive),
        plural=joined(head.plural),
        english=translated(head.english),
        english_plural=translated(head.english_plural) if head.english_plural else "",
        compound=True,
    )


def _compounds(nouns: Iterable[Noun]) -> Iterator[Noun]:
    heads: dict[str, Noun] = {}
    for noun in nouns:
        heads.setdefault(noun.german, noun)
    for head_names, modifiers in _rows("compounds"):
        for name in head_names.split(","):
            members = [heads[form] for form in (name, name + "in") if form in heads]
            for modifier in modifiers.split(","):
                german, english = modifier.split("=")
                yield from (_compound(german, english, head) for head in members)


def _selections(text: str) -> tuple[Selection, ...]:
    return tuple(Selection(*item.split("+")) for item in text.split(","))


def _read_frame(text: str) -> Frame:
    """Frame of e.g. ``refl prep:auf+acc=for:person,transit`` or ``dat:person acc:thing``."""
    frame = Frame()
    for part in text.split():
        kind, _, rest = part.partition(":")
        if kind == "acc":
            frame = replace(frame, accusative=_selections(rest))
        elif kind == "dat":
            frame = replace(frame, dative=_selections(rest))
        elif kind == "prep":
            frame = _prepositional_frame(frame, rest)
        else:
            frame = _simple_frame(frame, part)
    return frame


def _prepositional_frame(frame: Frame, text: str) -> Frame:
    german, _, rest = text.partition("=")
    english, _, classes = rest.partition(":")
    preposition, case = german.split("+")
    return replace(
        frame,
        preposition=preposition,
        preposition_case=case,
        english_preposition=english,
        prepositional=_selections(classes),
    )


def _simple_frame(frame: Frame, part: str) -> Frame:
    name, _, classes = part.partition("!")
    if name == "refl":
        return replace(frame, reflexive=True)
    if name in ("dass", "zu", "ob"):
        return replace(frame, clause=name)
    if name in ("loc", "dir", "trip", "nature", "city", "on", "onto"):
        return replace(frame, place=name, place_classes=tuple(classes.split(",")) if classes else ())
    return replace(frame, special=name)


def _given(cell: str) -> str:
    return "" if cell == "-" else cell


def _read_verb(row: list[str]) -> Verb:
    german, present, past, participle, auxiliary, english, english_past, english_participle, subject, frame, flags = row
    prefix, _, infinitive = german.rpartition("|")
    verb_words, _, particle = english.partition("|")
    head, *tail = verb_words.split()
    return Verb(
        prefix=prefix,
        infinitive=infinitive,
        present=_given(present),
        past=_given(past),
        participle=_given(participle),
        auxiliary=auxiliary,
        english=head,
        english_past=_given(english_past).partition(" ")[0],
        english_participle=_given(english_participle).partition(" ")[0],
        english_tail=tuple(tail),
        english_particle=particle,
        subjects=tuple(subject.split(",")),
        frame=_read_frame(frame),
        flags=frozenset(flags.split()),
    )


def _index_nouns(nouns: Iterable[Noun]) -> dict[str, tuple[tuple[Noun, ...], tuple[Noun, ...]]]:
    """Class name to (simple nouns, compounds)."""
    index: dict[str, tuple[list[Noun], list[Noun]]] = {}
    for noun in nouns:
        for name in noun.classes:
            index.setdefault(name, ([], []))[noun.compound].append(noun)
    return {name: (tuple(simple), tuple(compound)) for name, (simple, compound) in index.items()}


def _read_nouns() -> list[Noun]:
    groups: dict[str, list[str]] = {}
    for name, members in _rows("groups"):
        for member in members.split(","):
            groups.setdefault(member, []).append(name)
    simple = [noun for row in _rows("nouns") for noun in _read_noun(row, groups)]
    return simple + list(_compounds(simple))


def _read_adjective(german: str, comparison: str, english: str, english_comparison: str, classes: str) -> Adjective:
    return Adjective(german, comparison, english, english_comparison, tuple(classes.split(",")))


def _read_adjectives() -> tuple[tuple[Adjective, ...], dict[str, tuple[Adjective, ...]]]:
    adjectives = tuple(_read_adjective(*row) for row in _rows("adjectives"))
    index: dict[str, list[Adjective]] = {}
    for adjective in adjectives:
        for name in adjective.classes:
            index.setdefault(name, []).append(adjective)
    return adjectives, {name: tuple(members) for name, members in index.items()}


@functools.cache
def load() -> Lexicon:
    """The lexicon, read once a process."""
    nouns = _read_nouns()
    adjectives, adjectives_of_class = _read_adjectives()
    names: dict[str, list[list[str]]] = {}
    for kind, *rest in _rows("names"):
        names.setdefault(kind, []).append(rest)
    adverbs: dict[str, list[tuple[str, str]]] = {}
    for kind, german, english in _rows("adverbs"):
        adverbs.setdefault(kind, []).append((german, english))
    return Lexicon(
        nouns=tuple(nouns),
        by_class=_index_nouns(nouns),
        verbs=tuple(_read_verb(row) for row in _rows("verbs")),
        adjectives=adjectives,
        adjectives_of_class=adjectives_of_class,
        first_names=tuple(Person(row[0], row[2]) for row in names["first"]),
        last_names=tuple(Person(row[0], row[2]) for row in names["last"]),
        cities=tuple(ProperPlace(*row) for row in names["city"]),
        countries=tuple(ProperPlace(*row) for row in names["country"]),
        languages=tuple(ProperPlace(*row) for row in names["language"]),
        adverbs={kind: tuple(pairs) for kind, pairs in adverbs.items()},
    )
