"""Sentences of the embedded corpus: gold pairs built by hand, and properties of every sampled one."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugins.demo.corpus import english_syntax, german_syntax, pairs
from fairseq_plugins.demo.corpus.choice import Chooser
from fairseq_plugins.demo.corpus.generate import Pair, spelled
from fairseq_plugins.demo.corpus.german_words import CASES, noun_form
from fairseq_plugins.demo.corpus.grammar import SentenceSampler
from fairseq_plugins.demo.corpus.lexicon import Adjective, Noun, Verb, load
from fairseq_plugins.demo.corpus.tree import (
    AdjectivePredicate,
    Clause,
    Gap,
    Interrogative,
    NounPhrase,
    PersonName,
    Phrase,
    PrepositionalPhrase,
    Pronoun,
    Purpose,
    Sentence,
    Subordinate,
)


def noun(german: str) -> Noun:
    return next(item for item in load().nouns if item.german == german)


def verb(german: str) -> Verb:
    return next(item for item in load().verbs if item.german == german)


def adjective(german: str) -> Adjective:
    return next(item for item in load().adjectives if item.german == german)


def the(german: str, **changes: Any) -> NounPhrase:
    return replace(NounPhrase(noun(german)), **changes)


def both(sentence: Sentence | Clause) -> tuple[str, str]:
    """The pair as it would be written."""
    tree = Sentence((sentence,)) if isinstance(sentence, Clause) else sentence
    german = spelled(german_syntax.sentence_words(tree), tree.mood)
    return german, spelled(english_syntax.sentence_words(tree), tree.mood.replace("imperative", "statement"))


def tensed(clause: Clause, german: str, english: str = "") -> Clause:
    return replace(clause, tense=german, english_tense=english or german)


CALL = Clause(the("Mann"), verb("anrufen"), accusative=the("Frau"))
READ = Clause(the("Frau"), verb("lesen"), accusative=the("Buch", determiner="indef"))
YESTERDAY = Phrase("gestern", "yesterday")
TEACHER = NounPhrase(noun("Lehrer"))


@pytest.mark.parametrize(
    ("clause", "german", "english"),
    [
        (CALL, "Der Mann ruft die Frau an.", "The man phones the woman."),
        (tensed(CALL, "past"), "Der Mann rief die Frau an.", "The man phoned the woman."),
        (tensed(CALL, "perfect"), "Der Mann hat die Frau angerufen.", "The man has phoned the woman."),
        (tensed(CALL, "pluperfect"), "Der Mann hatte die Frau angerufen.", "The man had phoned the woman."),
        (tensed(CALL, "future"), "Der Mann wird die Frau anrufen.", "The man will phone the woman."),
        (replace(CALL, modal="müssen"), "Der Mann muss die Frau anrufen.", "The man has to phone the woman."),
        (replace(CALL, modal="können"), "Der Mann kann die Frau anrufen.", "The man can phone the woman."),
        (replace(CALL, modal="gern"), "Der Mann ruft die Frau gern an.", "The man likes to phone the woman."),
        (replace(CALL, negated=True), "Der Mann ruft die Frau nicht an.", "The man does not phone the woman."),
        (replace(CALL, accusative=Pronoun("3sgf")), "Der Mann ruft sie an.", "The man phones her."),
        (
            replace(tensed(CALL, "perfect", "past"), time=YESTERDAY, front="time"),
            "Gestern hat der Mann die Frau angerufen.",
            "Yesterday, the man phoned the woman.",
        ),
        (
            replace(READ, time=Phrase("gerade", "right now"), progressive=True),
            "Die Frau liest gerade ein Buch.",
            "The woman is reading a book right now.",
        ),
        (
            replace(READ, accusative=the("Buch", determiner="no")),
            "Die Frau liest kein Buch.",
            "The woman does not read a book.",
        ),
        (
            replace(READ, accusative=the("Buch", determiner="no", number="pl")),
            "Die Frau liest keine Bücher.",
            "The woman does not read any books.",
        ),
        (
            replace(READ, accusative=the("Artikel", determiner="indef")),
            "Die Frau liest einen Artikel.",
            "The woman reads an article.",
        ),
        (
            replace(READ, accusative=the("Buch", determiner="none", number="pl", count=Phrase("drei", "three"))),
            "Die Frau liest drei Bücher.",
            "The woman reads three books.",
        ),
        (replace(READ, subject=the("Frau", number="pl")), "Die Frauen lesen ein Buch.", "The women read a book."),
        (
            replace(CALL, negated=True, modal="können"),
            "Der Mann kann die Frau nicht anrufen.",
            "The man cannot phone the woman.",
        ),
        (
            Clause(
                the("Mann"),
                verb("reparieren"),
                tense="past",
                english_tense="past",
                passive=True,
                companion=PrepositionalPhrase("von", "dat", "by", TEACHER),
            ),
            "Der Mann wurde vom Lehrer repariert.",
            "The man was repaired by the teacher.",
        ),
        (
            Clause(the("Auto"), verb("reparieren"), modal="müssen", passive=True),
            "Das Auto muss repariert werden.",
            "The car has to be repaired.",
        ),
        (
            Clause(Pronoun("1sg"), verb("geben"), dative=the("Kind"), accusative=the("Ball")),
            "Ich gebe dem Kind den Ball.",
            "I give the ball to the child.",
        ),
        (
            Clause(
                Pronoun("2pl"),
                verb("erinnern"),
                prepositional=PrepositionalPhrase("an", "acc", "", the("Lehrer", number="pl")),
            ),
            "Ihr erinnert euch an die Lehrer.",
            "You remember the teachers.",
        ),
        (
            Clause(the("Bild"), verb("gefallen"), dative=the("Frau")),
            "Das Bild gefällt der Frau.",
            "The woman likes the picture.",
        ),
        (
            Clause(
                Pronoun("3sgm"),
                verb("fahren"),
                tense="perfect",
                english_tense="perfect",
                direction=PrepositionalPhrase("zu", "dat", "to", the("Bahnhof")),
            ),
            "Er ist zum Bahnhof gefahren.",
            "He has driven to the train station.",
        ),
        (
            Clause(
                PersonName("Anna", "Anna", "f"),
                verb("legen"),
                accusative=the("Brief"),
                direction=PrepositionalPhrase("auf", "acc", "on", the("Tisch")),
            ),
            "Anna legt den Brief auf den Tisch.",
            "Anna puts the letter on the table.",
        ),
        (
            Clause(the("Brief"), verb("liegen"), direction=PrepositionalPhrase("auf", "dat", "on", the("Tisch"))),
            "Der Brief liegt auf dem Tisch.",
            "The letter lies on the table.",
        ),
        (
            Clause(the("Lehrerin"), verb("sein"), predicate=NounPhrase(noun("Ärztin"), determiner="role")),
            "Die Lehrerin ist Ärztin.",
            "The teacher is a doctor.",
        ),
        (
            Clause(
                the("Haus", determiner="this"),
                verb("sein"),
                predicate=AdjectivePredicate(adjective("groß"), "more", the("Turm")),
            ),
            "Dieses Haus ist größer als der Turm.",
            "This house is bigger than the tower.",
        ),
        (
            Clause(Pronoun("1pl"), verb("sehen"), accusative=the("Auto", possessor=the("Lehrer"))),
            "Wir sehen das Auto des Lehrers.",
            "We see the teacher's car.",
        ),
        (
            Clause(Pronoun("1pl"), verb("sehen"), accusative=the("Dach", possessor=the("Haus"))),
            "Wir sehen das Dach des Hauses.",
            "We see the roof of the house.",
        ),
        (
            Clause(
                Pronoun("1pl"),
                verb("sehen"),
                accusative=the(
                    "Auto",
                    determiner="name",
                    possessor=PersonName("Anna", "Anna", "f"),
                    adjectives=((adjective("neu"), "positive"),),
                ),
            ),
            "Wir sehen Annas neues Auto.",
            "We see Anna's new car.",
        ),
        (
            Clause(
                PersonName("Herr Koch", "Mr. Koch", "m", titled=True),
                verb("kennen"),
                accusative=PersonName("Herr Wolf", "Mr. Wolf", "m", titled=True),
            ),
            "Herr Koch kennt Herrn Wolf.",
            "Mr. Koch knows Mr. Wolf.",
        ),
    ],
)
def test_gold_statements(clause: Clause, german: str, english: str) -> None:
    assert both(clause) == (german, english)


BECAUSE = Phrase("weil", "because")
THAT = Phrase("dass", "that")
SLEEP = Clause(Pronoun("3sgm"), verb("schlafen"))
SAY = Clause(Pronoun("3sgf"), verb("sagen"))


def gap_clause(role: str, german_noun: str, **parts: Any) -> NounPhrase:
    item = noun(german_noun)
    gap = Gap(item, "sg")
    filled = PrepositionalPhrase("mit", "dat", "with", gap) if role == "prepositional" else gap
    return NounPhrase(item, relative=Clause(**{**parts, role: filled}, front=role))


@pytest.mark.parametrize(
    ("sentence", "german", "english"),
    [
        (
            replace(SAY, complement=Subordinate(THAT, CALL)),
            "Sie sagt, dass der Mann die Frau anruft.",
            "She says that the man phones the woman.",
        ),
        (
            replace(SAY, complement=Subordinate(THAT, tensed(CALL, "perfect"))),
            "Sie sagt, dass der Mann die Frau angerufen hat.",
            "She says that the man has phoned the woman.",
        ),
        (
            replace(SLEEP, adverbial=Subordinate(BECAUSE, replace(CALL, modal="wollen"))),
            "Er schläft, weil der Mann die Frau anrufen will.",
            "He sleeps because the man wants to phone the woman.",
        ),
        (
            replace(SLEEP, adverbial=Subordinate(BECAUSE, CALL), front="adverbial"),
            "Weil der Mann die Frau anruft, schläft er.",
            "Because the man phones the woman, he sleeps.",
        ),
        (
            Clause(Pronoun("3sgm"), verb("versuchen"), complement=Purpose(replace(CALL, subject=Pronoun("3sgm")))),
            "Er versucht, die Frau anzurufen.",
            "He tries to phone the woman.",
        ),
        (
            replace(SLEEP, adverbial=Purpose(replace(READ, subject=Pronoun("3sgm")), um=True)),
            "Er schläft, um ein Buch zu lesen.",
            "He sleeps in order to read a book.",
        ),
        (
            replace(SLEEP, subject=gap_clause("subject", "Mann", verb=verb("lesen"), accusative=the("Buch"))),
            "Der Mann, der das Buch liest, schläft.",
            "The man who reads the book sleeps.",
        ),
        (
            replace(SLEEP, subject=gap_clause("accusative", "Mann", subject=the("Frau"), verb=verb("sehen"))),
            "Der Mann, den die Frau sieht, schläft.",
            "The man whom the woman sees sleeps.",
        ),
        (
            replace(SLEEP, subject=gap_clause("dative", "Mann", subject=the("Frau"), verb=verb("helfen"))),
            "Der Mann, dem die Frau hilft, schläft.",
            "The man whom the woman helps sleeps.",
        ),
        (
            replace(SLEEP, subject=gap_clause("prepositional", "Mann", subject=the("Frau"), verb=verb("sprechen"))),
            "Der Mann, mit dem die Frau spricht, schläft.",
            "The man with whom the woman speaks sleeps.",
        ),
        (
            replace(
                tensed(READ, "perfect"),
                accusative=gap_clause("accusative", "Buch", subject=the("Kind"), verb=verb("suchen")),
            ),
            "Die Frau hat das Buch gelesen, das das Kind sucht.",
            "The woman has read the book that the child looks for.",
        ),
        (Sentence((CALL,), "question"), "Ruft der Mann die Frau an?", "Does the man phone the woman?"),
        (Sentence((tensed(CALL, "past"),), "question"), "Rief der Mann die Frau an?", "Did the man phone the woman?"),
        (
            Sentence((tensed(CALL, "perfect"),), "question"),
            "Hat der Mann die Frau angerufen?",
            "Has the man phoned the woman?",
        ),
        (
            Sentence((replace(CALL, modal="müssen"),), "question"),
            "Muss der Mann die Frau anrufen?",
            "Does the man have to phone the woman?",
        ),
        (
            Sentence((replace(CALL, subject=Interrogative(thing=False)),), "wh"),
            "Wer ruft die Frau an?",
            "Who phones the woman?",
        ),
        (
            Sentence((replace(CALL, accusative=Interrogative(thing=False), front="accusative"),), "wh"),
            "Wen ruft der Mann an?",
            "Who does the man phone?",
        ),
        (
            Sentence((replace(READ, accusative=Interrogative(thing=True), front="accusative"),), "wh"),
            "Was liest die Frau?",
            "What does the woman read?",
        ),
        (
            Sentence((replace(CALL, subject=Pronoun("formal")),), "imperative"),
            "Rufen Sie bitte die Frau an!",
            "Please phone the woman.",
        ),
        (
            Sentence((Clause(Pronoun("formal"), verb("helfen"), dative=Pronoun("3sgf")),), "imperative"),
            "Helfen Sie ihr bitte!",
            "Please help her.",
        ),
        (
            replace(SLEEP, adverbial=Subordinate(BECAUSE, replace(CALL, accusative=Pronoun("1sg")))),
            "Er schläft, weil mich der Mann anruft.",
            "He sleeps because the man phones me.",
        ),
        (
            replace(SLEEP, adverbial=Subordinate(BECAUSE, replace(CALL, accusative=Pronoun("3sgf")))),
            "Er schläft, weil der Mann sie anruft.",
            "He sleeps because the man phones her.",
        ),
        (
            Sentence((CALL, SLEEP), coordinator=Phrase("und", "and")),
            "Der Mann ruft die Frau an, und er schläft.",
            "The man phones the woman, and he sleeps.",
        ),
    ],
)
def test_gold_complex_sentences(sentence: Sentence | Clause, german: str, english: str) -> None:
    assert both(sentence) == (german, english)


def sampled(seed: int) -> Sentence:
    return SentenceSampler(Chooser(seed), load()).sentence()


def letters(words: list[str]) -> list[str]:
    return sorted("".join(words).replace(",", "").lower())


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_finite_verb_is_second_in_main_clauses(seed: int) -> None:
    tree = sampled(seed)
    if tree.mood not in ("statement", "wh"):
        return
    for clause in tree.clauses:
        layout = german_syntax.fields(clause)
        assert len(layout.prefield) == 1
        words = german_syntax.clause_second(clause)
        before = len(layout.prefield[0].all_words)
        assert tuple(words[:before]) == layout.prefield[0].all_words
        assert words[before] == layout.verbs.finite


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_finite_verb_is_last_in_subordinate_clauses(seed: int) -> None:
    for clause in sampled(seed).clauses:
        plain = replace(clause, complement=None, adverbial=None, front="subject")
        if isinstance(plain.accusative, NounPhrase):
            plain = replace(plain, accusative=replace(plain.accusative, relative=None))
        if isinstance(plain.dative, NounPhrase):
            plain = replace(plain, dative=replace(plain.dative, relative=None))
        verbs = german_syntax.fields(plain).verbs
        final = german_syntax.clause_final(plain)
        assert final[-1] == verbs.prefix + verbs.finite
        # The same words as in the main clause, in another order: nothing is lost, nothing said twice.
        assert letters(final) == letters(german_syntax.clause_second(plain))


# Article forms and the (gender or plural, case) that they can stand for, written down here a second time on purpose.
DER = {
    "der": {("m", "nom"), ("f", "dat"), ("f", "gen"), ("pl", "gen")},
    "den": {("m", "acc"), ("pl", "dat")},
    "dem": {("m", "dat"), ("n", "dat")},
    "des": {("m", "gen"), ("n", "gen")},
    "die": {("f", "nom"), ("f", "acc"), ("pl", "nom"), ("pl", "acc")},
    "das": {("n", "nom"), ("n", "acc")},
    "im": {("m", "dat"), ("n", "dat")},
    "am": {("m", "dat"), ("n", "dat")},
    "zum": {("m", "dat"), ("n", "dat")},
    "vom": {("m", "dat"), ("n", "dat")},
    "zur": {("f", "dat")},
    "ins": {("n", "acc")},
    "ans": {("n", "acc")},
}
ENDINGS = {
    "er": {("f", "dat"), ("f", "gen"), ("pl", "gen")},
    "en": {("m", "acc"), ("pl", "dat")},
    "em": {("m", "dat"), ("n", "dat")},
    "es": {("m", "gen"), ("n", "gen")},
    "e": {("f", "nom"), ("f", "acc"), ("pl", "nom"), ("pl", "acc")},
}
STEMS = ("ein", "kein", "mein", "dein", "sein", "ihr", "Ihr", "unser", "eur")
PREPOSITION_CASES = {
    "mit": ("dat",),
    "von": ("dat",),
    "nach": ("dat",),
    "zu": ("dat",),
    "seit": ("dat",),
    "für": ("acc",),
    "ohne": ("acc",),
    "um": ("acc",),
    "über": ("acc",),
    "in": ("acc", "dat"),
    "an": ("acc", "dat"),
    "auf": ("acc", "dat"),
    "unter": ("acc", "dat"),
    "neben": ("acc", "dat"),
    "hinter": ("acc", "dat"),
    "vor": ("acc", "dat"),
}


def article_readings() -> dict[str, set[tuple[str, str]]]:
    readings = {form: set(found) for form, found in DER.items()}
    for stem in STEMS:
        for ending, found in ENDINGS.items():
            readings[stem + ending] = set(found)
        if stem not in ("eur", "ihr", "Ihr"):
            readings[stem] = {("m", "nom"), ("n", "nom"), ("n", "acc")}
    for stem in ("dies", "jed", "welch"):
        for ending, found in ENDINGS.items():
            readings[stem + ending] = set(found)
        readings[stem + "er"] |= {("m", "nom")}
        readings[stem + "es"] |= {("n", "nom"), ("n", "acc")}
    return readings


def noun_readings() -> dict[str, set[tuple[str, str]]]:
    readings: dict[str, set[tuple[str, str]]] = {}
    for item in load().nouns:
        for case in CASES:
            readings.setdefault(noun_form(item, "sg", case), set()).add((item.gender, case))
            if item.plural:
                readings.setdefault(noun_form(item, "pl", case), set()).add(("pl", case))
    return readings


@pytest.fixture(scope="module")
def sample() -> list[Pair]:
    return list(islice(pairs(20), 4000))


def test_articles_agree_with_their_nouns(sample: list[Pair]) -> None:
    articles, nouns = article_readings(), noun_readings()
    checked = 0
    for pair in sample:
        tokens = pair.german.split()
        tokens[0] = tokens[0][0].lower() + tokens[0][1:]
        for index, token in enumerate(tokens):
            after_comma = index > 0 and tokens[index - 1].endswith(",")
            head = next((word for word in tokens[index + 1 : index + 4] if word[0].isupper()), "").strip(".,!?")
            between = tokens[index + 1 : index + 4]
            between = between[: next((i for i, word in enumerate(between) if word[0].isupper()), 0)]
            # Adjectives end in -e, -en, -er, -es, -em; anything else between means that token is no article.
            attributive = all(word.endswith(("e", "en", "er", "es", "em")) and word not in articles for word in between)
            is_noun_phrase = token in articles and head in nouns and attributive
            if not is_noun_phrase or after_comma and token in DER or any(word.endswith(",") for word in between):
                continue
            shared = articles[token] & nouns[head]
            previous = tokens[index - 1] if index else ""
            # After a comma, um opens an infinitive clause and is no preposition.
            if previous in PREPOSITION_CASES and not (previous == "um" and tokens[index - 2].endswith(",")):
                shared = {reading for reading in shared if reading[1] in PREPOSITION_CASES[previous]}
            assert shared, (token, head, pair.german)
            checked += 1
    assert checked > 4000


def test_indefinite_articles_fit_the_next_sound(sample: list[Pair]) -> None:
    checked = 0
    for pair in sample:
        tokens = pair.english.split()
        for word, following in zip(tokens, tokens[1:], strict=False):
            if word.lower() not in ("a", "an"):
                continue
            vowel = following[0].lower() in "aeiou" and not following.startswith(("uni", "use", "Euro", "usu"))
            vowel = vowel or following.startswith(("hour", "honest", "unin", "unim"))
            assert word.lower() == ("an" if vowel else "a"), pair.english
            checked += 1
    assert checked > 500


def test_do_is_followed_by_the_base_form(sample: list[Pair]) -> None:
    modals = {"müssen": "have", "wollen": "want", "gern": "like"}
    checked = 0
    for pair in sample:
        tokens, clause = pair.english.rstrip("?").split(), pair.tree.clauses[0]
        if pair.tree.mood == "question" and tokens[0] in ("Does", "Did", "Do"):
            assert modals.get(clause.modal, clause.verb.english) in tokens, pair.english
            checked += 1
    assert checked > 100


def test_every_kind_of_sentence_occurs(sample: list[Pair]) -> None:
    text = "\n".join(pair.german for pair in sample)
    for phrase in (
        ", dass",
        ", weil",
        ", der",
        ", die",
        "Weil ",
        "Wenn ",
        "nachdem",
        " um ",
        " zu ",
        "?",
        "!",
        " kein",
        "nicht",
        " im ",
        " am ",
        "ins ",
        "zum ",
        "geboren",
        "gibt es",
        "Euro",
        "Jahre alt",
        "als ",
        "wurde",
    ):
        assert phrase in text, phrase
