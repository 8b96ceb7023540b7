"""Numbers, dates, times and prices of the embedded corpus against forms written by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.demo.corpus.numerals import (
    date,
    digital_time,
    english_cardinal,
    german_cardinal,
    grouped,
    price,
    spoken_time,
)


@pytest.mark.parametrize(
    ("number", "german", "english"),
    [
        (0, "null", "zero"),
        (1, "eins", "one"),
        (16, "sechzehn", "sixteen"),
        (21, "einundzwanzig", "twenty-one"),
        (30, "dreißig", "thirty"),
        (77, "siebenundsiebzig", "seventy-seven"),
        (101, "hunderteins", "one hundred and one"),
        (143, "hundertdreiundvierzig", "one hundred and forty-three"),
        (1001, "tausendeins", "one thousand and one"),
        (21_000, "einundzwanzigtausend", "twenty-one thousand"),
        (101_300, "hunderteintausenddreihundert", "one hundred and one thousand three hundred"),
    ],
)
def test_cardinals(number: int, german: str, english: str) -> None:
    assert (german_cardinal(number), english_cardinal(number)) == (german, english)


UNITS = {"ein": 1, "eins": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9}
TEENS = {"zehn": 10, "elf": 11, "zwölf": 12, "sechzehn": 16, "siebzehn": 17}
TENS = {"zwanzig": 20, "dreißig": 30, "sechzig": 60, "siebzig": 70}


def read_german(word: str) -> int:
    """Value of a German number word, by taking the word apart: the inverse of writing it, and none of its code."""
    for name, factor in (("tausend", 1000), ("hundert", 100)):
        if name in word:
            head, tail = word.split(name, 1)
            return (read_german(head) if head else 1) * factor + (read_german(tail) if tail else 0)
    if "und" in word:
        unit, ten = word.split("und")
        return UNITS[unit] + read_german(ten)
    if word in {**UNITS, **TEENS, **TENS}:
        return {**UNITS, **TEENS, **TENS}[word]
    return UNITS[word[:-4]] + 10 if word.endswith("zehn") else UNITS[word[:-3]] * 10


@given(st.integers(1, 999_999))
def test_german_cardinals_read_back(number: int) -> None:
    assert read_german(german_cardinal(number)) == number


def read_english(words: str) -> int:
    total = group = 0
    values = dict(
        zip(
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
            "sixteen seventeen eighteen nineteen".split(),
            range(1, 20),
            strict=True,
        )
    )
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    values |= dict(zip(tens, range(20, 100, 10), strict=True))
    for word in words.replace("-", " ").split():
        if word == "thousand":
            total, group = total + group * 1000, 0
        elif word == "hundred":
            group *= 100
        elif word != "and":
            group += values[word]
    return total + group


@given(st.integers(1, 999_999))
def test_english_cardinals_read_back(number: int) -> None:
    assert read_english(english_cardinal(number)) == number


@pytest.mark.parametrize("number", [-1, 1_000_000])
def test_cardinals_out_of_range(number: int) -> None:
    with pytest.raises(ValueError, match="not between"):
        german_cardinal(number)


def test_figures() -> None:
    assert date(3, 3, 1998) == ("am 3. März 1998", "on March 3, 1998")
    assert date(24, 12) == ("am 24. Dezember", "on December 24")
    assert digital_time(14, 35) == ("um 14.35 Uhr", "at 2:35 p.m.")
    assert digital_time(0, 5) == ("um 0.05 Uhr", "at 12:05 a.m.")
    assert digital_time(12, 0) == ("um 12 Uhr", "at 12:00 p.m.")
    assert spoken_time(3, 2) == ("um halb vier", "at half past three")
    assert spoken_time(12, 3) == ("um Viertel vor eins", "at a quarter to one")
    assert spoken_time(1, 0) == ("um ein Uhr", "at one o'clock")
    assert price(1250) == ("12,50 Euro", "12.50 euros")
    assert price(450_000) == ("4.500 Euro", "4,500 euros")
    assert price(5) == ("0,05 Euro", "0.05 euros")
    assert grouped(1_234_567) == ("1.234.567", "1,234,567")
