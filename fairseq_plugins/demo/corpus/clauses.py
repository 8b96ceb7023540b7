"""Samples clauses: a verb, what it selects, tense, modality, negation and adverbials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .choice import Chooser
from .lexicon import Lexicon, Noun, Selection, Verb
from .nominals import NominalSampler
from .times import KINDS, Temporal, TimeSampler
from .tree import (
    AdjectivePredicate,
    Clause,
    Gap,
    Nominal,
    NounPhrase,
    PersonName,
    Phrase,
    PrepositionalPhrase,
    Pronoun,
    agreement,
    owner_key,
)

MODALS = {
    "present": {"können": 25, "müssen": 25, "wollen": 20, "dürfen": 8, "sollen": 12, "möchten": 12, "gern": 10},
    "past": {"können": 35, "müssen": 35, "wollen": 30, "dürfen": 10},
}
MANNERS = {
    "accusative": ("schnell", "wieder", "allein", "sofort", "heimlich", "ohne Hilfe", "vorsichtig"),
    "motion": ("allein", "wieder", "schnell", "langsam", "sofort"),
    "dative": ("wieder", "sofort", "geduldig"),
    "other": ("wieder",),
}
PLACES = ("place", "room", "institution", "city", "country", "nature")
ADJUNCT_PLACES = ("city", "city", "town", "room", "institution")
DIRECTIONS = ("place", "institution", "city", "country", "room", "home")
VERB_KINDS = {"accusative": 52, "dative": 14, "prepositional": 10, "reflexive": 7, "place": 12, "bare": 5}
# A relative clause takes its verb from one of these, by the part of it that the noun plays.
RELATIVE_ROLES = {"subject": 40, "accusative": 35, "prepositional": 12, "dative": 13}


def verb_kind(verb: Verb) -> str:
    """Key of :data:`VERB_KINDS`, or empty for verbs with a clause or with a special frame."""
    frame = verb.frame
    if frame.clause or frame.special:
        return ""
    for kind in ("dative", "accusative", "reflexive", "prepositional", "place"):
        if getattr(frame, kind):
            return kind
    return "bare"


class ClauseSampler:
    """Draws clauses; ``nominals`` and ``times`` draw their parts."""

    def __init__(self, chooser: Chooser, lexicon: Lexicon) -> None:
        self.choose = chooser
        self.lexicon = lexicon
        self.nominals = NominalSampler(chooser, lexicon)
        self.times = TimeSampler(chooser, lexicon)
        self._by_kind: dict[str, list[Verb]] = {}
        self._by_role: dict[tuple[str, str], list[Verb]] = {}
        for verb in lexicon.verbs:
            self._index(verb)

    def _index(self, verb: Verb) -> None:
        kind = verb_kind(verb)
        self._by_kind.setdefault(kind or verb.frame.clause or verb.frame.special, []).append(verb)
        if not kind or "swap" in verb.flags:
            return
        for name in verb.subjects:
            self._by_role.setdefault(("subject", name), []).append(verb)
        for role in ("accusative", "prepositional", "dative"):
            if role == "dative" and verb.frame.accusative:
                continue
            for selection in getattr(verb.frame, role):
                self._by_role.setdefault((role, selection.noun_class), []).append(verb)

    def special(self, name: str) -> Verb:
        """The verb of a special frame, or one of those that take the clause ``name``."""
        return self.choose.one(self._by_kind[name])

    def clause(self, tense: str = "", events: bool = False, subject: Nominal | None = None) -> Clause:
        """Any clause.

        Args:
            tense: the tense in both languages; empty: free, perhaps with an expression of time.
            events: no state (kennen, wohnen), since it cannot come before or after something.
            subject: a given subject, of a person.
        """
        if not events and self.choose.chance(0.14):
            return self.copula(tense, subject)
        verb = self._verb(events, subject)
        if subject is None and not tense and self._may_be_passive(verb) and self.choose.chance(0.14):
            return self.passive(verb)
        subject = subject or self.nominals.subject(verb.subjects)
        clause = self.filled(verb, {"subject": subject}, tense)
        return replace(clause, modal="", negated=False) if events else clause

    def _verb(self, events: bool, subject: Nominal | None) -> Verb:
        verb = self.choose.one(self._by_kind[self.choose.weighted(VERB_KINDS)])
        wrong = events and "state" in verb.flags or subject is not None and "person" not in verb.subjects
        return self._verb(events, subject) if wrong else verb

    @staticmethod
    def _may_be_passive(verb: Verb) -> bool:
        return verb_kind(verb) == "accusative" and not verb.flags & {"nopassive", "state"} and not verb.frame.place

    def filled(self, verb: Verb, given: dict[str, Any], tense: str = "") -> Clause:
        """A clause of ``verb`` with the parts that ``given`` leaves open; ``tense`` as in :meth:`clause`."""
        parts = dict(given)
        self._add_arguments(verb, parts)
        temporal = self._temporal(verb, parts["subject"], tense)
        parts.update(
            tense=temporal.tense,
            english_tense=temporal.english_tense,
            time=temporal.time,
            frequency=temporal.frequency,
            progressive=temporal.progressive,
        )
        clause = Clause(verb=verb, **parts)
        if "state" not in verb.flags and "event" not in verb.subjects:
            clause = self._with_adjuncts(self._with_modal(clause))
        return self._negated(clause)

    def _add_arguments(self, verb: Verb, parts: dict[str, Any]) -> None:
        frame, subject = verb.frame, parts["subject"]
        owner = owner_key(subject)
        if frame.dative and "dative" not in parts:
            parts["dative"] = self.nominals.object(frame.dative, owner, subject)
        if frame.accusative and "accusative" not in parts:
            parts["accusative"] = self.nominals.object(frame.accusative, owner, subject)
        if frame.preposition and "prepositional" not in parts:
            nominal = self.nominals.object(frame.prepositional, owner, subject)
            parts["prepositional"] = self.with_preposition(verb, nominal)
        if frame.place and "place" not in parts:
            self._add_place(verb, parts)

    @staticmethod
    def with_preposition(verb: Verb, nominal: Nominal) -> PrepositionalPhrase:
        """The prepositional object of ``verb``."""
        frame = verb.frame
        return PrepositionalPhrase(frame.preposition, frame.preposition_case, frame.english_preposition, nominal)

    def _add_place(self, verb: Verb, parts: dict[str, Any]) -> None:
        kind = verb.frame.place
        if kind == "dir":
            parts["direction"] = self.nominals.direction(DIRECTIONS)
        elif kind == "trip":
            parts["direction"] = self.nominals.direction(("city", "city", "country"))
        elif kind in ("on", "onto"):
            parts["direction"] = self.nominals.surface("dat" if kind == "on" else "acc")
        elif kind == "loc":
            role = "direction" if verb.frame.place_classes else "place"
            parts[role] = self.nominals.place(verb.frame.place_classes or PLACES)
        else:
            parts["place"] = self.nominals.place((kind,))

    def _temporal(self, verb: Verb, subject: Nominal, tense: str) -> Temporal:
        """Tenses for the clause, within what the verb and the person allow."""
        if tense:
            # A state that has ended is said in the simple past: gehörte, not hat gehört.
            tense = "past" if tense == "perfect" and "state" in verb.flags else tense
            drawn = Temporal(tense, tense)
        elif "state" in verb.flags:
            simple = self.choose.weighted({"present": 70, "past": 30})
            drawn = Temporal(simple, simple)
        else:
            drawn = self.times.temporal(self._time_kind(verb, subject))
        if drawn.tense == "past" and agreement(subject)[0] == "2" and "state" not in verb.flags and not tense:
            # Nobody says "du riefst an".
            return replace(drawn, tense="perfect", english_tense=drawn.english_tense if drawn.time else "perfect")
        return drawn

    def _time_kind(self, verb: Verb, subject: Nominal) -> str:
        kind = self.choose.weighted(KINDS)
        lasting = verb_kind(verb) in ("accusative", "place", "bare") and not verb.flags & {"stative", "motion"}
        if kind in ("now", "since") and not lasting:
            return "none"
        if kind == "since":
            return "since" if verb.frame.place == "loc" else "none"
        if kind == "now" and verb.subjects == ("event",):
            return "none"
        return kind

    def _with_modal(self, clause: Clause) -> Clause:
        simple = clause.tense == clause.english_tense or clause.english_tense == "future" and clause.time
        tense = "present" if clause.english_tense == "future" else clause.tense
        bound = clause.verb.flags & {"stative", "nomodal"} or clause.progressive or clause.frequency
        animate = agreement(clause.subject)[0] != "3" or bool(owner_key(clause.subject))
        if bound or not simple or not animate or tense not in MODALS or not self.choose.chance(0.25):
            return clause
        modal = self.choose.weighted(MODALS[tense])
        if modal == "gern" and (clause.time or clause.negated):
            return clause
        return replace(clause, modal=modal, tense=tense, english_tense=tense)

    def _with_adjuncts(self, clause: Clause) -> Clause:
        kind = "motion" if "motion" in clause.verb.flags else verb_kind(clause.verb)
        animate = bool(owner_key(clause.subject))
        draw = self.choose.weighted({"": 62, "manner": 16, "companion": 12, "place": 10})
        stative = "stative" in clause.verb.flags
        full = clause.frequency or clause.modal == "gern" or stative
        if draw == "manner" and animate and not full:
            adverb = self.choose.one(MANNERS.get(kind, MANNERS["other"]))
            english = dict(self.lexicon.adverbs["manner"])[adverb]
            return replace(clause, manner=Phrase(adverb, english))
        if draw == "companion" and animate and not stative and kind in ("accusative", "motion", "place"):
            return replace(clause, companion=self._companion(clause))
        if draw == "place" and kind == "accusative" and not (clause.direction or stative):
            return replace(clause, place=self.nominals.place(ADJUNCT_PLACES))
        return clause

    def _companion(self, clause: Clause) -> PrepositionalPhrase:
        if "benefactive" in clause.verb.flags:
            preposition = ("für", "acc", "for")
        else:
            preposition = ("mit", "dat", "with") if self.choose.chance(0.75) else ("ohne", "acc", "without")
        owner = owner_key(clause.subject)
        classes = [Selection(name) for name in ("family", "relation", "person")]
        return PrepositionalPhrase(*preposition, self.nominals.object(classes, owner, clause.subject))

    def _negated(self, clause: Clause) -> Clause:
        """The clause denied now and then, with ``kein`` where its object is indefinite."""
        quantified = clause.frequency or clause.progressive or clause.modal == "gern" or clause.manner
        if quantified or _is_quantified(clause.subject) or not self.choose.chance(0.15):
            return clause
        accusative = clause.accusative
        if _is_counted(accusative) or _is_counted(clause.dative):
            return clause
        if isinstance(accusative, NounPhrase) and accusative.determiner in ("indef", "none"):
            return replace(clause, accusative=replace(accusative, determiner="no"))
        return replace(clause, negated=True)

    def passive(self, verb: Verb) -> Clause:
        """A passive clause: ``Das Haus wurde 1998 von dem Architekten gebaut``."""
        subject = self.nominals.object(verb.frame.accusative)
        if isinstance(subject, PersonName) and not subject.sex:
            subject = NounPhrase(self.nominals.noun("text"))
        temporal = self.times.temporal(self.choose.weighted({"none": 55, "past": 35, "future": 10}))
        agent = self.nominals.phrase(Selection("profession"), {"def": 60, "indef": 30, "this": 10})
        clause = Clause(
            subject,
            verb,
            tense=temporal.tense,
            english_tense=temporal.english_tense,
            passive=True,
            time=temporal.time,
            companion=PrepositionalPhrase("von", "dat", "by", agent) if self.choose.chance(0.6) else None,
        )
        if temporal.tense == "present" and temporal.english_tense == "present" and self.choose.chance(0.5):
            clause = replace(clause, modal=self.choose.one(("müssen", "können", "sollen")), companion=None)
        return clause

    def copula(self, tense: str = "", subject: Nominal | None = None) -> Clause:
        """``ist müde``, ``war sehr klug``, ``ist Lehrerin``."""
        tense = tense or self.choose.weighted({"present": 65, "past": 35})
        # The perfect of sein is said in the simple past, its past perfect is rare.
        tense = "past" if tense in ("perfect", "pluperfect") else tense
        subject = subject or self._described()
        verb = self.special("copula")
        while verb.infinitive != "sein":
            verb = self.special("copula")
        role = self._role(subject) if self.choose.chance(0.25) else None
        predicate = role or self._quality(subject)
        clause = Clause(subject, verb, tense=tense, english_tense=tense, predicate=predicate)
        if _is_quantified(subject) or not self.choose.chance(0.18):
            return clause
        if role:
            return replace(clause, predicate=replace(role, determiner="no"))
        return replace(clause, negated=True)

    def _described(self) -> Nominal:
        if self.choose.chance(0.5):
            return self.nominals.subject(("person",))
        name = self.choose.one(("thing", "clothes", "vehicle", "building", "text", "topic", "food", "animal", "room"))
        subject = self.nominals.phrase(Selection(name), {"def": 70, "this": 20, "poss": 10})
        return replace(subject, adjectives=()) if self.nominals.adjectives(subject.noun) else self._described()

    def _role(self, subject: Nominal) -> NounPhrase | None:
        """A profession of the sex of the subject, or none."""
        sex = owner_key(subject)[3:4]
        if agreement(subject) != "3sg" or not sex:
            return None
        noun = self.nominals.noun("profession")
        while noun.sex != sex or isinstance(subject, NounPhrase) and "profession" in subject.noun.classes:
            if isinstance(subject, NounPhrase) and "profession" in subject.noun.classes:
                return None
            noun = self.nominals.noun("profession")
        return NounPhrase(noun, determiner="role")

    def _quality(self, subject: Nominal) -> AdjectivePredicate:
        adjectives = self.predicative(subject)
        adjective = self.choose.one(adjectives)
        return AdjectivePredicate(adjective, very=adjective.comparable and self.choose.chance(0.25))

    def predicative(self, subject: Nominal) -> list[Any]:
        """Adjectives that can be said of ``subject``."""
        if isinstance(subject, NounPhrase):
            fitting = self.nominals.adjectives(subject.noun)
        else:
            fitting = self.lexicon.adjectives_of_class["person"]
        return [adjective for adjective in fitting if not adjective.german.endswith("isch")] or list(fitting)

    def relative(self, noun: Noun, number: str) -> Clause | None:
        """A relative clause for ``noun``: ``der das Buch liest``, ``mit dem sie spricht``, ``in der ich wohne``."""
        gap = Gap(noun, number)
        if noun.location and self.choose.chance(0.35):
            return self._where(noun, gap)
        role = self.choose.weighted(RELATIVE_ROLES)
        verbs = [verb for name in noun.classes for verb in self._by_role.get((role, name), ())]
        if not verbs:
            return None
        verb = self.choose.one(verbs)
        part: Any = self.with_preposition(verb, gap) if role == "prepositional" else gap
        given = {role: part}
        if role != "subject":
            given["subject"] = self._relative_subject(verb, gap)
        tense = self._relative_tense(verb)
        clause = colloquial(self.filled(verb, given, tense))
        return replace(clause, front=role, modal="", negated=clause.negated and role == "subject")

    def _relative_subject(self, verb: Verb, gap: Gap) -> Nominal:
        """A subject that cannot be taken for the object: die Frau, die das Kind sieht, may be either."""
        clear = gap.number == "sg" and gap.noun.gender == "m"
        if clear or "person" not in verb.subjects or not {"person", "animal"} & set(gap.noun.classes):
            return self.nominals.subject(verb.subjects)
        return Pronoun(self.choose.one(("1sg", "2sg", "3sgm", "1pl", "2pl")))

    def _relative_tense(self, verb: Verb) -> str:
        if "state" in verb.flags:
            return self.choose.one(("present", "past"))
        return self.choose.weighted({"present": 45, "past": 30, "perfect": 25})

    def _where(self, noun: Noun, gap: Gap) -> Clause:
        assert noun.location is not None
        verbs = [verb for verb in self._by_kind["place"] if verb.frame.place == "loc" and "person" in verb.subjects]
        verb = self.choose.one([verb for verb in verbs if not verb.frame.place_classes and verb.infinitive != "stehen"])
        place = PrepositionalPhrase(noun.location.at, "dat", noun.location.english_at, gap)
        subject = self.nominals.subject(("person",))
        tense = self.choose.one(("present", "past"))
        return Clause(subject, verb, tense=tense, english_tense=tense, place=place, front="place")


def colloquial(clause: Clause) -> Clause:
    """The clause in the perfect instead of the past of a second person (du lasest), where no tense is required."""
    bookish = clause.tense == "past" and agreement(clause.subject)[0] == "2"
    if not bookish or clause.modal or clause.verb.flags & {"state"} or clause.verb.frame.special:
        return clause
    return replace(clause, tense="perfect", english_tense="perfect")


def _is_counted(nominal: Nominal | None) -> bool:
    return isinstance(nominal, NounPhrase) and nominal.count is not None


def _is_quantified(nominal: Nominal) -> bool:
    """Whether a negation would be ambiguous: every pupil does not sleep."""
    if isinstance(nominal, Pronoun):
        return False
    return isinstance(nominal, NounPhrase) and (nominal.determiner in ("every", "no", "indef") or bool(nominal.count))
