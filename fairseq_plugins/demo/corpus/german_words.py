"""German declension: nouns, articles, adjectives, pronouns, and prepositions contracted with the article.

Cases are ``nom``, ``acc``, ``dat``, ``gen``; numbers ``sg``, ``pl``; genders ``m``, ``f``, ``n``. The plural has no
gender: tables are keyed by gender in the singular and by ``pl``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lexicon import Adjective, Noun

CASES = ("nom", "acc", "dat", "gen")
VOWELS = "aeiouyäöü"

# One row a gender (or the plural), one column a case in the order of CASES.
DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "pl": ("die", "die", "den", "der"),
}
# Endings of dieser, jeder, welcher; strong adjectives have the same, but for -en in the genitive of m and n.
STRONG = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
# Endings of ein, kein, mein.
INDEFINITE = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
WEAK = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "pl": ("en", "en", "en", "en"),
}
MIXED = {**WEAK, "m": ("er", "en", "en", "en"), "n": ("es", "es", "en", "en")}
RELATIVE = {
    "m": ("der", "den", "dem", "dessen"),
    "f": ("die", "die", "der", "deren"),
    "n": ("das", "das", "dem", "dessen"),
    "pl": ("die", "die", "denen", "deren"),
}
PRONOUNS = {
    "1sg": ("ich", "mich", "mir"),
    "2sg": ("du", "dich", "dir"),
    "3sgm": ("er", "ihn", "ihm"),
    "3sgf": ("sie", "sie", "ihr"),
    "3sgn": ("es", "es", "ihm"),
    "1pl": ("wir", "uns", "uns"),
    "2pl": ("ihr", "euch", "euch"),
    "3pl": ("sie", "sie", "ihnen"),
    "formal": ("Sie", "Sie", "Ihnen"),
}
REFLEXIVE = {"1sg": "mich", "2sg": "dich", "1pl": "uns", "2pl": "euch"}
POSSESSIVE = {
    "1sg": "mein",
    "2sg": "dein",
    "3sgm": "sein",
    "3sgf": "ihr",
    "3sgn": "sein",
    "1pl": "unser",
    "2pl": "euer",
    "3pl": "ihr",
    "formal": "Ihr",
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}


def umlaut(word: str) -> str:
    """``word`` with its last a, o, u or au changed to ä, ö, ü or äu."""
    index = max(word.lower().rfind(vowel) for vowel in "aou")
    if word[index] == "u" and index and word[index - 1] in "aA":
        index -= 1
    changed = str.translate(word[index], str.maketrans("aouAOU", "äöüÄÖÜ"))
    return word[:index] + changed + word[index + 1 :]


def syllables(word: str) -> int:
    """Number of vowel groups, which is near enough to the number of syllables."""
    flags = [letter in VOWELS for letter in word.lower()]
    return sum(now and not before for before, now in zip([False, *flags], flags, strict=False))


def plural_form(german: str, code: str) -> str:
    """Plural for the code of the noun table: an ending, with ¨ for umlaut, ``=`` for none, ``0`` for no plural."""
    if code == "0":
        return ""
    if code[0].isupper():
        return code
    stem = umlaut(german) if code.startswith("¨") else german
    return stem + code.lstrip("¨=")


def feminine(german: str, with_umlaut: bool) -> str:
    """Feminine in -in: Lehrer, Lehrerin; Arzt, Ärztin; Kollege, Kollegin."""
    stem = german[:-1] if german.endswith("e") else german
    return (umlaut(stem) if with_umlaut else stem) + "in"


def genitive_singular(german: str, gender: str, weak_plural: str) -> str:
    """Genitive singular: weak nouns take their plural, others -s, or -es after a sibilant or one closed syllable."""
    if gender == "f":
        return german
    if weak_plural:
        return weak_plural
    if german.endswith(("s", "ß", "z", "x")):
        return german + "es"
    short = syllables(german) == 1 and german[-1] not in VOWELS + "w"
    return german + ("es" if short else "s")


def noun_form(noun: Noun, number: str, case: str) -> str:
    """The noun declined: dem Jungen, des Mannes, den Kindern."""
    if number == "pl":
        plain = case != "dat" or noun.plural.endswith(("n", "s"))
        return noun.plural if plain else noun.plural + "n"
    if case == "gen":
        return noun.genitive
    return noun.plural if noun.weak and case != "nom" else noun.german


def key_of(gender: str, number: str) -> str:
    """Row of the declension tables."""
    return "pl" if number == "pl" else gender


def _e_stem(word: str, ending: str) -> str:
    # eure, not euere; teure, not teuere; dunkle, not dunkele; hohe, not hoche.
    if word == "hoch" and ending:
        return "hoh"
    if ending and (word in ("euer", "teuer") or word.endswith("el")):
        return word[:-2] + word[-1]
    return word


def determiner(kind: str, gender: str, number: str, case: str) -> str:
    """``kind``: ``der``, or the stem of dies-, jed-, welch-, ein, kein, or of a possessive."""
    row, column = key_of(gender, number), CASES.index(case)
    if kind == "der":
        return DEFINITE[row][column]
    if kind in ("dies", "jed", "welch"):
        return kind + STRONG[row][column]
    ending = INDEFINITE[row][column]
    return _e_stem(kind, ending) + ending


def adjective_form(stem: str, declension: str, gender: str, number: str, case: str) -> str:
    """An attributive adjective; ``declension`` is ``weak`` (der), ``mixed`` (ein, kein, mein) or ``strong``."""
    row, column = key_of(gender, number), CASES.index(case)
    if declension == "strong":
        ending = "en" if case == "gen" and row in ("m", "n") else STRONG[row][column]
    else:
        ending = (WEAK if declension == "weak" else MIXED)[row][column]
    # A stem that ends in e (müde) does not double it.
    stem = _e_stem(stem, ending)
    return stem + (ending[1:] if stem.endswith("e") else ending)


def degree_stem(adjective: Adjective, degree: str) -> str:
    """Stem of the ``positive``, ``comparative`` or ``superlative``: alt, älter, ältest."""
    if degree == "positive":
        return adjective.german
    if "/" in adjective.comparison:
        return adjective.comparison.split("/")[degree == "superlative"]
    stem = umlaut(adjective.german) if adjective.comparison == "¨" else adjective.german
    if degree == "comparative":
        return _e_stem(stem, "er").removesuffix("e") + "er"
    needs_e = stem.endswith(("d", "t", "s", "ß", "z", "sch", "eu")) and not stem.endswith(("end", "isch"))
    return stem + ("est" if needs_e else "st")


def pronoun(key: str, case: str) -> str:
    """Personal pronoun; ``key`` is person, number and, for the third person singular, gender: ``3sgf``."""
    return PRONOUNS[key][CASES.index(case)]


def relative_pronoun(gender: str, number: str, case: str) -> str:
    """The relative pronoun: der Mann, dem …; die Kinder, denen …."""
    return RELATIVE[key_of(gender, number)][CASES.index(case)]


def contracted(preposition: str, words: list[str]) -> list[str]:
    """``preposition`` and its phrase, joined where German joins them: in + dem Haus = im Haus."""
    joined = CONTRACTIONS.get((preposition, words[0]))
    return [joined, *words[1:]] if joined else [preposition, *words]
