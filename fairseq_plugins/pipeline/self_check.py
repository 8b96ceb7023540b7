"""Would a perfect model get a perfect score? Asked before anything is translated.

The references that were binarised go the way of a translation: out of the dictionary, out of the subwords, out of the
tokens. What comes out must be what was published. Else the scores of any translation would mean nothing.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os.path import commonprefix
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.scoring.sacre import bleu
from fairseq_plugins.scoring.text import read_sentences
from fairseq_plugins.text.bytes import tokens_of
from fairseq_plugins.text.description import CHANGES, Description
from fairseq_plugins.text.lower_case import lower_case

FILE = "self-check.json"
LEAST = 99.0
"""BLEU. Tokens of real text that are put together again have 99.5 and more: some quotation marks end up elsewhere."""
LEAST_TRUECASED = 95.0
"""BLEU of truecased text with its case. Without the first capitals of sentences, 20 words long, it is near 91."""
MOST_DIFFERING = 0.5
"""Share of the lines that may differ at all. BLEU splits off punctuation itself, so it does not see tokens that were
not put together. Of real text that was, up to a fifth of the lines differ, by quotation marks."""
MOST_UNKNOWN = 0.2
"""Share of the tokens that a dictionary may lack; a dictionary of another text lacks more."""
SHOWN = 3
_WIDTH = 80
_IN_WORDS = {"apostrophes": "' for ’", "punctuation": "normalised punctuation", "lower_case": "lower case"}

Tokens = list[str | None]
"""Of one sentence, as a model is given them; None for one that its dictionary lacks."""


@dataclass(frozen=True)
class References:
    """The references of one test set, prepared and published.

    Args:
        data: the prepared directory.
        binarised: what fairseq reads of it.
        subset: the split in ``binarised``.
        name: of the test set.
        published: the file of the published references.
        source: language; empty for text of one language.
        target: language; empty for text of one language.
        description: what the text is in; None where that is not known, and for speech, whose task knows it.
        configuration: for speech, the name of the file that describes its units.
    """

    data: Path
    binarised: Path
    subset: str
    name: str
    published: Path
    source: str = ""
    target: str = ""
    description: Description | None = None
    configuration: str = "config.yaml"


@dataclass(frozen=True)
class Result:
    """What came out.

    Args:
        lines: that were compared.
        differing: lines that are not the same but for white space.
        bleu: of the prepared references against the published ones; None where every token must be the same.
        allowed: what is known to differ and was allowed for, in words.
        problem: why the check has failed; empty where it has not.
        examples: the lines that differ most, prepared against published.
        accepted: why the user goes on all the same.
    """

    lines: int
    differing: int
    bleu: float | None = None
    allowed: tuple[str, ...] = ()
    problem: str = ""
    examples: tuple[str, ...] = ()
    accepted: str = ""

    def __str__(self) -> str:
        score = "" if self.bleu is None else f"{self.bleu:.2f} BLEU, "
        parts = [f"{self.differing:,} of {self.lines:,} lines differ", *self.allowed]
        return f"{score}{'; '.join(parts)}"

    def as_dict(self) -> dict[str, Any]:
        """The content of :data:`FILE`."""
        return asdict(self)


def checked(kind: str, references: References, accepted: str = "") -> Result:
    """Hold the prepared references of a ``translation``, ``language_model`` or ``speech`` against the published ones.

    Raises:
        UserError: they are others, and no reason to accept that is given; or a file is missing or damaged.
    """
    result = _CHECKS[kind](references)
    if not result.problem:
        return result
    if not accepted:
        raise UserError(
            [
                f"{references.data}: {references.name}: {result.problem}; no score would mean anything. "
                '--accept-references "reason" goes on all the same',
                *result.examples,
            ]
        )
    return replace(result, accepted=accepted)


def write_check(kind: str, references: References, target: Path, accepted: str = "") -> None:
    """Write what :func:`checked` found to ``target`` and say it in one line.

    Raises:
        UserError: as :func:`checked`.
    """
    result = checked(kind, references, accepted)
    write_whole(target, json.dumps(result.as_dict(), indent=1, ensure_ascii=False) + "\n")
    print(f"{references.name}: the prepared references against the published ones: {result}", flush=True)
    if result.accepted:
        print(f"warning: {references.name}: {result.problem}; accepted: {result.accepted}", file=sys.stderr)


# --- the prepared references -----------------------------------------------------------------------------------------


def _binarised(prefix: Path, dictionary: Path) -> Iterator[Tokens]:
    """The sentences of a binarised text without the ends of their lines."""
    from fairseq.data import Dictionary
    from fairseq.data.data_utils import load_indexed_dataset

    if not dictionary.is_file():
        raise UserError(f"{dictionary}: no such file")
    words = Dictionary.load(str(dictionary))
    sentences = load_indexed_dataset(str(prefix), words)
    if sentences is None:
        raise UserError(f"{prefix}.bin: no such binarised test set")
    for index in range(len(sentences)):
        numbers = sentences[index].tolist()
        if numbers and numbers[-1] == words.eos():
            numbers.pop()
        yield [None if number == words.unk() else words[number] for number in numbers]


def _completed(lines: Sequence[Tokens], text: Path) -> tuple[Sequence[Tokens], str]:
    """The sentences with what the dictionary lacks, from the text that was binarised; and what is wrong with that."""
    written = [line.split() for line in read_sentences(text)]
    if len(lines) != len(written):
        return lines, f"{text} has {len(written):,} lines, {len(lines):,} were binarised"
    for number, (tokens, found) in enumerate(zip(lines, written, strict=True), start=1):
        if not _same(tokens, found):
            both = _beside("binarised", _shown(tokens), "text", " ".join(found))
            return lines, f"{text}: line {number} is not what was binarised: {both}"
    return [list(found) for found in written], ""


def _same(tokens: Tokens, written: Sequence[str]) -> bool:
    """Whether tokens are those of a text but for unknown ones."""
    return len(tokens) == len(written) and all(
        token in (None, other) for token, other in zip(tokens, written, strict=True)
    )


def _shown(tokens: Tokens) -> str:
    return " ".join("<unk>" if token is None else token for token in tokens)


def _unknown(lines: Sequence[Tokens]) -> tuple[list[str], str]:
    """How many tokens the dictionary lacks, in words, and what is wrong where these are too many."""
    unknown, tokens = sum(line.count(None) for line in lines), sum(map(len, lines))
    said = f"{unknown:,} of {tokens:,} tokens unknown"
    problem = f"{said} to the dictionary: it is not the one of this text"
    return [said] if unknown else [], problem if unknown > MOST_UNKNOWN * tokens else ""


def check_translation(references: References) -> Result:
    """References of a translation: joined, detokenised and compared as a translation is."""
    from fairseq.data.data_utils import post_process

    from fairseq_plugins.text.tokenise import detokenised
    from fairseq_plugins.text.truecase import recaser

    how, language, binarised = references.description, references.target, references.binarised
    assert how is not None
    prefix = binarised / f"{references.subset}.{references.source}-{language}.{language}"
    lines = list(_binarised(prefix, binarised / f"dict.{language}.txt"))

    def put_together(whole: Sequence[str]) -> Sequence[str]:
        joined = [post_process(line, how.subwords) for line in whole]
        joined = list(map(recaser(), joined)) if how.truecased else joined
        return list(detokenised(language, joined)) if how.tokeniser == "moses" else joined

    return _compared(references, lines, put_together, how)


def check_speech(references: References) -> Result:
    """Transcriptions: cut into the units of the configuration and put together again, both as the task does it."""
    from fairseq.tasks.speech_to_text import SpeechToTextTask

    settings = Namespace(data=str(references.binarised), config_yaml=references.configuration, seed=1)
    task = SpeechToTextTask.setup_task(settings)
    task.load_dataset(references.subset)
    sentences, units = task.dataset(references.subset), task.target_dictionary
    cut = [sentences.get_tokenized_tgt_text(index).split() for index in range(len(sentences))]
    lines: list[Tokens] = [[unit if unit in units else None for unit in line] for line in cut]
    steps = [step for step in (task.build_bpe(settings), task.build_tokenizer(settings)) if step is not None]

    def put_together(whole: Sequence[str]) -> Sequence[str]:
        for step in steps:
            whole = [step.decode(line) for line in whole]
        return whole

    return _compared(references, lines, put_together, Description("none"))


def check_language_model(references: References) -> Result:
    """Text of a language model: each token is the published word or byte, for it is the tokens that are scored."""
    how = references.description
    if how is None or not references.published.is_file():
        return Result(0, 0, allowed=("not compared: no text.json says what the tokens are, or there is no raw text",))
    if how.tokeniser == "bytes":
        written = tokens_of(references.published.read_bytes()).decode().removesuffix("\n").split("\n")
    else:
        written = read_sentences(references.published)
    published = [line.split() for line in written]
    lines = list(_binarised(references.binarised / references.subset, references.binarised / "dict.txt"))
    allowed, problem = _unknown(lines)
    if len(lines) != len(published):
        problem = f"{len(lines):,} lines were binarised, {references.published} has {len(published):,}"
    pairs = list(zip(lines, published, strict=False))
    differing = [number for number, (tokens, words) in enumerate(pairs) if not _same(tokens, words)]
    examples = [_example(number, _shown(pairs[number][0]), " ".join(pairs[number][1])) for number in differing[:SHOWN]]
    if differing and not problem:
        problem = f"{len(differing):,} of {len(lines):,} binarised lines are not those of {references.published}"
    return Result(len(lines), len(differing), None, tuple(allowed), problem, tuple(examples))


_CHECKS: Mapping[str, Callable[[References], Result]] = {
    "translation": check_translation,
    "language_model": check_language_model,
    "speech": check_speech,
}


# --- prepared against published --------------------------------------------------------------------------------------


def _compared(
    references: References,
    lines: Sequence[Tokens],
    put_together: Callable[[Sequence[str]], Sequence[str]],
    how: Description,
) -> Result:
    """Compare sentences with the published ones, after ``put_together`` has made plain text of their tokens."""
    allowed, problem = _unknown(lines)
    text = references.data / "text" / f"{references.name}.{references.target}"
    if text.is_file():
        lines, other = _completed(lines, text)
        problem = problem or other
    whole = [index for index, tokens in enumerate(lines) if None not in tokens]
    if len(whole) < len(lines):
        allowed.append(f"{len(lines) - len(whole):,} lines with one of them left out")
    prepared = put_together([_shown(lines[index]) for index in whole])
    published = read_sentences(references.published)
    published = [published[index] for index in whole]
    as_prepared = how.as_prepared(references.name, references.target)
    wanted = list(map(as_prepared, published))
    if how.truecased:
        # A capital inside a sentence that the truecaser took away does not come back; those of its beginning must.
        with_case = _score(prepared, wanted)[0]
        prepared, wanted = (list(map(lower_case, lines)) for lines in (prepared, wanted))
        allowed.append(f"truecased text, compared without case ({with_case:.2f} BLEU with it)")
        if with_case < LEAST_TRUECASED:
            problem = problem or f"{with_case:.2f} BLEU with case: the capitals of truecased text did not come back"
    score, differing = _score(prepared, wanted)
    changes = [*how.changed.get(references.name, ()), *(["lower_case"] if how.lower_case else [])]
    allowed += [f"published text with {_IN_WORDS[change]}" for change in changes]
    examples = [_example(index, prepared[at], wanted[at]) for at, index in _worst(prepared, wanted, whole)]
    if not problem and (score < LEAST or differing > MOST_DIFFERING * len(prepared)):
        problem = (
            f"a perfect translation would have {score:.2f} BLEU ({LEAST:g} or more is wanted), and {differing:,} of "
            f"{len(prepared):,} lines would differ: the prepared references, "
            f"subwords ({how.subwords}) joined and tokens ({how.tokeniser}) put together, are not those of "
            f"{references.published}{_hint(prepared, wanted, references, changes)}"
        )
    return Result(len(prepared), differing, score, tuple(allowed), problem, tuple(examples))


def _score(prepared: Sequence[str], published: Sequence[str]) -> tuple[float, int]:
    """BLEU, and how many lines differ. Equal texts have 100, even where no line is long enough for BLEU."""
    differing = sum(one.split() != other.split() for one, other in zip(prepared, published, strict=True))
    if not differing and prepared:
        return 100.0, 0
    return (round(bleu(lower_case=False).value(prepared, [published], 0).value, 4) if prepared else 0.0), differing


def _hint(prepared: Sequence[str], published: Sequence[str], references: References, known: Sequence[str]) -> str:
    """A known difference that nobody has written down and that would explain all."""
    for change in ("lower_case", *CHANGES):
        changed = {"": [change]} if change in CHANGES else {}
        how = Description("none", lower_case=not changed, changed=changed)
        score, differing = _score(prepared, list(map(how.as_prepared("", references.target), published)))
        if change not in known and score >= LEAST and differing <= MOST_DIFFERING * len(prepared):
            return f" (they would be, with {_IN_WORDS[change]}: {score:.2f} BLEU; text.json should say so)"
    return ""


def _worst(prepared: Sequence[str], published: Sequence[str], numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Place and number of the lines with the smallest share of words in common."""

    def common(at: int) -> float:
        one, other = Counter(prepared[at].split()), Counter(published[at].split())
        return (one & other).total() / max(one.total(), other.total(), 1)

    differing = [at for at in range(len(prepared)) if prepared[at].split() != published[at].split()]
    return [(at, numbers[at]) for at in sorted(sorted(differing, key=common)[:SHOWN])]


def _example(index: int, prepared: str, published: str) -> str:
    return f"line {index + 1}: {_beside('prepared', prepared, 'published', published)}"


def _beside(what: str, one: str, of: str, other: str) -> str:
    """Two texts from where they begin to differ."""
    start = max(0, len(commonprefix([one, other])) - _WIDTH // 4)
    first, second = (text[start : start + _WIDTH].strip() for text in (one, other))
    return f"{what} '{first}', {of} '{second}'"
