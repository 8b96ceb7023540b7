"""Samples expressions of time with the tenses that they ask for in either language."""

from __future__ import annotations

from dataclasses import dataclass

from .choice import Chooser
from .lexicon import Lexicon
from .numerals import (
    ENGLISH_DAYS,
    ENGLISH_MONTHS,
    GERMAN_DAYS,
    GERMAN_MONTHS,
    date,
    digital_time,
    english_cardinal,
    german_cardinal,
    spoken_time,
)
from .tree import Phrase

DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# (dative plural after vor and in, English plural)
UNITS = (("Tagen", "days"), ("Wochen", "weeks"), ("Monaten", "months"), ("Jahren", "years"))
TAKES_CLOCK = ("gestern", "vorgestern", "morgen", "übermorgen", "heute")
KINDS = {"none": 42, "past": 22, "future": 13, "present": 9, "now": 5, "frequency": 6, "already": 4, "since": 3}


@dataclass(frozen=True)
class Temporal:
    """German and English tense, an expression of time or of frequency, and the English progressive."""

    tense: str
    english_tense: str
    time: Phrase | None = None
    frequency: Phrase | None = None
    progressive: bool = False


class TimeSampler:
    """Draws a tense with or without an expression of time."""

    def __init__(self, chooser: Chooser, lexicon: Lexicon) -> None:
        self.choose = chooser
        self.lexicon = lexicon

    def temporal(self, kind: str) -> Temporal:
        """One of :data:`KINDS`. German leaves the perfect or the present where English asks for another tense."""
        if kind == "past":
            return Temporal(self.choose.one(("past", "perfect")), "past", time=self.past_time())
        if kind == "future":
            return Temporal(self.choose.one(("future", "present")), "future", time=self.future_time())
        if kind == "already":
            return Temporal("perfect", "perfect", frequency=self._adverb("already"))
        if kind == "since":
            return Temporal("present", "perfect", time=self._since())
        if kind == "now":
            return Temporal("present", "present", time=self._adverb("now"), progressive=True)
        return self._present(kind)

    def _present(self, kind: str) -> Temporal:
        if kind == "frequency":
            tense = self.choose.one(("present", "present", "past"))
            return Temporal(tense, tense, frequency=self._adverb("frequency"))
        if kind == "present":
            return Temporal("present", "present", time=self._clocked(self._adverb("present")))
        tense = self.choose.weighted({"present": 45, "past": 27, "perfect": 20, "future": 8})
        return Temporal(tense, tense)

    def _adverb(self, kind: str) -> Phrase:
        return Phrase(*self.choose.one(self.lexicon.adverbs[kind]))

    def past_time(self) -> Phrase:
        """``gestern``, ``am 3. März 1998``, ``vor drei Jahren``, ``im Jahr 1998``."""
        kind = self.choose.weighted({"adverb": 60, "date": 18, "ago": 14, "year": 8})
        if kind == "adverb":
            return self._clocked(self._adverb("past"))
        if kind == "date":
            return self.full_date(1950, 2020)
        if kind == "year":
            year = self.choose.integer(1960, 2020)
            return Phrase(f"im Jahr {year}", f"in {year}")
        number, unit = self._quantity()
        return Phrase(f"vor {german_cardinal(number)} {unit[0]}", f"{english_cardinal(number)} {unit[1]} ago")

    def future_time(self) -> Phrase:
        """``morgen``, ``in zwei Wochen``, ``am Montag``, ``am 3. März``, ``im Mai``."""
        kind = self.choose.weighted({"adverb": 55, "in": 13, "day": 14, "date": 10, "month": 8})
        if kind == "adverb":
            return self._clocked(self._adverb("future"))
        if kind == "day":
            return self._clocked(Phrase(*self.weekday()), always_fits=True)
        if kind == "date":
            month = self.choose.integer(1, 12)
            return Phrase(*date(self.choose.integer(1, DAYS_IN_MONTH[month - 1]), month))
        if kind == "month":
            month = self.choose.integer(0, 11)
            return Phrase(f"im {GERMAN_MONTHS[month]}", f"in {ENGLISH_MONTHS[month]}")
        number, unit = self._quantity()
        return Phrase(f"in {german_cardinal(number)} {unit[0]}", f"in {english_cardinal(number)} {unit[1]}")

    def _since(self) -> Phrase:
        if self.choose.chance(0.4):
            year = self.choose.integer(1960, 2020)
            return Phrase(f"seit {year}", f"since {year}")
        number, unit = self._quantity()
        return Phrase(f"seit {german_cardinal(number)} {unit[0]}", f"for {english_cardinal(number)} {unit[1]}")

    def _quantity(self) -> tuple[int, tuple[str, str]]:
        return self.choose.integer(2, 12), self.choose.one(UNITS)

    def weekday(self) -> tuple[str, str]:
        """``am Montag`` and ``on Monday``."""
        index = self.choose.integer(0, 6)
        return f"am {GERMAN_DAYS[index]}", f"on {ENGLISH_DAYS[index]}"

    def full_date(self, first_year: int, last_year: int) -> Phrase:
        """A date with its year."""
        month = self.choose.integer(1, 12)
        day = self.choose.integer(1, DAYS_IN_MONTH[month - 1])
        return Phrase(*date(day, month, self.choose.integer(first_year, last_year)))

    def clock(self) -> Phrase:
        """A time of the day, in digits or in words."""
        if self.choose.chance(0.6):
            return Phrase(*digital_time(self.choose.integer(6, 23), 5 * self.choose.integer(0, 11)))
        return Phrase(*spoken_time(self.choose.integer(1, 12), self.choose.integer(0, 3)))

    def _clocked(self, day: Phrase, always_fits: bool = False) -> Phrase:
        if not (always_fits or day.german in TAKES_CLOCK) or not self.choose.chance(0.3):
            return day
        clock = self.clock()
        return Phrase(f"{day.german} {clock.german}", f"{day.english} {clock.english}")
