"""Samples nominals: noun phrases with determiner, adjectives and possessor, names, pronouns, places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .choice import Chooser
from .lexicon import Adjective, Lexicon, Noun, ProperPlace, Selection
from .numerals import english_cardinal, german_cardinal, grouped
from .tree import Nominal, NounPhrase, PersonName, Phrase, PrepositionalPhrase, Pronoun, agreement

# The formal address is left out of statements: at the beginning of one, Sie is also "they".
SUBJECT_PRONOUNS = ("1sg", "2sg", "3sgm", "3sgf", "1pl", "2pl", "3pl")
# sie / them is left out as an object: it is also "her".
OBJECT_PRONOUNS = ("1sg", "2sg", "3sgm", "3sgf", "1pl", "2pl")
OWNERS = ("1sg", "2sg", "1pl", "3sgm", "3sgf")
KIN = ("family", "spouse", "relation")
OWNED = ("clothes", "thing", "device", "instrument", "text_buy", "vehicle_buy", "home_buy", "animal_tame", "furniture")
SUBJECT_DETERMINERS = {"def": 62, "indef": 10, "this": 9, "every": 3, "count": 6, "poss": 10}
OBJECT_DETERMINERS = {"def": 42, "indef": 28, "this": 7, "count": 5, "poss": 12, "genitive": 6}
SURFACES = (("auf", "on"), ("unter", "under"), ("neben", "next to"), ("hinter", "behind"), ("vor", "in front of"))


class NominalSampler:
    """Draws nominals that fit a selection."""

    def __init__(self, chooser: Chooser, lexicon: Lexicon) -> None:
        self.choose = chooser
        self.lexicon = lexicon
        self._adjectives: dict[Noun, tuple[Adjective, ...]] = {}

    def noun(self, noun_class: str) -> Noun:
        """A noun of the class: in one case of four a compound, where there are any."""
        simple, compounds = self.lexicon.by_class[noun_class]
        if compounds and (not simple or self.choose.chance(0.25)):
            return self.choose.one(compounds)
        return self.choose.one(simple)

    def subject(self, classes: Sequence[str]) -> Nominal:
        """A subject of one of ``classes``; persons are also pronouns and names."""
        noun_class = self.choose.one(classes)
        if "person" in classes or noun_class == "profession":
            draw = self.choose.weighted({"pronoun": 30, "name": 18, "phrase": 52})
            if draw == "pronoun":
                return Pronoun(self.choose.one(SUBJECT_PRONOUNS))
            if draw == "name":
                return self.name()
        return self.phrase(Selection(noun_class), SUBJECT_DETERMINERS)

    def object(self, selections: Sequence[Selection], owner: str = "", subject: Nominal | None = None) -> Nominal:
        """An object; ``owner`` binds its possessive pronoun to the subject, ``subject`` is not repeated."""
        selection = self.choose.one(selections)
        if selection.noun_class == "language":
            language = self.choose.one(self.lexicon.languages)
            return PersonName(language.german, language.english, "")
        if selection.noun_class == "person" and not selection.constraint:
            draw = self.choose.weighted({"pronoun": 18, "name": 17, "phrase": 65})
            if draw == "pronoun":
                return self.object_pronoun(subject)
            if draw == "name":
                return self.name()
        phrase = self.phrase(selection, OBJECT_DETERMINERS, owner)
        same = isinstance(subject, NounPhrase) and subject.noun is phrase.noun
        return self.object(selections, owner, subject) if same else phrase

    def object_pronoun(self, subject: Nominal | None) -> Pronoun:
        """A pronoun of another person than the subject, since that would have to be reflexive."""
        person = agreement(subject)[0] if subject is not None else "3"
        if subject == Pronoun("formal"):
            person = "2"
        return Pronoun(self.choose.one([key for key in OBJECT_PRONOUNS if key[0] != person or person == "3"]))

    def name(self) -> PersonName:
        """First name, first and last name, or title and last name."""
        kind = self.choose.weighted({"first": 50, "full": 25, "titled": 25})
        last = self.choose.one(self.lexicon.last_names).name
        if kind == "titled":
            german, english, sex = self.choose.one((("Herr", "Mr.", "m"), ("Frau", "Mrs.", "f")))
            return PersonName(f"{german} {last}", f"{english} {last}", sex, titled=True)
        first = self.choose.one(self.lexicon.first_names)
        whole = f"{first.name} {last}" if kind == "full" else first.name
        return PersonName(whole, whole, first.sex)

    def phrase(self, selection: Selection, determiners: dict[str, int], owner: str = "") -> NounPhrase:
        """A noun phrase of the selection, its determiner drawn from ``determiners`` as far as the noun allows."""
        noun = self.noun(selection.noun_class)
        number = "pl" if not (noun.mass or selection.constraint == "one") and self.choose.chance(0.27) else "sg"
        phrase = NounPhrase(noun, number)
        if not (selection.constraint == "def" or noun.definite_only):
            phrase = self._determined(phrase, self._determiner(noun, determiners), owner)
        return self._with_adjective(phrase)

    def _determiner(self, noun: Noun, determiners: dict[str, int]) -> str:
        if noun.mass:
            return self.choose.weighted({"def": 45, "none": 50, "poss": 5})
        if any(kind in noun.classes for kind in KIN) and self.choose.chance(0.85):
            return "poss"
        return self.choose.weighted(determiners)

    def _determined(self, phrase: NounPhrase, kind: str, owner: str) -> NounPhrase:
        if kind == "poss":
            return self._possessive(phrase, owner)
        if kind == "genitive":
            return self._genitive(phrase)
        if kind == "count":
            return self._counted(phrase)
        return replace(phrase, determiner=kind, number="sg" if kind == "every" else phrase.number)

    def _possessive(self, phrase: NounPhrase, owner: str) -> NounPhrase:
        classes = phrase.noun.classes
        owner = owner or self.choose.one(OWNERS)
        if "spouse" in classes:
            # Two husbands of mine are possible, but not what the demo is about.
            owner = "1sg" if owner[-1] == phrase.noun.sex else owner
            return replace(phrase, number="sg", determiner="poss", owner=owner)
        if "parent" in classes:
            phrase = replace(phrase, number="sg")
        if not any(kind in classes for kind in KIN + OWNED + ("food", "drink")):
            return phrase
        return replace(phrase, determiner="poss", owner=owner)

    def _genitive(self, phrase: NounPhrase) -> NounPhrase:
        classes = phrase.noun.classes
        if "opening" in classes or "part" in classes:
            return replace(phrase, possessor=NounPhrase(self.noun("building")))
        if not any(kind in classes for kind in OWNED + ("relation",)):
            return phrase
        if self.choose.chance(0.5):
            first = self.choose.one(self.lexicon.first_names)
            return replace(phrase, determiner="name", possessor=PersonName(first.name, first.name, first.sex))
        number = "pl" if self.choose.chance(0.25) else "sg"
        return replace(phrase, possessor=NounPhrase(self.noun("profession"), number))

    def _counted(self, phrase: NounPhrase) -> NounPhrase:
        if any(kind in phrase.noun.classes for kind in KIN):
            return phrase
        return replace(phrase, number="pl", determiner="none", count=self.number())

    def number(self) -> Phrase:
        """A number of at least two, small ones more often, in words or in digits."""
        high = self.choose.weighted({12: 76, 99: 22, 999: 2})
        value = self.choose.integer(2, high)
        if value % 100 == 1:
            value += 1
        if value > 12 and self.choose.chance(0.35):
            return Phrase(*grouped(value))
        return Phrase(german_cardinal(value), english_cardinal(value))

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        """Adjectives that go with the noun, each once."""
        if noun not in self._adjectives:
            index = self.lexicon.adjectives_of_class
            found = {adjective: None for name in noun.classes for adjective in index.get(name, ())}
            self._adjectives[noun] = tuple(found)
        return self._adjectives[noun]

    def _with_adjective(self, phrase: NounPhrase) -> NounPhrase:
        fitting = self.adjectives(phrase.noun)
        if not fitting or not self.choose.chance(0.3):
            return phrase
        adjective = self.choose.one(fitting)
        superlative = phrase.determiner == "def" and phrase.number == "sg" and not phrase.noun.mass
        best = superlative and adjective.comparable and self.choose.chance(0.12)
        return replace(phrase, adjectives=((adjective, "superlative" if best else "positive"),))

    def city(self) -> ProperPlace:
        """A city."""
        return self.choose.one(self.lexicon.cities)

    def place(self, classes: Sequence[str]) -> PrepositionalPhrase | Phrase:
        """Where: ``in Berlin``, ``in der Schweiz``, ``am Bahnhof``."""
        noun_class = self.choose.one(classes)
        if noun_class in ("city", "country"):
            return self._proper("in", "dat", "in", noun_class)
        noun = self._located(noun_class)
        assert noun.location is not None
        return PrepositionalPhrase(noun.location.at, "dat", noun.location.english_at, self._place_phrase(noun))

    def direction(self, classes: Sequence[str]) -> PrepositionalPhrase | Phrase:
        """Where to: ``nach Berlin``, ``in die Schweiz``, ``zum Bahnhof``, ``nach Hause``."""
        noun_class = self.choose.one(classes)
        if noun_class in ("city", "country"):
            return self._proper("nach", "acc", "to", noun_class)
        if noun_class == "home":
            return Phrase("nach Hause", "home")
        noun = self._located(noun_class)
        assert noun.location is not None
        case = "dat" if noun.location.towards == "zu" else "acc"
        return PrepositionalPhrase(noun.location.towards, case, "to", self._place_phrase(noun))

    def _located(self, noun_class: str) -> Noun:
        noun = self.noun(noun_class)
        return noun if noun.location else self._located(noun_class)

    def _place_phrase(self, noun: Noun) -> NounPhrase:
        determiner = self.choose.weighted({"def": 80, "indef": 12, "this": 8})
        return self._with_adjective(NounPhrase(noun, determiner=determiner))

    def _proper(self, preposition: str, case: str, english: str, kind: str) -> Phrase:
        place = self.choose.one(self.lexicon.cities if kind == "city" else self.lexicon.countries)
        if not place.gender:
            return Phrase(f"{preposition} {place.german}", f"{english} {place.english}")
        article = {"dat": {"f": "der", "pl": "den"}, "acc": {"f": "die", "pl": "die"}}[case][place.gender]
        # Niederlande has a dative plural of its own; USA, as an abbreviation, has not.
        ending = "n" if article == "den" and place.german.endswith("e") else ""
        return Phrase(f"in {article} {place.german}{ending}", f"{english} {place.english}")

    def surface(self, case: str) -> PrepositionalPhrase:
        """On, under, behind a piece of furniture: dative for where, accusative for where to."""
        german, english = self.choose.one(SURFACES)
        phrase = self._with_adjective(NounPhrase(self.noun("surface")))
        return PrepositionalPhrase(german, case, english, phrase)
