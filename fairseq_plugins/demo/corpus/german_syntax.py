"""Puts a tree into German words.

A German clause is laid out in fields: prefield, finite verb (left bracket), middle field, right bracket, postfield.
The main clause fills the prefield with one constituent (verb second); questions and orders leave it empty (verb
first); the subordinate clause moves the finite verb to the end of the right bracket (verb final).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .german_verbs import VerbComplex, verb_complex, zu_infinitive
from .german_words import (
    POSSESSIVE,
    REFLEXIVE,
    adjective_form,
    contracted,
    degree_stem,
    determiner,
    noun_form,
    pronoun,
    relative_pronoun,
)
from .tree import (
    AdjectivePredicate,
    Adverbial,
    Clause,
    Coordination,
    Expletive,
    Gap,
    Interrogative,
    Nominal,
    NounPhrase,
    PersonName,
    Phrase,
    Predicate,
    PrepositionalPhrase,
    Pronoun,
    Purpose,
    Sentence,
    Subordinate,
    agreement,
)

DETERMINERS = {"def": "der", "indef": "ein", "no": "kein", "this": "dies", "every": "jed", "which": "welch"}
STRONG_AFTER = ("none", "name", "role")
WEAK_AFTER = ("def", "this", "every", "which")
INTERROGATIVES = {"nom": "wer", "acc": "wen", "dat": "wem"}


@dataclass(frozen=True)
class Constituent:
    """One part of the clause in words; ``relative`` is the relative clause that may leave for the postfield."""

    role: str
    words: tuple[str, ...]
    relative: tuple[str, ...] = ()

    @property
    def all_words(self) -> tuple[str, ...]:
        """The words with the relative clause in place, closed by its comma."""
        return self.words + self.relative + ((",",) if self.relative else ())


@dataclass(frozen=True)
class Fields:
    """The fields of a clause; ``finite`` has no prefix where the verb is separated."""

    prefield: tuple[Constituent, ...]
    verbs: VerbComplex
    middle: tuple[Constituent, ...]
    postfield: tuple[str, ...]


def nominal_words(nominal: Nominal, case: str) -> list[str]:
    """A nominal in ``case``, without its relative clause."""
    if isinstance(nominal, NounPhrase):
        return _noun_phrase(nominal, case)
    if isinstance(nominal, Pronoun):
        return [pronoun(nominal.key, case)]
    if isinstance(nominal, Gap):
        return [relative_pronoun(nominal.noun.gender, nominal.number, case)]
    if isinstance(nominal, Interrogative):
        return ["was" if nominal.thing else INTERROGATIVES[case]]
    if isinstance(nominal, Coordination):
        return [*nominal_words(nominal.first, case), "und", *nominal_words(nominal.second, case)]
    if isinstance(nominal, Expletive):
        return ["es"]
    return [_declined_name(nominal, case)]


def _declined_name(name: PersonName, case: str) -> str:
    # Herr is weak: Herrn Müller in every case but the nominative.
    return name.german.replace("Herr ", "Herrn ") if name.titled and case != "nom" else name.german


def _noun_phrase(phrase: NounPhrase, case: str) -> list[str]:
    noun, number = phrase.noun, phrase.number
    words = _determiner(phrase, case)
    if phrase.count:
        words.append(phrase.count.german)
    declension = _declension(phrase)
    for adjective, degree in phrase.adjectives:
        words.append(adjective_form(degree_stem(adjective, degree), declension, noun.gender, number, case))
    words.append(noun_form(noun, number, case))
    if isinstance(phrase.possessor, NounPhrase):
        words += _noun_phrase(phrase.possessor, "gen")
    return words


def _declension(phrase: NounPhrase) -> str:
    if phrase.determiner in WEAK_AFTER:
        return "weak"
    bare = phrase.determiner in STRONG_AFTER or phrase.determiner == "indef" and phrase.number == "pl"
    return "strong" if bare else "mixed"


def _determiner(phrase: NounPhrase, case: str) -> list[str]:
    kind = phrase.determiner
    if kind == "name" and isinstance(phrase.possessor, PersonName):
        name = phrase.possessor.german
        return [name + ("'" if name.endswith(("s", "ß", "x", "z")) else "s")]
    if kind in STRONG_AFTER or kind == "indef" and phrase.number == "pl":
        return []
    stem = POSSESSIVE[phrase.owner] if kind == "poss" else DETERMINERS[kind]
    return [determiner(stem, phrase.noun.gender, phrase.number, case)]


def _relative_words(nominal: Nominal) -> tuple[str, ...]:
    if isinstance(nominal, NounPhrase) and nominal.relative:
        return (",", *clause_final(nominal.relative))
    return ()


def _constituent(role: str, nominal: Nominal, case: str) -> Constituent:
    return Constituent(role, tuple(nominal_words(nominal, case)), _relative_words(nominal))


def _prepositional(role: str, phrase: PrepositionalPhrase) -> Constituent:
    words = nominal_words(phrase.nominal, phrase.case)
    definite = isinstance(phrase.nominal, NounPhrase) and phrase.nominal.determiner == "def"
    relative = _relative_words(phrase.nominal)
    # Before a restrictive relative clause the article stays: in dem Haus, das ….
    joined = contracted(phrase.german, words) if definite and not relative else [phrase.german, *words]
    return Constituent(role, tuple(joined), relative)


def _adverbial(role: str, adverbial: Adverbial) -> Constituent:
    if isinstance(adverbial, Phrase):
        return Constituent(role, tuple(adverbial.german.split()))
    return _prepositional(role, adverbial)


def _predicate(predicate: Predicate) -> Constituent:
    if isinstance(predicate, Phrase):
        return Constituent("predicate", tuple(predicate.german.split()))
    if isinstance(predicate, NounPhrase):
        return _constituent("predicate", predicate, "nom")
    return Constituent("predicate", tuple(_adjective_predicate(predicate)))


def _adjective_predicate(predicate: AdjectivePredicate) -> list[str]:
    adjective = predicate.adjective
    if predicate.standard is None:
        return ["sehr"] * predicate.very + [adjective.german]
    standard = nominal_words(predicate.standard, "nom")
    if predicate.comparison == "equal":
        return ["so", adjective.german, "wie", *standard]
    return [degree_stem(adjective, "comparative"), "als", *standard]


def _is_light(nominal: Nominal | None) -> bool:
    return isinstance(nominal, (Pronoun, Gap, Expletive))


def _like_a_subject(clause: Clause) -> bool:
    """Whether a pronoun before the subject would be taken for it: weil sie die Frau sieht."""
    return Pronoun("3sgf") in (clause.accusative, clause.dative)


def _late(nominal: Nominal | None) -> bool:
    """Whether an object follows the adverbs: it is indefinite, or heavy with a relative clause."""
    if not isinstance(nominal, NounPhrase):
        return False
    return nominal.relative is not None or nominal.determiner in ("indef", "none", "no")


def _negation(clause: Clause) -> list[Constituent]:
    return [Constituent("negation", ("nicht",))] if clause.negated else []


def _reflexive(clause: Clause) -> list[Constituent]:
    if not clause.verb.frame.reflexive:
        return []
    return [Constituent("reflexive", (REFLEXIVE.get(_reflexive_key(clause), "sich"),))]


def _reflexive_key(clause: Clause) -> str:
    formal = isinstance(clause.subject, Pronoun) and clause.subject.key == "formal"
    return "" if formal else agreement(clause.subject)


def constituents(clause: Clause) -> list[Constituent]:
    """Every part of the clause but the verbs, in the neutral order of the middle field.

    Light pronouns first (accusative before dative), then adverbs of time, definite objects before and indefinite ones
    after adverbs, ``nicht`` before manner, prepositional objects, directions and predicates.
    """
    subject = [_constituent("subject", clause.subject, "nom")]
    light, early, late = _objects(clause)
    ordered = subject + light if _is_light(clause.subject) or _like_a_subject(clause) else light + subject
    for role in ("sentence", "time"):
        ordered += _optional(clause, role)
    ordered += early + _optional(clause, "frequency") + _negation(clause)
    for role in ("companion", "manner", "place"):
        ordered += _optional(clause, role)
    ordered += late
    for role in ("prepositional", "direction"):
        ordered += _optional(clause, role)
    return ordered + ([_predicate(clause.predicate)] if clause.predicate else [])


def _objects(clause: Clause) -> tuple[list[Constituent], list[Constituent], list[Constituent]]:
    """Light pronouns, objects before the adverbs, objects after them; the dative before the accusative."""
    light = _reflexive(clause)
    early: list[Constituent] = []
    late: list[Constituent] = []
    if clause.accusative and _is_light(clause.accusative):
        light.append(_constituent("accusative", clause.accusative, "acc"))
    for role, nominal, case in (("dative", clause.dative, "dat"), ("accusative", clause.accusative, "acc")):
        if nominal is None or role == "accusative" and _is_light(nominal):
            continue
        # An early accusative keeps the dative before it early as well.
        is_late = _late(nominal) and (role == "accusative" or not clause.accusative or _late(clause.accusative))
        place = light if _is_light(nominal) else late if is_late else early
        place.append(_constituent(role, nominal, case))
    return light, early, late


def _optional(clause: Clause, role: str) -> list[Constituent]:
    adverbial = getattr(clause, role)
    return [_adverbial(role, adverbial)] if adverbial else []


def _verbs(clause: Clause) -> VerbComplex:
    modal = "" if clause.modal == "gern" else clause.modal
    return verb_complex(clause.verb, clause.tense, agreement(clause.subject), modal, clause.passive)


def _with_gern(clause: Clause) -> Clause:
    return replace(clause, manner=Phrase("gern", "")) if clause.modal == "gern" else clause


def fields(clause: Clause, verb_second: bool = True) -> Fields:
    """Lay the clause out; with ``verb_second`` the constituent named by ``clause.front`` goes to the prefield."""
    parts = constituents(_with_gern(clause))
    front: tuple[Constituent, ...] = ()
    if verb_second and clause.front == "adverbial" and clause.adverbial:
        front = (Constituent("adverbial", (*_embedded(clause.adverbial), ",")),)
    elif verb_second:
        front = tuple(part for part in parts if part.role == clause.front)
    middle = tuple(part for part in parts if part not in front)
    return Fields(front, _verbs(clause), middle, _postfield(clause))


def _postfield(clause: Clause) -> tuple[str, ...]:
    words: list[str] = []
    if clause.complement:
        words += [",", *_embedded(clause.complement), ","]
    if clause.adverbial and clause.front != "adverbial":
        words += [",", *_embedded(clause.adverbial), ","]
    return tuple(words)


def _embedded(embedded: Subordinate | Purpose) -> list[str]:
    if isinstance(embedded, Subordinate):
        return [embedded.conjunction.german, *clause_final(embedded.clause)]
    return ["um"] * embedded.um + _infinitive_clause(embedded.clause)


def _infinitive_clause(clause: Clause) -> list[str]:
    parts = [part for part in constituents(clause) if part.role != "subject"]
    return _middle_and_bracket(parts, list(zu_infinitive(clause.verb)))


def _middle_and_bracket(middle: list[Constituent], bracket: list[str]) -> list[str]:
    """Middle field and right bracket; a relative clause next to a filled bracket is moved behind it."""
    if not middle:
        return bracket
    words = [word for part in middle[:-1] for word in part.all_words]
    last = middle[-1]
    if bracket:
        return [*words, *last.words, *bracket, *last.relative, *([","] if last.relative else [])]
    return words + list(last.all_words)


def clause_second(clause: Clause, verb_second: bool = True) -> list[str]:
    """A main clause, or without ``verb_second`` a question that begins with the finite verb."""
    layout = fields(clause, verb_second)
    words = [word for part in layout.prefield for word in part.all_words]
    words.append(layout.verbs.finite)
    bracket = list(layout.verbs.nonfinite) + [layout.verbs.prefix] * bool(layout.verbs.prefix)
    return words + _middle_and_bracket(list(layout.middle), bracket) + list(layout.postfield)


def clause_final(clause: Clause) -> list[str]:
    """A subordinate clause without its conjunction; the part that holds a relative pronoun comes first."""
    parts = constituents(_with_gern(clause))
    holds_gap = [part for part in parts if part.role == clause.front and _has_gap(clause)]
    rest = [part for part in parts if part not in holds_gap]
    verbs = _verbs(clause)
    bracket = [*verbs.nonfinite, verbs.prefix + verbs.finite]
    return [word for part in holds_gap for word in part.words] + [
        *_middle_and_bracket(rest, bracket),
        *_postfield(clause),
    ]


def _has_gap(clause: Clause) -> bool:
    part = getattr(clause, clause.front)
    return isinstance(part, Gap) or isinstance(part, PrepositionalPhrase) and isinstance(part.nominal, Gap)


def _imperative(clause: Clause) -> list[str]:
    parts = [part for part in constituents(clause) if part.role != "subject"]
    first = sum(part.role == "reflexive" or _is_light(getattr(clause, part.role)) for part in parts)
    please = [Constituent("please", ("bitte",))]
    order = parts[:first] + please + parts[first:]
    bracket = [clause.verb.prefix] * bool(clause.verb.prefix)
    return [clause.verb.infinitive, "Sie", *_middle_and_bracket(order, bracket)]


def sentence_words(sentence: Sentence) -> list[str]:
    """The words and commas of a sentence, not yet capitalised."""
    first = sentence.clauses[0]
    if sentence.mood == "imperative":
        return _imperative(first)
    words = clause_second(first, sentence.mood != "question")
    for clause in sentence.clauses[1:]:
        conjunction = sentence.coordinator.german if sentence.coordinator else "und"
        words += [",", conjunction, *clause_second(clause)]
    return words
