"""Made-up system outputs: a reference with words dropped and swapped by a rule, so that each is known without a run."""

from collections.abc import Sequence

WORDS = ("the cat sat on the mat", "a dog barks at night , loudly", "we saw two red birds in the old tree", "it rained")
"""A test set that can be counted by hand."""


def dropped(sentences: Sequence[str], every: int, start: int = 0) -> list[str]:
    """Every sentence without one of ``every`` words; ``start`` and the sentence's number say which."""
    return [
        " ".join(word for place, word in enumerate(sentence.split()) if (place + number + start) % every != every - 1)
        for number, sentence in enumerate(sentences)
    ]


def swapped(sentences: Sequence[str], every: int) -> list[str]:
    """In every ``every``-th sentence the first two words have changed places."""
    result = []
    for number, sentence in enumerate(sentences):
        words = sentence.split()
        if number % every == 0:
            words[:2] = reversed(words[:2])
        result.append(" ".join(words))
    return result
