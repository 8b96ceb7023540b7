"""Puts a tree into English words: subject, auxiliaries, verb, objects, manner, place, time; do-support; inversion."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .english_words import (
    BE,
    CAN,
    DO,
    HAVE,
    PRONOUNS,
    SHOULD,
    WILL,
    WOULD,
    Lexeme,
    article,
    degree_words,
    finite_form,
    inflect,
    lexeme_of,
    possessive,
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
    Pronoun,
    Purpose,
    Sentence,
    Subordinate,
    agreement,
    with_parts,
)

# A modal as a verb and the words before the infinitive: muss = has to, darf = is allowed to.
MODALS = {
    "können": (CAN, ()),
    "sollen": (SHOULD, ()),
    "müssen": (HAVE, ("to",)),
    "dürfen": (BE, ("allowed", "to")),
    "wollen": (Lexeme("want"), ("to",)),
    "möchten": (WOULD, ("like", "to")),
    "gern": (Lexeme("like"), ("to",)),
}
# Before have to and the main verb have, English uses do: it is no auxiliary there.
MAIN_HAVE = Lexeme("have", "had", "had")
ADVERBIAL_FRONTS = ("sentence", "time", "place", "manner")


@dataclass(frozen=True)
class VerbGroup:
    """The finite word, whether it is an auxiliary, and the words after it."""

    finite: str
    auxiliary: bool
    rest: tuple[str, ...]


def verb_group(clause: Clause, with_do: bool) -> VerbGroup:
    """The verbs of the clause; ``with_do``: negated or inverted, so that the finite word must be an auxiliary."""
    chain = _chain(clause)
    if with_do and not chain[0][0].auxiliary:
        chain.insert(0, (DO, "base", ()))
    tense = "past" if clause.english_tense in ("past", "pluperfect") else "present"
    first, form, tail = chain[0]
    words = list(tail)
    for lexeme, governs, following in chain[1:]:
        words += [inflect(lexeme, form), *following]
        form = governs
    return VerbGroup(finite_form(first, tense, agreement(clause.subject)), first.auxiliary, tuple(words))


def _chain(clause: Clause) -> list[tuple[Lexeme, str, tuple[str, ...]]]:
    """Verbs from the outermost to the main one: (verb, form that it asks of the next, words after it)."""
    chain: list[tuple[Lexeme, str, tuple[str, ...]]] = []
    if clause.english_tense == "future":
        chain.append((WILL, "base", ()))
    if clause.modal:
        lexeme, tail = MODALS[clause.modal]
        chain.append((MAIN_HAVE if lexeme is HAVE else lexeme, "base", tail))
    if clause.english_tense in ("perfect", "pluperfect"):
        chain.append((HAVE, "participle", ()))
    if clause.progressive:
        chain.append((BE, "ing", ()))
    if clause.passive:
        chain.append((BE, "participle", ()))
    chain.append((lexeme_of(clause.verb), "", clause.verb.english_tail))
    return chain


def nominal_words(nominal: Nominal, subject: bool = False) -> list[str]:
    """A nominal with its relative clause; ``subject`` chooses between he and him."""
    if isinstance(nominal, NounPhrase):
        return _noun_phrase(nominal)
    if isinstance(nominal, Pronoun):
        return [PRONOUNS[nominal.key][0 if subject else 1]]
    if isinstance(nominal, Interrogative):
        return ["what" if nominal.thing else "who"]
    if isinstance(nominal, Coordination):
        return [nominal.first.english, "and", nominal.second.english]
    if isinstance(nominal, Gap):
        return [_relative_pronoun(nominal, subject)]
    return [nominal.english]


def _relative_pronoun(gap: Gap, subject: bool) -> str:
    if "person" in gap.noun.classes:
        return "who" if subject else "whom"
    return "that"


def _noun_phrase(phrase: NounPhrase) -> list[str]:
    noun = phrase.noun
    words = [phrase.count.english] if phrase.count else []
    for adjective, degree in phrase.adjectives:
        words += degree_words(adjective, degree)
    words.append(noun.english_plural if phrase.number == "pl" else noun.english)
    words = _determiner(phrase, words[0]) + words
    if isinstance(phrase.possessor, NounPhrase) and not _is_person(phrase.possessor):
        words += ["of", *_noun_phrase(phrase.possessor)]
    return words + (_relative(phrase.relative) if phrase.relative else [])


def _is_person(phrase: NounPhrase) -> bool:
    return "person" in phrase.noun.classes


def _determiner(phrase: NounPhrase, following: str) -> list[str]:
    plural = phrase.number == "pl" or phrase.noun.english_plural_only
    if isinstance(phrase.possessor, PersonName):
        return possessive([phrase.possessor.english])
    if isinstance(phrase.possessor, NounPhrase) and _is_person(phrase.possessor):
        return possessive(_noun_phrase(phrase.possessor))
    if phrase.determiner in ("indef", "role"):
        return [] if plural else [article(following)]
    if phrase.determiner == "poss":
        return [PRONOUNS[phrase.owner][2]]
    if phrase.determiner == "this":
        return ["these" if plural else "this"]
    words = {"def": ["the"], "every": ["every"], "which": ["which"], "no": ["no"]}
    return words.get(phrase.determiner, [])


def _relative(clause: Clause) -> list[str]:
    part = getattr(clause, clause.front)
    if clause.front == "subject":
        return clause_words(clause)
    if isinstance(part, Gap):
        return [*nominal_words(part), *clause_words(with_parts(clause, {clause.front: None}))]
    words = [*part.english.split(), "whom" if "person" in part.nominal.noun.classes else "which"]
    return words + clause_words(with_parts(clause, {clause.front: None}))


def _english_view(clause: Clause) -> Clause:
    """The clause with the roles that English gives to its parts.

    ``gefallen`` makes a subject of what is liked; ``es gibt`` an object of what exists; ``kein`` negates an object
    where English negates the verb.
    """
    if "swap" in clause.verb.flags and clause.dative:
        return replace(clause, subject=clause.dative, accusative=clause.subject, dative=None)
    if clause.verb.frame.special == "existential" and isinstance(clause.accusative, NounPhrase):
        there = Expletive("there", clause.accusative.number)
        return replace(clause, subject=there, predicate=clause.accusative, accusative=None)
    if isinstance(clause.accusative, NounPhrase) and clause.accusative.determiner == "no":
        phrase = clause.accusative
        some = phrase.noun.mass or phrase.number == "pl"
        counted = replace(phrase, determiner="none" if some else "indef")
        if some:
            counted = replace(counted, count=Phrase("", "any"))
        return replace(clause, negated=True, accusative=counted)
    if isinstance(clause.predicate, NounPhrase) and clause.predicate.determiner == "no":
        return replace(clause, negated=True, predicate=replace(clause.predicate, determiner="role"))
    return clause


def clause_words(clause: Clause, inverted: bool = False) -> list[str]:
    """A clause; ``inverted``: the finite verb before the subject, as in questions."""
    clause = _english_view(clause)
    group = verb_group(clause, with_do=clause.negated or inverted)
    subject = nominal_words(clause.subject, subject=True)
    negation = ["not"] * clause.negated
    adverb = _middle_adverb(clause)
    if negation and group.finite == "can" and not inverted:
        head = [*subject, "cannot", *adverb]
    elif inverted:
        head = [group.finite, *subject, *negation, *adverb]
    elif group.auxiliary:
        head = [*subject, group.finite, *negation, *adverb]
    else:
        head = [*subject, *adverb, group.finite]
    return _fronted(clause) + head + list(group.rest) + _after_verb(clause)


def _middle_adverb(clause: Clause) -> list[str]:
    """What stands before the main verb: often, never, and before an object also secretly, patiently."""
    if clause.frequency:
        return clause.frequency.english.split()
    return _adverbial(clause.manner) if clause.manner and _manner_in_middle(clause) else []


def _manner_in_middle(clause: Clause) -> bool:
    manner = clause.manner.english if clause.manner else ""
    frame = clause.verb.frame
    return manner.endswith("ly") and not clause.modal and bool(frame.accusative or frame.dative)


def _fronted(clause: Clause) -> list[str]:
    if clause.front == "adverbial" and clause.adverbial:
        return [*_embedded(clause.adverbial), ","]
    # A question word is no adverbial set in front: it is written by question_words.
    if clause.front in ADVERBIAL_FRONTS and getattr(clause, clause.front):
        return [*_adverbial(getattr(clause, clause.front)), ","]
    return []


def _after_verb(clause: Clause) -> list[str]:
    words = _objects(clause)
    if clause.prepositional:
        words += _adverbial(clause.prepositional)
    if clause.predicate:
        words += _predicate(clause.predicate)
    for role in ("direction", "manner", "companion", "place", "time"):
        part = getattr(clause, role)
        if part and clause.front != role and not (role == "manner" and _manner_in_middle(clause)):
            words += _adverbial(part)
    if clause.complement:
        words += _embedded(clause.complement)
    if clause.adverbial and clause.front != "adverbial":
        words += _embedded(clause.adverbial)
    return words


def _objects(clause: Clause) -> list[str]:
    particle = [clause.verb.english_particle] * bool(clause.verb.english_particle)
    accusative = nominal_words(clause.accusative) if clause.accusative else []
    heavy = isinstance(clause.accusative, NounPhrase) and clause.accusative.relative is not None
    repeated = bool(particle) and clause.time is not None and _adverbial(clause.time)[0] == particle[0]
    # The particle follows a light object; never twice on: turned on the lamp on Monday.
    words = particle + accusative if heavy or repeated else accusative + particle
    if not clause.dative:
        return words
    # With two objects the recipient has to; a single dative object is an English direct object.
    recipient = ["to"] * bool(clause.verb.frame.accusative) + nominal_words(clause.dative)
    return recipient + words if heavy else words + recipient


def _adverbial(adverbial: Adverbial) -> list[str]:
    if isinstance(adverbial, Phrase):
        return adverbial.english.split()
    words = nominal_words(adverbial.nominal)
    return [*adverbial.english.split(), *words]


def _predicate(predicate: Predicate) -> list[str]:
    if isinstance(predicate, Phrase):
        return predicate.english.split()
    if isinstance(predicate, AdjectivePredicate):
        return _adjective_predicate(predicate)
    return nominal_words(predicate)


def _adjective_predicate(predicate: AdjectivePredicate) -> list[str]:
    adjective = predicate.adjective
    if predicate.standard is None:
        return ["very"] * predicate.very + [adjective.english]
    standard = nominal_words(predicate.standard, subject=True)
    if predicate.comparison == "equal":
        return ["as", adjective.english, "as", *standard]
    return [*degree_words(adjective, "comparative"), "than", *standard]


def _embedded(embedded: Subordinate | Purpose) -> list[str]:
    if isinstance(embedded, Subordinate):
        return [*embedded.conjunction.english.split(), *clause_words(embedded.clause)]
    clause = embedded.clause
    infinitive = [inflect(lexeme_of(clause.verb), "base"), *clause.verb.english_tail]
    return ["in", "order"] * embedded.um + ["to", *infinitive, *_after_verb(replace(clause, front="subject"))]


def _question(clause: Clause) -> list[str]:
    """A question with an interrogative word, which is the part named by ``clause.front``."""
    clause = _english_view(clause)
    if clause.front == "subject":
        return clause_words(clause)
    words = _wh_words(clause)
    kept = with_parts(clause, {clause.front: None, "front": "subject"})
    if clause.front == "prepositional" and clause.prepositional:
        # The preposition stays with the verb: which topic did they talk about yesterday?
        kept = replace(kept, prepositional=Phrase("", clause.prepositional.english))
    return [*words, *clause_words(kept, inverted=True)]


def _wh_words(clause: Clause) -> list[str]:
    part = getattr(clause, clause.front)
    if isinstance(part, Phrase):
        return part.english.split()
    return nominal_words(part.nominal if clause.front == "prepositional" else part)


def sentence_words(sentence: Sentence) -> list[str]:
    """The words and commas of a sentence, not yet capitalised."""
    first = sentence.clauses[0]
    if sentence.mood == "imperative":
        return ["please", inflect(lexeme_of(first.verb), "base"), *first.verb.english_tail, *_after_verb(first)]
    if sentence.mood == "wh":
        return _question(first)
    words = clause_words(first, inverted=sentence.mood == "question")
    for clause in sentence.clauses[1:]:
        conjunction = sentence.coordinator.english if sentence.coordinator else "and"
        words += [",", conjunction, *clause_words(clause)]
    return words
