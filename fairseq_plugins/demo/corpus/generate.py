"""Writes the demo corpus: German-English sentence pairs as six plain text files."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError, report

from . import english_syntax, german_syntax
from .choice import Chooser
from .grammar import SentenceSampler
from .lexicon import load
from .tree import Sentence

SPLITS = ("test", "valid", "train")
LANGUAGES = ("de", "en")
WORDS = (3, 30)
# The grammar makes far more, but duplicates grow with the corpus and sampling would become slow.
LARGEST = 2_000_000


@dataclass(frozen=True)
class Pair:
    """A German sentence, its English translation, and the tree that both say."""

    german: str
    english: str
    tree: Sentence


def spelled(words: Sequence[str], mood: str) -> str:
    """Words and commas as plain cased text: no comma twice or at the end, first letter large, closing mark."""
    text: list[str] = []
    for word in words:
        if word != ",":
            text.append(word)
        elif text and not text[-1].endswith(","):
            text[-1] += ","
    sentence = " ".join(text).rstrip(",")
    mark = {"question": "?", "wh": "?", "imperative": "!"}.get(mood, ".")
    if mark == "." and sentence.endswith("."):
        mark = ""
    return sentence[0].upper() + sentence[1:] + mark


def pairs(seed: int) -> Iterator[Pair]:
    """Endless sentence pairs, no German sentence twice; the same seed gives the same pairs."""
    sampler = SentenceSampler(Chooser(seed), load())
    seen: set[str] = set()
    low, high = WORDS
    while True:
        tree = sampler.sentence()
        german = spelled(german_syntax.sentence_words(tree), tree.mood)
        if german in seen:
            continue
        english = spelled(english_syntax.sentence_words(tree), tree.mood.replace("imperative", "statement"))
        if low <= len(german.split()) <= high and low <= len(english.split()) <= high:
            seen.add(german)
            yield Pair(german, english, tree)


def write_corpus(directory: Path, train: int, valid: int, test: int, seed: int = 1) -> None:
    """Write ``train``, ``valid`` and ``test`` pairs to ``{train,valid,test}.{de,en}`` in ``directory``.

    No German sentence occurs twice, so the three sets are disjoint. Test and validation sentences are drawn first:
    for one seed they are the same whatever the size of the training set. UTF-8, one sentence a line; each file
    appears under its name only when it is complete.

    Raises:
        UserError: a size is not between 1 and 2,000,000, or the directory cannot be written.
    """
    sizes = {"train": train, "valid": valid, "test": test}
    illegal = {name: size for name, size in sizes.items() if not 1 <= size <= LARGEST}
    wrong = [f"--{name} {size} is not between 1 and {LARGEST:,}" for name, size in illegal.items()]
    if wrong:
        raise UserError(wrong)
    source = pairs(seed)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            _write_split(directory, split, [next(source) for _ in range(sizes[split])])
    except OSError as error:
        raise UserError(f"cannot write the corpus to '{directory}': {error.strerror or error}") from error


def _write_split(directory: Path, split: str, members: list[Pair]) -> None:
    texts: dict[str, Callable[[Pair], str]] = {"de": lambda pair: pair.german, "en": lambda pair: pair.english}
    for language in LANGUAGES:
        lines = "".join(texts[language](pair) + "\n" for pair in members)
        _write_atomically(directory / f"{split}.{language}", lines)


def _write_atomically(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        # mkstemp makes files for the owner alone; a corpus is as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m fairseq_plugins.demo.corpus OUT``; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_plugins.demo.corpus", description=__doc__)
    parser.add_argument("out", type=Path, help="directory for train.de, train.en, valid.de, …")
    parser.add_argument("--train", type=int, default=24_000, help="training pairs (default: %(default)s)")
    parser.add_argument("--valid", type=int, default=800, help="validation pairs (default: %(default)s)")
    parser.add_argument("--test", type=int, default=800, help="test pairs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same corpus (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        write_corpus(options.out, options.train, options.valid, options.test, options.seed)
    except UserError as error:
        report(error)
        return 2
    return 0
