"""German conjugation: present and past, participle, infinitives, and the modal verbs.

Persons are keys as in :data:`german_words.PRONOUNS`, without gender: ``1sg`` … ``3pl``. Forms here are those of the
verb without its separable prefix; :mod:`german_syntax` puts the prefix where it belongs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lexicon import Verb

PRESENT_ENDINGS = {"1sg": "e", "2sg": "st", "3sg": "t", "1pl": "en", "2pl": "t", "3pl": "en"}
STRONG_PAST_ENDINGS = {"1sg": "", "2sg": "st", "3sg": "", "1pl": "en", "2pl": "t", "3pl": "en"}
WEAK_PAST_ENDINGS = {"1sg": "", "2sg": "st", "3sg": "", "1pl": "n", "2pl": "t", "3pl": "n"}
INSEPARABLE = ("be", "ver", "ent", "er", "zer", "ge", "emp", "miss", "wider", "über", "unter")
IRREGULAR_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind", "seid", "sind"),
    "haben": ("habe", "hast", "hat", "haben", "habt", "haben"),
    "werden": ("werde", "wirst", "wird", "werden", "werdet", "werden"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wisst", "wissen"),
    "mögen": ("mag", "magst", "mag", "mögen", "mögt", "mögen"),
    "können": ("kann", "kannst", "kann", "können", "könnt", "können"),
    "müssen": ("muss", "musst", "muss", "müssen", "müsst", "müssen"),
    "wollen": ("will", "willst", "will", "wollen", "wollt", "wollen"),
    "dürfen": ("darf", "darfst", "darf", "dürfen", "dürft", "dürfen"),
    "sollen": ("soll", "sollst", "soll", "sollen", "sollt", "sollen"),
    # The polite wish is a form of mögen; it has no past of its own here.
    "möchten": ("möchte", "möchtest", "möchte", "möchten", "möchtet", "möchten"),
}
AUXILIARY_PAST = {
    "sein": "war",
    "haben": "hatte",
    "werden": "wurde",
    "können": "konnte",
    "müssen": "musste",
    "wollen": "wollte",
    "dürfen": "durfte",
    "sollen": "sollte",
}
PERSONS = ("1sg", "2sg", "3sg", "1pl", "2pl", "3pl")


@dataclass(frozen=True)
class VerbComplex:
    """A finite verb and what stands in the right bracket before it in a subordinate clause.

    ``finite`` lacks the separable prefix, which is in ``prefix``; ``nonfinite`` holds participles and infinitives in
    order: (gebaut, worden).
    """

    finite: str
    prefix: str
    nonfinite: tuple[str, ...]


def stem_of(infinitive: str) -> str:
    """The infinitive without -en or -n: sammel-, arbeit-."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def needs_e(stem: str) -> bool:
    """Whether -e- stands before -t and -st: arbeitet, öffnet, zeichnet, but lernt, wohnt."""
    if stem.endswith(("t", "d", "chn")):
        return True
    return stem[-1] in "mn" and len(stem) > 2 and stem[-2] not in "aeiouäöülrhmn"


def _second_singular(third: str, stem: str) -> str:
    # gibt, gibst; liest, liest; hält, hältst; lädt, lädst.
    base = third if stem.endswith("t") and not third.endswith("et") else third[:-1]
    return base + ("t" if base.endswith(("s", "ß", "z", "x")) else "st")


@functools.cache
def present(verb: Verb, person: str) -> str:
    """Present tense without the prefix."""
    if verb.infinitive in IRREGULAR_PRESENT:
        return IRREGULAR_PRESENT[verb.infinitive][PERSONS.index(person)]
    stem = stem_of(verb.infinitive)
    if verb.present and person == "3sg":
        return verb.present
    if verb.present and person == "2sg":
        return _second_singular(verb.present, stem)
    if person in ("1pl", "3pl"):
        return verb.infinitive
    if person == "1sg":
        return (stem[:-2] + "l" if stem.endswith("el") else stem) + "e"
    if person == "2sg" and stem.endswith(("s", "ß", "z", "x")):
        return stem + "t"
    return stem + ("e" if needs_e(stem) else "") + PRESENT_ENDINGS[person]


@functools.cache
def past(verb: Verb, person: str) -> str:
    """Past tense (Präteritum) without the prefix."""
    stem = stem_of(verb.infinitive)
    base = verb.past or stem + ("ete" if needs_e(stem) else "te")
    if base.endswith("e"):
        return base + WEAK_PAST_ENDINGS[person]
    hard = ("t", "d", "s", "ß") if person == "2sg" else ("t", "d")
    linking = "e" if person in ("2sg", "2pl") and base.endswith(hard) else ""
    return base + linking + STRONG_PAST_ENDINGS[person]


@functools.cache
def participle(verb: Verb) -> str:
    """Past participle with the prefix: angerufen, besucht, studiert, vorbereitet."""
    if verb.participle:
        return verb.prefix + verb.participle
    stem = stem_of(verb.infinitive)
    bare = verb.infinitive.startswith(INSEPARABLE) or verb.infinitive.endswith("ieren")
    return verb.prefix + ("" if bare else "ge") + stem + ("et" if needs_e(stem) else "t")


def zu_infinitive(verb: Verb) -> tuple[str, ...]:
    """The infinitive with zu: ``zu lesen``, but ``anzurufen``."""
    return (verb.prefix + "zu" + verb.infinitive,) if verb.prefix else ("zu", verb.infinitive)


def auxiliary(name: str, tense: str, person: str) -> str:
    """``present`` or ``past`` of haben, sein, werden or a modal verb."""
    if tense == "present":
        return IRREGULAR_PRESENT[name][PERSONS.index(person)]
    base = AUXILIARY_PAST[name]
    if name == "sein":
        return base + STRONG_PAST_ENDINGS[person]
    return base + WEAK_PAST_ENDINGS[person]


def verb_complex(verb: Verb, tense: str, person: str, modal: str = "", passive: bool = False) -> VerbComplex:
    """Finite and nonfinite forms of one clause.

    Args:
        verb: the lexical verb.
        person: ``1sg`` … ``3pl``.
        tense: ``present``, ``past``, ``perfect``, ``pluperfect`` or ``future``; a modal takes the first two alone.
        modal: infinitive of a modal verb, or empty.
        passive: the passive with werden.
    """
    nonfinite = [participle(verb)] if passive else []
    simple = "past" if tense in ("past", "pluperfect") else "present"
    if modal:
        nonfinite.append("werden" if passive else verb.german)
        return VerbComplex(auxiliary(modal, simple, person), "", tuple(nonfinite))
    if tense == "future":
        nonfinite.append("werden" if passive else verb.german)
        return VerbComplex(auxiliary("werden", "present", person), "", tuple(nonfinite))
    if tense in ("perfect", "pluperfect"):
        nonfinite.append("worden" if passive else participle(verb))
        helper = "sein" if passive or verb.auxiliary == "s" else "haben"
        return VerbComplex(auxiliary(helper, simple, person), "", tuple(nonfinite))
    if passive:
        return VerbComplex(auxiliary("werden", simple, person), "", tuple(nonfinite))
    return VerbComplex((past if simple == "past" else present)(verb, person), verb.prefix, tuple(nonfinite))
