"""Numbers in words and in digits, prices, dates and clock times, in German and in English."""

from __future__ import annotations

GERMAN_UNITS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
).split()
GERMAN_TENS = ". zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
ENGLISH_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
ENGLISH_TENS = ". ten twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
ENGLISH_MONTHS = "January February March April May June July August September October November December".split()
GERMAN_DAYS = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()
ENGLISH_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LARGEST = 999_999


def german_cardinal(number: int) -> str:
    """``number`` from 0 to 999,999 in one word, units before tens: 143 = hundertdreiundvierzig."""
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{number} is not between 0 and {LARGEST}")
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _german_below_thousand(rest)
    head = ("" if thousands == 1 else _german_below_thousand(thousands, before="tausend")) + "tausend"
    return head + (_german_below_thousand(rest) if rest else "")


def _german_below_thousand(number: int, before: str = "") -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _german_below_hundred(rest, before)
    head = ("" if hundreds == 1 else GERMAN_UNITS[hundreds]) + "hundert"
    return head + (_german_below_hundred(rest, before) if rest else "")


def _german_below_hundred(number: int, before: str) -> str:
    if number < 20:
        return "ein" if number == 1 and before else GERMAN_UNITS[number]
    tens, unit = divmod(number, 10)
    if not unit:
        return GERMAN_TENS[tens]
    return ("ein" if unit == 1 else GERMAN_UNITS[unit]) + "und" + GERMAN_TENS[tens]


def english_cardinal(number: int) -> str:
    """``number`` from 0 to 999,999 in words: 143 = one hundred and forty-three."""
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{number} is not between 0 and {LARGEST}")
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _english_below_thousand(rest)
    head = _english_below_thousand(thousands) + " thousand"
    if not rest:
        return head
    return head + (" " if rest >= 100 else " and ") + _english_below_thousand(rest)


def _english_below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _english_below_hundred(rest)
    head = ENGLISH_UNITS[hundreds] + " hundred"
    return head + (" and " + _english_below_hundred(rest) if rest else "")


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return ENGLISH_UNITS[number]
    tens, unit = divmod(number, 10)
    return ENGLISH_TENS[tens] + (f"-{ENGLISH_UNITS[unit]}" if unit else "")


def grouped(number: int) -> tuple[str, str]:
    """Digits with the separator of thousands: ``12.500`` and ``12,500``."""
    english = f"{number:,}"
    return english.replace(",", "."), english


def price(cents: int) -> tuple[str, str]:
    """A sum in euros: ``12,50 Euro`` and ``12.50 euros``; whole sums without decimals."""
    euros, rest = divmod(cents, 100)
    german, english = grouped(euros)
    if not rest:
        return f"{german} Euro", f"{english} euro" + ("" if euros == 1 else "s")
    return f"{german},{rest:02d} Euro", f"{english}.{rest:02d} euros"


def date(day: int, month: int, year: int = 0) -> tuple[str, str]:
    """``am 3. März 1998`` and ``on March 3, 1998``; the year 0 is left out."""
    german = f"am {day}. {GERMAN_MONTHS[month - 1]}"
    english = f"on {ENGLISH_MONTHS[month - 1]} {day}"
    return (f"{german} {year}", f"{english}, {year}") if year else (german, english)


def digital_time(hour: int, minute: int) -> tuple[str, str]:
    """``um 14.35 Uhr`` and ``at 2:35 p.m.``; ``hour`` counts from 0 to 23."""
    half = "a.m." if hour < 12 else "p.m."
    german = f"um {hour}.{minute:02d} Uhr" if minute else f"um {hour} Uhr"
    return german, f"at {(hour - 1) % 12 + 1}:{minute:02d} {half}"


def spoken_time(hour: int, quarter: int) -> tuple[str, str]:
    """``um halb vier`` and ``at half past three``; ``hour`` counts from 1 to 12, ``quarter`` from 0 to 3."""
    following = hour % 12 + 1
    german_hour, german_following = german_cardinal(hour), german_cardinal(following)
    english_hour, english_following = english_cardinal(hour), english_cardinal(following)
    return (
        (f"um {'ein' if hour == 1 else german_hour} Uhr", f"at {english_hour} o'clock"),
        (f"um Viertel nach {german_hour}", f"at a quarter past {english_hour}"),
        (f"um halb {german_following}", f"at half past {english_hour}"),
        (f"um Viertel vor {german_following}", f"at a quarter to {english_following}"),
    )[quarter]
