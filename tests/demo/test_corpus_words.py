"""Morphology of the embedded corpus against forms written by hand."""

import pytest

from fairseq_plugins.demo.corpus.english_words import article, degree_words, ing_form, lexeme_of, past_form
from fairseq_plugins.demo.corpus.german_verbs import participle, past, present, zu_infinitive
from fairseq_plugins.demo.corpus.german_words import (
    CASES,
    adjective_form,
    contracted,
    degree_stem,
    determiner,
    noun_form,
    umlaut,
)
from fairseq_plugins.demo.corpus.lexicon import Adjective, Noun, Verb, load

PERSONS = ("1sg", "2sg", "3sg", "1pl", "2pl", "3pl")


def noun(german: str) -> Noun:
    return next(item for item in load().nouns if item.german == german)


def verb(german: str) -> Verb:
    return next(item for item in load().verbs if item.german == german)


def adjective(german: str) -> Adjective:
    return next(item for item in load().adjectives if item.german == german)


def declined(kind: str, declension: str, word: str, number: str = "sg") -> list[str]:
    """Article, ``gut`` and noun in the four cases."""
    item = noun(word)
    return [
        " ".join(
            [
                determiner(kind, item.gender, number, case),
                adjective_form("gut", declension, item.gender, number, case),
                noun_form(item, number, case),
            ]
        )
        for case in CASES
    ]


@pytest.mark.parametrize(
    ("kind", "declension", "word", "number", "forms"),
    [
        ("der", "weak", "Mann", "sg", "der gute Mann, den guten Mann, dem guten Mann, des guten Mannes"),
        ("der", "weak", "Frau", "sg", "die gute Frau, die gute Frau, der guten Frau, der guten Frau"),
        ("der", "weak", "Kind", "sg", "das gute Kind, das gute Kind, dem guten Kind, des guten Kindes"),
        ("der", "weak", "Kind", "pl", "die guten Kinder, die guten Kinder, den guten Kindern, der guten Kinder"),
        ("der", "weak", "Auto", "pl", "die guten Autos, die guten Autos, den guten Autos, der guten Autos"),
        ("der", "weak", "Junge", "sg", "der gute Junge, den guten Jungen, dem guten Jungen, des guten Jungen"),
        (
            "der",
            "weak",
            "Student",
            "sg",
            "der gute Student, den guten Studenten, dem guten Studenten, des guten Studenten",
        ),
        ("ein", "mixed", "Mann", "sg", "ein guter Mann, einen guten Mann, einem guten Mann, eines guten Mannes"),
        ("ein", "mixed", "Frau", "sg", "eine gute Frau, eine gute Frau, einer guten Frau, einer guten Frau"),
        ("ein", "mixed", "Kind", "sg", "ein gutes Kind, ein gutes Kind, einem guten Kind, eines guten Kindes"),
        (
            "kein",
            "mixed",
            "Lehrer",
            "pl",
            "keine guten Lehrer, keine guten Lehrer, keinen guten Lehrern, keiner guten Lehrer",
        ),
        ("euer", "mixed", "Haus", "sg", "euer gutes Haus, euer gutes Haus, eurem guten Haus, eures guten Hauses"),
        ("dies", "weak", "Stadt", "sg", "diese gute Stadt, diese gute Stadt, dieser guten Stadt, dieser guten Stadt"),
        (
            "welch",
            "weak",
            "Buch",
            "sg",
            "welches gute Buch, welches gute Buch, welchem guten Buch, welches guten Buches",
        ),
    ],
)
def test_noun_phrases_decline(kind: str, declension: str, word: str, number: str, forms: str) -> None:
    assert ", ".join(declined(kind, declension, word, number)) == forms


@pytest.mark.parametrize(
    ("gender", "number", "forms"),
    [
        ("m", "sg", ["kalter", "kalten", "kaltem", "kalten"]),
        ("f", "sg", ["kalte", "kalte", "kalter", "kalter"]),
        ("n", "sg", ["kaltes", "kaltes", "kaltem", "kalten"]),
        ("m", "pl", ["kalte", "kalte", "kalten", "kalter"]),
    ],
)
def test_strong_adjectives(gender: str, number: str, forms: list[str]) -> None:
    assert [adjective_form("kalt", "strong", gender, number, case) for case in CASES] == forms


@pytest.mark.parametrize(
    ("stem", "form"),
    [("teuer", "teure"), ("dunkel", "dunkle"), ("hoch", "hohe"), ("müde", "müde"), ("sauber", "saubere")],
)
def test_adjective_stems_that_change(stem: str, form: str) -> None:
    assert adjective_form(stem, "weak", "m", "sg", "nom") == form


@pytest.mark.parametrize(
    ("word", "gender", "plural", "genitive"),
    [
        ("Apfel", "m", "Äpfel", "Apfels"),
        ("Haus", "n", "Häuser", "Hauses"),
        ("Baum", "m", "Bäume", "Baumes"),
        ("Museum", "n", "Museen", "Museums"),
        ("Gefängnis", "n", "Gefängnisse", "Gefängnisses"),
        ("Ärztin", "f", "Ärztinnen", "Ärztin"),
        ("Köchin", "f", "Köchinnen", "Köchin"),
        ("Kollegin", "f", "Kolleginnen", "Kollegin"),
        ("Apfelkuchen", "m", "Apfelkuchen", "Apfelkuchens"),
        ("Deutschlehrerin", "f", "Deutschlehrerinnen", "Deutschlehrerin"),
        ("Wasserturm", "m", "Wassertürme", "Wasserturmes"),
        ("Mädchen", "n", "Mädchen", "Mädchens"),
        ("Schere", "f", "Scheren", "Schere"),
        ("See", "m", "Seen", "Sees"),
    ],
)
def test_nouns(word: str, gender: str, plural: str, genitive: str) -> None:
    item = noun(word)
    assert (item.gender, item.plural, item.genitive) == (gender, plural, genitive)


def test_genders_follow_the_endings() -> None:
    for item in load().nouns:
        if item.german.endswith(("ung", "heit", "keit", "schaft", "ität", "erei", "tion")):
            assert item.gender == "f", item.german
        if item.german.endswith(("chen", "lein")) and not item.german.lower().endswith("kuchen"):
            assert item.gender == "n", item.german
        elif "person" in item.classes and item.sex:
            assert item.gender == item.sex, item.german


@pytest.mark.parametrize(
    ("word", "comparative", "superlative"),
    [
        ("alt", "älter", "ältest"),
        ("jung", "jünger", "jüngst"),
        ("groß", "größer", "größt"),
        ("gut", "besser", "best"),
        ("teuer", "teurer", "teuerst"),
        ("dunkel", "dunkler", "dunkelst"),
        ("hoch", "höher", "höchst"),
        ("heiß", "heißer", "heißest"),
        ("müde", "müder", "müdest"),
        ("spannend", "spannender", "spannendst"),
        ("berühmt", "berühmter", "berühmtest"),
        ("nett", "netter", "nettest"),
        ("neu", "neuer", "neuest"),
    ],
)
def test_german_comparison(word: str, comparative: str, superlative: str) -> None:
    item = adjective(word)
    assert (degree_stem(item, "comparative"), degree_stem(item, "superlative")) == (comparative, superlative)


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("lernen", "lerne lernst lernt lernen lernt lernen"),
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten"),
        ("öffnen", "öffne öffnest öffnet öffnen öffnet öffnen"),
        ("lesen", "lese liest liest lesen lest lesen"),
        ("essen", "esse isst isst essen esst essen"),
        ("geben", "gebe gibst gibt geben gebt geben"),
        ("mitnehmen", "nehme nimmst nimmt nehmen nehmt nehmen"),
        ("einladen", "lade lädst lädt laden ladet laden"),
        ("unterhalten", "unterhalte unterhältst unterhält unterhalten unterhaltet unterhalten"),
        ("sammeln", "sammle sammelst sammelt sammeln sammelt sammeln"),
        ("wandern", "wandere wanderst wandert wandern wandert wandern"),
        ("putzen", "putze putzt putzt putzen putzt putzen"),
        ("wissen", "weiß weißt weiß wissen wisst wissen"),
        ("sein", "bin bist ist sind seid sind"),
        ("haben", "habe hast hat haben habt haben"),
    ],
)
def test_present(infinitive: str, forms: str) -> None:
    assert [present(verb(infinitive), person) for person in PERSONS] == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("kaufen", "kaufte kauftest kaufte kauften kauftet kauften"),
        ("arbeiten", "arbeitete arbeitetest arbeitete arbeiteten arbeitetet arbeiteten"),
        ("anrufen", "rief riefst rief riefen rieft riefen"),
        ("finden", "fand fandest fand fanden fandet fanden"),
        ("lesen", "las lasest las lasen last lasen"),
        ("bringen", "brachte brachtest brachte brachten brachtet brachten"),
        ("sein", "war warst war waren wart waren"),
        ("haben", "hatte hattest hatte hatten hattet hatten"),
    ],
)
def test_past(infinitive: str, forms: str) -> None:
    assert [past(verb(infinitive), person) for person in PERSONS] == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "form"),
    [
        ("anrufen", "angerufen"),
        ("besuchen", "besucht"),
        ("verkaufen", "verkauft"),
        ("reparieren", "repariert"),
        ("anprobieren", "anprobiert"),
        ("vorbereiten", "vorbereitet"),
        ("aufmachen", "aufgemacht"),
        ("öffnen", "geöffnet"),
        ("zeichnen", "gezeichnet"),
        ("essen", "gegessen"),
        ("beten", "gebetet"),
        ("übersetzen", "übersetzt"),
        ("gehören", "gehört"),
        ("aufstehen", "aufgestanden"),
        ("kennenlernen", "kennengelernt"),
        ("unterschreiben", "unterschrieben"),
    ],
)
def test_participles(infinitive: str, form: str) -> None:
    assert participle(verb(infinitive)) == form


def test_auxiliaries_of_the_perfect() -> None:
    with_sein = "gehen fahren kommen fliegen laufen reisen bleiben aufstehen einschlafen folgen begegnen werden sein"
    with_haben = "kaufen lesen schlafen arbeiten sitzen stehen liegen anrufen helfen haben"
    assert {verb(word).auxiliary for word in with_sein.split()} == {"s"}
    assert {verb(word).auxiliary for word in with_haben.split()} == {"h"}


def test_infinitives_with_zu() -> None:
    assert " ".join(zu_infinitive(verb("anrufen"))) == "anzurufen"
    assert " ".join(zu_infinitive(verb("lesen"))) == "zu lesen"


def test_contractions() -> None:
    assert contracted("in", ["dem", "Haus"]) == ["im", "Haus"]
    assert contracted("zu", ["der", "Schule"]) == ["zur", "Schule"]
    assert contracted("an", ["das", "Meer"]) == ["ans", "Meer"]
    assert contracted("auf", ["dem", "Tisch"]) == ["auf", "dem", "Tisch"]
    assert contracted("in", ["der", "Stadt"]) == ["in", "der", "Stadt"]


def test_umlaut() -> None:
    plain, changed = ("Haus", "Apfel", "Sohn", "Buch", "Arzt"), ["Häus", "Äpfel", "Söhn", "Büch", "Ärzt"]
    assert [umlaut(word) for word in plain] == changed


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("apple", "an"),
        ("house", "a"),
        ("hour", "an"),
        ("honest", "an"),
        ("university", "a"),
        ("uniform", "a"),
        ("useful", "a"),
        ("European", "a"),
        ("unknown", "an"),
        ("uncle", "an"),
        ("unimportant", "an"),
        ("umbrella", "an"),
        ("old", "an"),
        ("Italian", "an"),
        ("one-way", "a"),
    ],
)
def test_indefinite_article(word: str, expected: str) -> None:
    assert article(word) == expected


@pytest.mark.parametrize(
    ("german", "past_expected", "ing"),
    [
        ("kochen", "cooked", "cooking"),
        ("backen", "baked", "baking"),
        ("planen", "planned", "planning"),
        ("lesen", "read", "reading"),
        ("liegen", "lay", "lying"),
        ("vergessen", "forgot", "forgetting"),
        ("sitzen", "sat", "sitting"),
        ("weinen", "cried", "crying"),
        ("öffnen", "opened", "opening"),
        ("reparieren", "repaired", "repairing"),
        ("beginnen", "started", "starting"),
        ("kritisieren", "criticized", "criticizing"),
    ],
)
def test_english_verbs(german: str, past_expected: str, ing: str) -> None:
    lexeme = lexeme_of(verb(german))
    assert (past_form(lexeme), ing_form(lexeme)) == (past_expected, ing)


@pytest.mark.parametrize(
    ("german", "comparative", "superlative"),
    [
        ("groß", "bigger", "biggest"),
        ("nett", "nicer", "nicest"),
        ("glücklich", "happier", "happiest"),
        ("gut", "better", "best"),
        ("schön", "more beautiful", "most beautiful"),
        ("sauber", "cleaner", "cleanest"),
        ("heiß", "hotter", "hottest"),
        ("ruhig", "quieter", "quietest"),
    ],
)
def test_english_comparison(german: str, comparative: str, superlative: str) -> None:
    item = adjective(german)
    assert " ".join(degree_words(item, "comparative")) == comparative
    assert " ".join(degree_words(item, "superlative")) == superlative


def test_tables_name_only_classes_that_exist() -> None:
    lexicon = load()
    classes = set(lexicon.by_class) | {"language"}
    for item in lexicon.verbs:
        frame = item.frame
        asked = {s.noun_class for s in frame.accusative + frame.dative + frame.prepositional}
        asked |= set(frame.place_classes) | set(item.subjects) - {"-"}
        assert asked <= classes, item.german
    assert set(lexicon.adjectives_of_class) <= classes


def test_no_noun_has_two_genders_in_one_class() -> None:
    genders: dict[tuple[str, str], set[str]] = {}
    for item in load().nouns:
        for name in item.classes:
            genders.setdefault((item.german, name), set()).add(item.gender)
    assert all(len(found) == 1 for found in genders.values())
