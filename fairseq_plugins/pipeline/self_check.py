"""Check before translating that a perfect model would get a perfect score.

The binarised references are processed like a translation: read from the dictionary, subwords joined, detokenised. The
result must be the published references, otherwise no score is meaningful.
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
from fairseq_plugins.scoring.metrics import METRICS, value_of
from fairseq_plugins.scoring.text import read_sentences
from fairseq_plugins.text.bytes import tokens_of
from fairseq_plugins.text.description import CHANGES, Description
from fairseq_plugins.text.lower_case import lower_case

FILE = "self-check.json"
LEAST = 99.0
"""Minimum BLEU. Real text that is tokenised and detokenised has at least 99.5: some quotation marks move."""
LEAST_TRUECASED = 95.0
"""Minimum BLEU of truecased text with case. Sentences of 20 words without their first capital have about 91."""
MOST_DIFFERING = 0.5
"""Maximum share of lines that differ. BLEU splits off punctuation itself, so it does not notice text that was not
detokenised. In detokenised real text up to a fifth of the lines differ, by quotation marks."""
MOST_UNKNOWN = 0.2
"""Maximum share of unknown tokens; the dictionary of another text lacks more."""
SHOWN = 3
_WIDTH = 80
_IN_WORDS = {"apostrophes": "' for ’", "punctuation": "normalised punctuation", "lower_case": "lower case"}

Tokens = list[str | None]
"""Tokens of one sentence, as the model sees them; None for an unknown one."""


@dataclass(frozen=True)
class References:
    """The references of one test set, prepared and published.

    Args:
        data: the prepared directory.
        binarised: the directory that fairseq reads.
        subset: the split in ``binarised``.
        name: of the test set.
        published: the file of the published references.
        source: language; empty for text of one language.
        target: language; empty for text of one language.
        description: tokens, subwords and case of the text; None if unknown, and for speech, whose task undoes them.
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
    """Result of the check.

    Args:
        lines: number of compared lines.
        differing: number of lines that differ in more than white space.
        bleu: of the prepared references against the published ones; None if every token must be the same.
        allowed: descriptions of the known differences that were allowed for.
        problem: why the check failed; empty if it passed.
        examples: the lines that differ most, prepared against published.
        accepted: the user's reason to continue anyway.
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
    """Compare the prepared references of a ``translation``, ``language_model`` or ``speech`` with the published ones.

    Raises:
        UserError: they differ and no reason to accept that is given; or a file is missing or damaged.
    """
    result = _CHECKS[kind](references)
    if not result.problem:
        return result
    if not accepted:
        raise UserError(
            [
                f"{references.data}: {references.name}: {result.problem}; scores would be meaningless. "
                'To continue anyway: --accept-references "reason"',
                *result.examples,
            ]
        )
    return replace(result, accepted=accepted)


def write_check(kind: str, references: References, target: Path, accepted: str = "") -> None:
    """Write the result of :func:`checked` to ``target`` and print it in one line.

    Raises:
        UserError: as :func:`checked`.
    """
    result = checked(kind, references, accepted)
    write_whole(target, json.dumps(result.as_dict(), indent=1, ensure_ascii=False) + "\n")
    print(f"{references.name}: prepared references against published ones: {result}", flush=True)
    if result.accepted:
        print(f"warning: {references.name}: {result.problem}; accepted: {result.accepted}", file=sys.stderr)


# --- the prepared references -----------------------------------------------------------------------------------------


def _binarised(prefix: Path, dictionary: Path) -> Iterator[Tokens]:
    """The sentences of a binarised text without ``</s>``."""
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
    """Restore unknown tokens from the text that was binarised; return the sentences and a problem with that text."""
    written = [line.split() for line in read_sentences(text)]
    if len(lines) != len(written):
        return lines, f"{text} has {len(written):,} lines, but {len(lines):,} were binarised"
    for number, (tokens, words) in enumerate(zip(lines, written, strict=True), start=1):
        if not _same(tokens, words):
            both = _beside("binarised", _shown(tokens), "text", " ".join(words))
            return lines, f"{text}: line {number} differs from the binarised one: {both}"
    return [list(words) for words in written], ""


def _same(tokens: Tokens, written: Sequence[str]) -> bool:
    """Whether all known tokens are those of a text."""
    return len(tokens) == len(written) and all(
        token in (None, other) for token, other in zip(tokens, written, strict=True)
    )


def _shown(tokens: Tokens) -> str:
    return " ".join("<unk>" if token is None else token for token in tokens)


def _unknown(lines: Sequence[Tokens]) -> tuple[list[str], str]:
    """A description of the unknown tokens, and a problem if there are too many."""
    unknown, tokens = sum(line.count(None) for line in lines), sum(map(len, lines))
    count = f"{unknown:,} of {tokens:,} tokens unknown"
    problem = f"{count}: it is the dictionary of another text"
    return [count] if unknown else [], problem if unknown > MOST_UNKNOWN * tokens else ""


def plain_text(how: Description, language: str, lines: Sequence[str]) -> list[str]:
    """Tokens whose subwords are joined, as plain text: with capitals where it was truecased, detokenised."""
    from fairseq_plugins.text.tokenise import detokenised
    from fairseq_plugins.text.truecase import recaser

    cased = list(map(recaser(), lines)) if how.truecased else list(lines)
    return list(detokenised(language, cased)) if how.tokeniser == "moses" else cased


def check_translation(references: References) -> Result:
    """References of a translation: join subwords, detokenise and compare, as for a translation."""
    from fairseq.data.data_utils import post_process

    how, language, binarised = references.description, references.target, references.binarised
    assert how is not None
    prefix = binarised / f"{references.subset}.{references.source}-{language}.{language}"
    lines = list(_binarised(prefix, binarised / f"dict.{language}.txt"))

    def put_together(whole: Sequence[str]) -> Sequence[str]:
        return plain_text(how, language, [post_process(line, how.subwords) for line in whole])

    return _compared(references, lines, put_together, how)


def check_speech(references: References) -> Result:
    """Transcriptions: split into the configuration's units and joined again, both by the task itself."""
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
    """Text of a language model: each token must be the published word or byte, because tokens are scored."""
    how = references.description
    if how is None or not references.published.is_file():
        return Result(0, 0, allowed=("not compared: no text.json, or no raw text",))
    if how.tokeniser == "bytes":
        written = tokens_of(references.published.read_bytes()).decode().removesuffix("\n").split("\n")
    else:
        written = read_sentences(references.published)
    published = [line.split() for line in written]
    lines = list(_binarised(references.binarised / references.subset, references.binarised / "dict.txt"))
    allowed, problem = _unknown(lines)
    if len(lines) != len(published):
        problem = f"{len(lines):,} lines were binarised, but {references.published} has {len(published):,}"
    pairs = list(zip(lines, published, strict=False))
    differing = [number for number, (tokens, words) in enumerate(pairs) if not _same(tokens, words)]
    examples = [_example(number, _shown(pairs[number][0]), " ".join(pairs[number][1])) for number in differing[:SHOWN]]
    if differing and not problem:
        problem = f"{len(differing):,} of {len(lines):,} binarised lines differ from {references.published}"
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
    """Compare sentences with the published ones; ``put_together`` turns tokens into plain text."""
    allowed, problem = _unknown(lines)
    text = references.data / "text" / f"{references.name}.{references.target}"
    if text.is_file():
        lines, other = _completed(lines, text)
        problem = problem or other
    whole = [index for index, tokens in enumerate(lines) if None not in tokens]
    if len(whole) < len(lines):
        allowed.append(f"{len(lines) - len(whole):,} lines with unknown tokens skipped")
    prepared = put_together([_shown(lines[index]) for index in whole])
    published = read_sentences(references.published)
    published = [published[index] for index in whole]
    as_prepared = how.as_prepared(references.name, references.target)
    wanted = list(map(as_prepared, published))
    if how.truecased:
        # The recaser restores capitals only at the beginning of sentences.
        with_case = _score(prepared, wanted)[0]
        prepared, wanted = (list(map(lower_case, lines)) for lines in (prepared, wanted))
        allowed.append(f"truecased text, compared without case ({with_case:.2f} BLEU with it)")
        if with_case < LEAST_TRUECASED:
            problem = problem or f"{with_case:.2f} BLEU with case: the capitals of truecased text were not restored"
    score, differing = _score(prepared, wanted)
    changes = [*how.changed.get(references.name, ()), *(["lower_case"] if how.lower_case else [])]
    allowed += [f"published text with {_IN_WORDS[change]}" for change in changes]
    examples = [_example(index, prepared[at], wanted[at]) for at, index in _worst(prepared, wanted, whole)]
    if not problem and (score < LEAST or differing > MOST_DIFFERING * len(prepared)):
        problem = (
            f"a perfect translation would have {score:.2f} BLEU (at least {LEAST:g} is expected), and {differing:,} of "
            f"{len(prepared):,} lines would differ: the prepared references (subwords: {how.subwords}, tokens: "
            f"{how.tokeniser}) are not those of {references.published}"
            f"{_hint(prepared, wanted, references, changes)}"
        )
    return Result(len(prepared), differing, score, tuple(allowed), problem, tuple(examples))


def _score(prepared: Sequence[str], published: Sequence[str]) -> tuple[float, int]:
    """BLEU, and the number of differing lines. Equal texts have 100, even if no line is long enough for BLEU."""
    differing = sum(one.split() != other.split() for one, other in zip(prepared, published, strict=True))
    if not differing and prepared:
        return 100.0, 0
    score = value_of(METRICS["sacrebleu"], prepared, [published]).value if prepared else 0.0
    return round(score, 4), differing


def _hint(prepared: Sequence[str], published: Sequence[str], references: References, known: Sequence[str]) -> str:
    """The known difference, missing in text.json, that would explain everything; empty if there is none."""
    for change in ("lower_case", *CHANGES):
        changed = {"": [change]} if change in CHANGES else {}
        how = Description("none", lower_case=not changed, changed=changed)
        score, differing = _score(prepared, list(map(how.as_prepared("", references.target), published)))
        if change not in known and score >= LEAST and differing <= MOST_DIFFERING * len(prepared):
            return f" ({score:.2f} BLEU with {_IN_WORDS[change]}, which text.json does not mention)"
    return ""


def _worst(prepared: Sequence[str], published: Sequence[str], numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Index and number of the lines with the smallest share of common words."""

    def common(at: int) -> float:
        one, other = Counter(prepared[at].split()), Counter(published[at].split())
        return (one & other).total() / max(one.total(), other.total(), 1)

    differing = [at for at in range(len(prepared)) if prepared[at].split() != published[at].split()]
    return [(at, numbers[at]) for at in sorted(sorted(differing, key=common)[:SHOWN])]


def _example(index: int, prepared: str, published: str) -> str:
    return f"line {index + 1}: {_beside('prepared', prepared, 'published', published)}"


def _beside(what: str, one: str, of: str, other: str) -> str:
    """Two texts from their first difference."""
    start = max(0, len(commonprefix([one, other])) - _WIDTH // 4)
    first, second = (text[start : start + _WIDTH].strip() for text in (one, other))
    return f"{what} '{first}', {of} '{second}'"
