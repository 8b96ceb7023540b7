"""Samples sentences of fixed kinds: comparisons, measures, births, what there is, the weather."""

from __future__ import annotations

from dataclasses import replace

from .choice import Chooser
from .clauses import ClauseSampler
from .lexicon import Selection, Verb
from .numerals import english_cardinal, german_cardinal, grouped, price
from .tree import (
    AdjectivePredicate,
    Clause,
    Expletive,
    Nominal,
    NounPhrase,
    PersonName,
    Phrase,
    Predicate,
    Sentence,
    agreement,
)

# (class, least and greatest price in cents, step)
PRICES = (
    ("food", 20, 2_000, 5),
    ("drink", 80, 1_500, 5),
    ("text_buy", 150, 6_000, 5),
    ("clothes", 500, 30_000, 5),
    ("furniture", 5_000, 400_000, 100),
    ("device", 1_000, 300_000, 100),
    ("instrument", 5_000, 900_000, 100),
    ("vehicle_buy", 15_000, 4_000_000, 100),
    ("home_buy", 8_000_000, 90_000_000, 50_000),
)


class FactSampler:
    """Draws such sentences with the nominals, places and times of ``clauses``."""

    def __init__(self, chooser: Chooser, clauses: ClauseSampler) -> None:
        self.choose = chooser
        self.clauses = clauses
        self.nominals = clauses.nominals

    def _dated(self, clause: Clause) -> Clause:
        """The clause, often with its time or its place in front."""
        return replace(clause, front=self.choose.weighted({"subject": 45, "time": 35, "place": 20}))

    def comparison(self) -> Sentence:
        """Two of a kind compared: ``ist größer als``, ``ist so groß wie``."""
        clause = self.clauses.copula()
        subject = clause.subject
        while agreement(subject) not in ("3sg", "3pl"):
            subject = self.clauses.copula().subject
        adjectives = [item for item in self.clauses.predicative(subject) if item.comparable]
        if not adjectives:
            return self.comparison()
        kind = self.choose.one(("more", "more", "equal"))
        predicate = AdjectivePredicate(self.choose.one(adjectives), kind, self._standard(subject))
        negated = kind == "equal" and self.choose.chance(0.4)
        return Sentence((replace(clause, subject=subject, predicate=predicate, negated=negated),))

    def _standard(self, subject: Nominal) -> Nominal:
        if not isinstance(subject, NounPhrase):
            return self.nominals.name()
        noun_class = subject.noun.classes[0]
        noun = self.nominals.noun(noun_class)
        while noun is subject.noun or noun.mass != subject.noun.mass:
            noun_class = self.choose.one(("thing", "clothes", "vehicle", "food", "person"))
            noun = self.nominals.noun(subject.noun.classes[0] if not subject.noun.mass else "food")
        return NounPhrase(noun, "sg" if noun.mass else subject.number)

    def measure(self) -> Sentence:
        """An age, a price, a weight, a duration, or the inhabitants of a city."""
        kind = self.choose.one(("age", "cost", "cost", "weigh", "last", "inhabitants"))
        tense = self.choose.one(("present", "present", "past"))
        subject, verb, predicate = getattr(self, f"_measure_{kind}")()
        return Sentence((Clause(subject, verb, tense=tense, english_tense=tense, predicate=predicate),))

    def _measuring(self, infinitive: str) -> Verb:
        return next(verb for verb in self.clauses.lexicon.verbs if verb.infinitive == infinitive)

    def _measure_age(self) -> tuple[Nominal, Verb, Predicate]:
        years = self.choose.integer(2, 95)
        words = Phrase(f"{german_cardinal(years)} Jahre alt", f"{english_cardinal(years)} years old")
        subject: Nominal = self.nominals.name()
        if self.choose.chance(0.5):
            subject = self.nominals.phrase(Selection("family", "one"), {"poss": 1})
        return subject, self._measuring("sein"), words

    def _thing(self, classes: tuple[str, ...]) -> NounPhrase:
        phrase = self.nominals.phrase(Selection(self.choose.one(classes), "one"), {"def": 60, "this": 40})
        return replace(phrase, number="sg", determiner="def") if phrase.noun.mass else replace(phrase, number="sg")

    def _measure_cost(self) -> tuple[Nominal, Verb, Predicate]:
        noun_class, low, high, step = self.choose.one(PRICES)
        cents = step * self.choose.integer(low // step, high // step)
        return self._thing((noun_class,)), self._measuring("kosten"), Phrase(*price(cents))

    def _measure_weigh(self) -> tuple[Nominal, Verb, Predicate]:
        number = self.choose.integer(2, 95)
        words = Phrase(f"{number} Kilogramm", f"{number} kilograms")
        return self._thing(("weighable",)), self._measuring("wiegen"), words

    def _measure_last(self) -> tuple[Nominal, Verb, Predicate]:
        number = self.choose.integer(2, 120)
        noun_class = self.choose.one(("event", "journey", "show"))
        units = (("Tage", "days"), ("Stunden", "hours")) if noun_class == "journey" else (("Minuten", "minutes"),)
        german, english = self.choose.one(units)
        words = Phrase(f"{german_cardinal(number)} {german}", f"{english_cardinal(number)} {english}")
        return self._thing((noun_class,)), self._measuring("dauern"), words

    def _measure_inhabitants(self) -> tuple[Nominal, Verb, Predicate]:
        city = self.nominals.city()
        german, english = grouped(100 * self.choose.integer(20, 9_000))
        words = Phrase(f"{german} Einwohner", f"{english} inhabitants")
        return PersonName(city.german, city.english, ""), self._measuring("haben"), words

    def birth(self) -> Sentence:
        """Who was born when and where."""
        city = self.nominals.city()
        clause = Clause(
            self.nominals.name(),
            self.clauses.special("birth"),
            tense="past",
            english_tense="past",
            passive=True,
            time=self.clauses.times.full_date(1900, 2015),
            place=Phrase(f"in {city.german}", f"in {city.english}"),
        )
        return Sentence((self._dated(clause),))

    def existence(self) -> Sentence:
        """There is: ``In dem Dorf gibt es eine alte Kirche.`` / ``In the village, there is an old church.``."""
        noun_class = self.choose.one(("institution", "building", "place"))
        phrase = self.nominals.phrase(Selection(noun_class), {"indef": 75, "count": 15, "no": 10})
        if phrase.determiner == "def":
            return self.existence()
        place = self.nominals.place(("city", "country", "town"))
        clause = Clause(Expletive(), self.clauses.special("existential"), accusative=phrase, place=place)
        tense = self.choose.one(("present", "present", "past"))
        front = self.choose.one(("place", "subject"))
        return Sentence((replace(clause, tense=tense, english_tense=tense, front=front),))

    def weather(self) -> Sentence:
        """Rain or snow."""
        verb = self.clauses.special("weather")
        drawn = self.clauses.times.temporal(self.choose.one(("past", "future", "present")))
        clause = Clause(
            Expletive(),
            verb,
            tense=drawn.tense,
            english_tense=drawn.english_tense,
            time=drawn.time,
            place=self.nominals.place(("city", "country")),
        )
        return Sentence((self._dated(clause),))
