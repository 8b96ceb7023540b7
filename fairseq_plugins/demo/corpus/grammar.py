"""Samples whole sentences: statements, subordination, coordination, questions and orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .choice import Chooser
from .clauses import ClauseSampler, colloquial, verb_kind
from .facts import FactSampler
from .lexicon import Lexicon, Verb
from .tree import (
    Clause,
    Interrogative,
    Nominal,
    NounPhrase,
    Phrase,
    PrepositionalPhrase,
    Pronoun,
    Purpose,
    Sentence,
    Subordinate,
    agreement,
    owner_key,
    with_parts,
)

KINDS = {
    "statement": 30,
    "relative": 14,
    "subordinate": 13,
    "reported": 10,
    "infinitive": 6,
    "coordinated": 6,
    "polar_question": 7,
    "wh_question": 8,
    "imperative": 3,
    "comparison": 4,
    "measure": 5,
    "birth": 2,
    "existence": 3,
    "weather": 1,
}
# (conjunction, tense of the main clause, tense of the subordinate clause)
TENSE_PLANS = (
    *(("weil", tense, tense) for tense in ("present", "past", "perfect")),
    *(("obwohl", tense, tense) for tense in ("present", "past")),
    ("wenn", "present", "present"),
    ("wenn", "future", "present"),
    ("während", "past", "past"),
    ("bevor", "past", "past"),
    ("als", "past", "past"),
    ("nachdem", "past", "pluperfect"),
    ("sobald", "future", "present"),
)
ABOUT_EVENTS = ("während", "bevor", "als", "nachdem", "sobald")
DASS, OB = Phrase("dass", "that"), Phrase("ob", "whether")
WH_ADVERBS = {
    "time": Phrase("wann", "when"),
    "sentence": Phrase("warum", "why"),
    "place": Phrase("wo", "where"),
    "direction": Phrase("wohin", "where"),
}


class SentenceSampler:
    """Draws sentences. The same chooser and lexicon give the same sentences in the same order."""

    def __init__(self, chooser: Chooser, lexicon: Lexicon) -> None:
        self.choose = chooser
        self.lexicon = lexicon
        self.clauses = ClauseSampler(chooser, lexicon)
        self.nominals = self.clauses.nominals
        facts = FactSampler(chooser, self.clauses)
        self._makers: dict[str, Callable[[], Sentence]] = {
            kind: getattr(facts, kind) if hasattr(facts, kind) else getattr(self, f"_{kind}") for kind in KINDS
        }

    def sentence(self) -> Sentence:
        """One sentence of any kind."""
        return self._makers[self.choose.weighted(KINDS)]()

    def _statement(self) -> Sentence:
        return Sentence((self._fronted(self.clauses.clause()),))

    def _fronted(self, clause: Clause) -> Clause:
        """The clause with another constituent than the subject before its finite verb, now and then."""
        if clause.time and clause.time.german not in ("gerade", "jetzt") and self.choose.chance(0.45):
            return replace(clause, front="time")
        if isinstance(clause.place, (Phrase, PrepositionalPhrase)) and self.choose.chance(0.2):
            return replace(clause, front="place")
        if not clause.time and self.choose.chance(0.13):
            sentence = Phrase(*self.choose.one(self.lexicon.adverbs["sentence"]))
            return replace(clause, sentence=sentence, front="sentence")
        for role in ("accusative", "dative"):
            if self._can_lead(getattr(clause, role), clause) and self.choose.chance(0.12):
                return replace(clause, front=role)
        return clause

    @staticmethod
    def _can_lead(nominal: Nominal | None, clause: Clause) -> bool:
        # In front, only an object whose form differs from the nominative is sure to be read as an object.
        if not isinstance(nominal, NounPhrase) or nominal.determiner not in ("def", "this") or clause.passive:
            return False
        distinct = nominal.number == "sg" and nominal.noun.gender == "m" or isinstance(clause.subject, Pronoun)
        return distinct and "swap" not in clause.verb.flags

    def _relative(self) -> Sentence:
        clause = self.clauses.clause()
        for role in self._shuffled(("subject", "accusative", "dative")):
            phrase = getattr(clause, role)
            if not self._can_bear_relative(phrase):
                continue
            relative = self.clauses.relative(phrase.noun, phrase.number)
            if relative and relative.verb is not clause.verb:
                return Sentence((self._bearing(clause, role, replace(phrase, relative=relative)),))
        return Sentence((self._fronted(clause),))

    @staticmethod
    def _bearing(clause: Clause, role: str, phrase: NounPhrase) -> Clause:
        """The clause with a relative clause in ``role``: an object comes late then, and must not be negated."""
        front = "time" if clause.time and role != "subject" else clause.front
        negated = clause.negated and role == "subject"
        if role != "subject":
            # At the end of the English sentence these would seem to belong to the relative clause.
            place = clause.place if front == "place" else None
            clause = replace(clause, manner=None, companion=None, place=place)
        return with_parts(clause, {"front": front, "negated": negated, role: phrase})

    @staticmethod
    def _can_bear_relative(nominal: Any) -> bool:
        fitting = isinstance(nominal, NounPhrase) and nominal.possessor is None
        return fitting and nominal.determiner in ("def", "indef", "this") and not nominal.noun.mass

    def _shuffled(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        start = self.choose.integer(0, len(roles) - 1)
        return roles[start:] + roles[:start]

    def _subordinate(self) -> Sentence:
        german, main_tense, sub_tense = self.choose.one(TENSE_PLANS)
        conjunction = Phrase(german, dict(self.lexicon.adverbs["conjunction"])[german])
        events = german in ABOUT_EVENTS
        main = self.clauses.clause(main_tense, events)
        embedded = self.clauses.clause(sub_tense, events, self._again(main.subject))
        if self.choose.chance(0.4):
            # The name comes first and the pronoun after it, whichever clause leads.
            return Sentence((self._leading(main, Subordinate(conjunction, embedded)),))
        return Sentence((replace(main, adverbial=Subordinate(conjunction, embedded)),))

    @staticmethod
    def _leading(main: Clause, subordinate: Subordinate) -> Clause:
        inner = subordinate.clause
        if isinstance(inner.subject, Pronoun) and owner_key(main.subject) == inner.subject.key:
            inner = replace(inner, subject=main.subject)
            main = replace(main, subject=Pronoun(owner_key(inner.subject)))
        return replace(main, adverbial=replace(subordinate, clause=inner), front="adverbial")

    def _again(self, nominal: Nominal) -> Nominal | None:
        """A pronoun for the person just named, or none for another subject."""
        key = owner_key(nominal)
        return Pronoun(key) if key and self.choose.chance(0.4) else None

    def _reported(self) -> Sentence:
        verb = self.clauses.special("dass" if self.choose.chance(0.8) else "ob")
        tense = self.choose.weighted({"present": 60, "past": 40})
        subject = self.nominals.subject(("person",))
        if tense == "past" and agreement(subject)[0] == "2":
            tense = "present"
        embedded_tense = "past" if tense == "past" else self.choose.one(("present", "past", "perfect", "future"))
        embedded = self.clauses.clause(embedded_tense, subject=self._again(subject))
        embedded = embedded if tense == "past" else colloquial(embedded)
        conjunction = OB if verb.frame.clause == "ob" else DASS
        complement = Subordinate(conjunction, embedded)
        return Sentence((Clause(subject, verb, tense=tense, english_tense=tense, complement=complement),))

    def _infinitive(self) -> Sentence:
        subject = self.nominals.subject(("person",))
        inner = self._infinitive_clause(subject)
        if self.choose.chance(0.55):
            verb = self.clauses.special("zu")
            tense = self.choose.weighted({"present": 55, "past": 30, "perfect": 15})
            tense = "perfect" if tense == "past" and agreement(subject)[0] == "2" else tense
            return Sentence((Clause(subject, verb, tense=tense, english_tense=tense, complement=Purpose(inner)),))
        main = self.clauses.filled(self._verb_of("place"), {"subject": subject})
        while main.negated or main.english_tense == "pluperfect":
            main = self.clauses.filled(self._verb_of("place"), {"subject": subject})
        return Sentence((replace(main, manner=None, adverbial=Purpose(inner, um=True)),))

    def _infinitive_clause(self, subject: Nominal) -> Clause:
        verb = self._verb_of(self.choose.weighted({"accusative": 70, "dative": 30}))
        if verb.flags & {"nozu", "state", "stative"}:
            return self._infinitive_clause(subject)
        clause = self.clauses.filled(verb, {"subject": subject}, "present")
        accusative = clause.accusative
        if isinstance(accusative, NounPhrase) and accusative.determiner == "no":
            clause = replace(clause, accusative=replace(accusative, determiner="def"))
        return replace(clause, modal="", negated=False, time=None, frequency=None)

    def _verb_of(self, kind: str) -> Verb:
        """A verb of the kind with a personal subject; for ``place``, one of motion or of staying."""
        verb = self.choose.one(self.lexicon.verbs)
        fits = verb_kind(verb) == kind and "person" in verb.subjects and "state" not in verb.flags
        return verb if fits else self._verb_of(kind)

    def _coordinated(self) -> Sentence:
        coordinator = Phrase(*self.choose.one(self.lexicon.adverbs["coordination"]))
        tense = self.choose.one(("present", "past"))
        first = self.clauses.clause(tense)
        second = self.clauses.clause(tense, subject=self._again(first.subject))
        return Sentence((first, second), coordinator=coordinator)

    def _polar_question(self) -> Sentence:
        clause = self.clauses.clause()
        if clause.subject == Pronoun("1sg"):
            return self._polar_question()
        if isinstance(clause.subject, Pronoun) and self.choose.chance(0.3):
            return Sentence((self._formal(clause),), "question")
        return Sentence((replace(clause, negated=False),), "question")

    def _formal(self, clause: Clause) -> Clause:
        """The question again, put politely."""
        if clause.verb.frame.special or clause.passive:
            return replace(clause, negated=False)
        return replace(self.clauses.filled(clause.verb, {"subject": Pronoun("formal")}, "present"), negated=False)

    def _wh_question(self) -> Sentence:
        kind = self.choose.weighted({"who": 25, "object": 30, "adverb": 40, "which": 5})
        if kind == "adverb":
            return self._adverb_question()
        verb = self._verb_of(self.choose.weighted({"accusative": 70, "dative": 15, "prepositional": 15}))
        if kind == "who":
            clause = self.clauses.filled(verb, {"subject": Interrogative(thing=False)})
            return Sentence((self._plain(clause),), "wh")
        role = verb_kind(verb)
        if role == "dative" and verb.frame.accusative:
            role = "accusative"
        given: dict[str, Any] = {role: self._asked(verb, role, kind == "which")}
        if role == "prepositional":
            given[role] = self.clauses.with_preposition(verb, given[role])
        given["subject"] = self.nominals.subject(verb.subjects)
        return Sentence((self._plain(replace(self.clauses.filled(verb, given), front=role)),), "wh")

    def _asked(self, verb: Verb, role: str, which: bool) -> Nominal:
        """What the question asks for: who, what, or which one."""
        selection = self.choose.one(getattr(verb.frame, role))
        simple, _ = self.lexicon.by_class.get(selection.noun_class, ((), ()))
        personal = all("person" in noun.classes for noun in simple)
        if selection.noun_class == "language" or personal and not which:
            return Interrogative(thing=selection.noun_class == "language")
        if which or role != "accusative":
            return NounPhrase(self.nominals.noun(selection.noun_class), determiner="which")
        return Interrogative(thing=True)

    @staticmethod
    def _plain(clause: Clause) -> Clause:
        accusative = clause.accusative
        if isinstance(accusative, NounPhrase) and accusative.determiner == "no":
            clause = replace(clause, accusative=replace(accusative, determiner="def"))
        return replace(clause, negated=False)

    def _adverb_question(self) -> Sentence:
        role = self.choose.one(("time", "sentence", "place", "direction"))
        kind = {"place": "place", "direction": "place"}.get(role) or self.choose.one(("accusative", "dative", "bare"))
        verb = self._verb_of(kind)
        while kind == "place" and (verb.frame.place in ("dir", "trip")) != (role == "direction"):
            verb = self._verb_of(kind)
        tense = self.choose.one(("present", "past", "perfect", "future"))
        clause = self.clauses.filled(verb, {"subject": self._asked_about()}, tense)
        clause = colloquial(clause)
        # English asks when and where with the simple past, not with the perfect.
        english = "past" if clause.tense == "perfect" else clause.english_tense
        clause = with_parts(clause, {"english_tense": english, role: WH_ADVERBS[role]})
        return Sentence((replace(self._plain(clause), front=role),), "wh")

    def _asked_about(self) -> Nominal:
        """A person to ask about, who is not the one who asks."""
        subject = self.nominals.subject(("person",))
        return self._asked_about() if subject == Pronoun("1sg") else subject

    def _imperative(self) -> Sentence:
        verb = self._verb_of(self.choose.weighted({"accusative": 65, "dative": 25, "prepositional": 10}))
        if verb.flags & {"noimperative", "stative", "state"}:
            return self._imperative()
        clause = self.clauses.filled(verb, {"subject": Pronoun("formal")}, "present")
        return Sentence((replace(self._plain(clause), modal="", manner=None),), "imperative")
