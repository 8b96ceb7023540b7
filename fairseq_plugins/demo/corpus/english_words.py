"""English morphology: plurals, a/an, verb forms, comparison, pronouns."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lexicon import Adjective, Verb

VOWELS = "aeiou"
# Written with a consonant and spoken with a vowel, and the other way round.
SILENT_H = ("hour", "honest", "honor", "heir")
SPOKEN_CONSONANT = ("unif", "union", "uniq", "unit", "univ", "use", "usu", "euro", "one-", "once")
# Verbs of more syllables stressed on the last: the final consonant doubles (beginning, forgetting).
FINAL_STRESS = ("begin", "forget", "permit", "prefer", "forbid")
PRONOUNS = {
    "1sg": ("I", "me", "my"),
    "2sg": ("you", "you", "your"),
    "3sgm": ("he", "him", "his"),
    "3sgf": ("she", "her", "her"),
    "3sgn": ("it", "it", "its"),
    "1pl": ("we", "us", "our"),
    "2pl": ("you", "you", "your"),
    "3pl": ("they", "them", "their"),
    "formal": ("you", "you", "your"),
}
BE_PRESENT = {"1sg": "am", "3sg": "is"}


@dataclass(frozen=True)
class Lexeme:
    """An English verb; empty forms are regular. ``auxiliary`` verbs take *not* and inversion without *do*."""

    base: str
    past: str = ""
    participle: str = ""
    auxiliary: bool = False


BE = Lexeme("be", "was", "been", auxiliary=True)
HAVE = Lexeme("have", "had", "had", auxiliary=True)
DO = Lexeme("do", "did", "done", auxiliary=True)
WILL = Lexeme("will", "would", auxiliary=True)
CAN = Lexeme("can", "could", auxiliary=True)
SHOULD = Lexeme("should", "should", auxiliary=True)
WOULD = Lexeme("would", "would", auxiliary=True)
MODALS = (WILL, CAN, SHOULD, WOULD)


def article(word: str) -> str:
    """``a`` or ``an``, by the sound with which the next ``word`` begins."""
    lower = word.lower()
    if lower.startswith(SILENT_H) or lower.split("-")[0] in ("8", "11", "18"):
        return "an"
    return "an" if lower[0] in VOWELS and not lower.startswith(SPOKEN_CONSONANT) else "a"


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def regular_plural(word: str) -> str:
    """Regular plural of a noun; irregular ones stand in the noun table."""
    return _with_s(word)


def _doubles(word: str) -> bool:
    """Whether the last consonant doubles before a vowel: planned, sitting, bigger; not opened, played, rained."""
    if word in FINAL_STRESS:
        return True
    if word[-1] in VOWELS + "wxyh" or len(word) < 3 or word[-2] not in VOWELS:
        return False
    return word[-3] not in VOWELS and sum(letter in VOWELS for letter in word) == 1


@functools.cache
def past_form(lexeme: Lexeme) -> str:
    """Simple past of every verb but *be*."""
    base = lexeme.base
    if lexeme.past:
        return lexeme.past
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in VOWELS:
        return base[:-1] + "ied"
    return (base + base[-1] if _doubles(base) else base) + "ed"


@functools.cache
def ing_form(lexeme: Lexeme) -> str:
    """Present participle."""
    base = lexeme.base
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe")) and base != "be":
        return base[:-1] + "ing"
    return (base + base[-1] if _doubles(base) else base) + "ing"


def finite_form(lexeme: Lexeme, tense: str, person: str) -> str:
    """Present or past, agreeing with ``person`` (``1sg`` … ``3pl``)."""
    if lexeme.base == "be":
        if tense == "past":
            return "was" if person in ("1sg", "3sg") else "were"
        return BE_PRESENT.get(person, "are")
    if tense == "past":
        return past_form(lexeme)
    if person != "3sg" or lexeme in MODALS:
        return lexeme.base
    if lexeme.base in ("have", "do", "go"):
        return {"have": "has", "do": "does", "go": "goes"}[lexeme.base]
    return _with_s(lexeme.base)


def inflect(lexeme: Lexeme, form: str) -> str:
    """Nonfinite ``form``: ``base``, ``participle`` or ``ing``."""
    if form == "participle":
        return lexeme.participle or past_form(lexeme)
    return ing_form(lexeme) if form == "ing" else lexeme.base


@functools.cache
def lexeme_of(verb: Verb) -> Lexeme:
    """The English verb of a lexicon entry."""
    if verb.english == "be":
        return BE
    return Lexeme(verb.english, verb.english_past, verb.english_participle)


def degree_words(adjective: Adjective, degree: str) -> list[str]:
    """``positive``, ``comparative`` or ``superlative``: big, bigger, biggest; more useful, most useful."""
    word = adjective.english
    if degree == "positive":
        return [word]
    pattern = adjective.english_comparison
    if "/" in pattern:
        return [pattern.split("/")[degree == "superlative"]]
    if pattern == "more":
        return ["more" if degree == "comparative" else "most", word]
    if word.endswith("y"):
        word = word[:-1] + "i"
    elif word.endswith("e"):
        word = word[:-1]
    elif _doubles(word):
        word += word[-1]
    return [word + ("er" if degree == "comparative" else "est")]


def possessive(words: list[str]) -> list[str]:
    """``words`` with the possessive ending: the teacher's, the teachers', the children's."""
    last = words[-1]
    plural = last.endswith("s") and last[0].islower()
    return [*words[:-1], last + ("'" if plural else "'s")]
