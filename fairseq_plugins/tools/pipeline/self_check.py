"""Check before translating that a perfect model would get a perfect score.

The binarised references are processed like a translation: read from the dictionary, subwords joined, detokenised. The
result must be the published references, otherwise no score is meaningful.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.pipeline.decoding import LANGUAGE_MODEL, SPEECH, TRANSLATION, DecodePlan
from fairseq_plugins.tools.scoring.metrics import METRICS, value_of
from fairseq_plugins.tools.text.bytes import tokens_of
from fairseq_plugins.tools.text.description import Description
from fairseq_plugins.tools.text.words import lower_case

LEAST = 99.0
"""Minimum BLEU. Real text that is tokenised and detokenised has at least 99.5: some quotation marks move."""
LEAST_TRUECASED = 95.0
"""Minimum BLEU of truecased text with case. Sentences of 20 words without their first capital have about 91."""
MOST_DIFFERING = 0.5
"""Maximum share of lines that differ. BLEU splits off punctuation itself, so it does not notice text that was not
detokenised. In detokenised real text up to a fifth of the lines differ, by quotation marks."""
SHOWN = 3
"""Lines that differ, in a message."""

SeenTokens = Sequence[str | None]
"""Tokens of one sentence, as the model sees them; None for an unknown one."""


@dataclass(frozen=True)
class Result:
    """Result of the check: how many of the compared lines differ in more than white space."""

    lines: int
    differing: int
    bleu: float | None = None
    """BLEU of the prepared references against the published ones; None if every token must be the same."""
    allowed: tuple[str, ...] = ()
    """The known differences that were allowed for."""
    problem: str = ""
    """Why the check failed; empty if it passed."""
    examples: tuple[str, ...] = ()
    """The first lines that differ."""

    def __str__(self) -> str:
        score = "" if self.bleu is None else f"{self.bleu:.2f} BLEU, "
        parts = [f"{self.differing:,} of {self.lines:,} lines differ", *self.allowed]
        return f"{score}{'; '.join(parts)}"


def write_check(plan: DecodePlan, test_set: TestSet, target: Path, accepted: str = "") -> None:
    """Write the result of the check, and print it; a UserError if texts differ and no reason is ``accepted``."""
    result = CHECKS[plan.task](plan, test_set)
    if result.problem and not accepted:
        raise UserError(
            [
                f"{plan.data}: {test_set.name}: {result.problem}; scores would be meaningless. "
                'To continue anyway: --accept-references "reason"',
                *result.examples,
            ]
        )
    content = {**asdict(result), "accepted": accepted if result.problem else ""}
    write_whole(target, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"{test_set.name}: prepared references against published ones: {result}", flush=True)
    if result.problem:
        print(f"warning: {test_set.name}: {result.problem}; accepted: {accepted}", file=sys.stderr)


# --- one function for each task -------------------------------------------------------------------------------------


def _translation(plan: DecodePlan, test_set: TestSet) -> Result:
    """Join subwords, detokenise and compare, as for a translation."""
    from fairseq.data.data_utils import post_process

    from fairseq_plugins.tools.text.moses import decoder

    how, language = plan.text, plan.target
    assert how is not None
    prefix = plan.binarised / f"{test_set.subset}.{plan.source}-{language}.{language}"
    sentences = _binarised(prefix, plan.binarised / f"dict.{language}.txt")
    plain = decoder(how, language)
    return _compared(plan, test_set, sentences, lambda line: plain(post_process(line, how.subwords)), how)


def _speech(plan: DecodePlan, test_set: TestSet) -> Result:
    """Split transcriptions into the configuration's units and join them again, both by the task itself."""
    from fairseq_plugins.tools.pipeline.inference import task_of, unit_joiner

    task = task_of(plan)
    task.load_dataset(test_set.subset)
    dataset, units = task.dataset(test_set.subset), task.target_dictionary
    cut = [dataset.get_tokenized_tgt_text(index).split() for index in range(len(dataset))]
    sentences = [[unit if unit in units else None for unit in line] for line in cut]
    return _compared(plan, test_set, sentences, unit_joiner(task), Description("none"))


def _language_model(plan: DecodePlan, test_set: TestSet) -> Result:
    """Compare tokens: each must be the published word or byte, because tokens are scored."""
    if plan.text is None or not test_set.published.is_file():
        return Result(0, 0, allowed=("not compared: no text.json, or no raw text",))
    if plan.text.tokeniser == "bytes":
        written = tokens_of(test_set.published.read_bytes()).decode().removesuffix("\n").split("\n")
    else:
        written = list(read_lines(test_set.published))
    sentences = _binarised(plan.binarised / test_set.subset, plan.binarised / "dict.txt")
    problem = ""
    if len(sentences) != len(written):
        problem = f"{len(sentences):,} lines were binarised, but {test_set.published} has {len(written):,}"
    differing = [
        (number, _shown(tokens), line)
        for number, (tokens, line) in enumerate(zip(sentences, written, strict=False), start=1)
        if not _same(tokens, line.split())
    ]
    if differing and not problem:
        problem = f"{len(differing):,} of {len(sentences):,} binarised lines differ from {test_set.published}"
    return Result(len(sentences), len(differing), None, tuple(_unknown(sentences)), problem, _examples(differing))


CHECKS = {TRANSLATION: _translation, LANGUAGE_MODEL: _language_model, SPEECH: _speech}
"""Functions that compare the references of a test set, by task; a UserError if a file is missing or of another set."""

# --- prepared against published --------------------------------------------------------------------------------------


def _binarised(prefix: Path, dictionary: Path) -> list[SeenTokens]:
    """The sentences of a binarised text without ``</s>``."""
    from fairseq.data import Dictionary
    from fairseq.data.data_utils import load_indexed_dataset

    if not dictionary.is_file():
        raise UserError(f"{dictionary}: no such file")
    words = Dictionary.load(str(dictionary))
    sentences = load_indexed_dataset(str(prefix), words)
    if sentences is None:
        raise UserError(f"{prefix}.bin: no such binarised test set")
    numbers = (sentences[index].tolist() for index in range(len(sentences)))
    return [
        [None if number == words.unk() else words[number] for number in line if number != words.eos()]
        for line in numbers
    ]


def _unknown(sentences: Sequence[SeenTokens]) -> list[str]:
    """A line about the unknown tokens, if there are any."""
    unknown, tokens = sum(line.count(None) for line in sentences), sum(map(len, sentences))
    return [f"{unknown:,} of {tokens:,} tokens unknown"] if unknown else []


def _compared(
    plan: DecodePlan, test_set: TestSet, sentences: Sequence[SeenTokens], joined: Callable[[str], str], how: Description
) -> Result:
    """Compare the sentences without unknown tokens with the published ones; ``joined`` makes plain text of a line."""
    allowed, problem = _unknown(sentences), ""
    text = plan.data / "text" / f"{test_set.name}.{plan.target}"
    if text.is_file():
        # The text before binarising still has the unknown words.
        written = [line.split() for line in read_lines(text)]
        if len(written) == len(sentences) and all(map(_same, sentences, written)):
            sentences = written
    numbers = [number for number, tokens in enumerate(sentences, start=1) if None not in tokens]
    if len(numbers) < len(sentences):
        allowed.append(f"{len(sentences) - len(numbers):,} lines with unknown tokens skipped")
    published, as_prepared = _published(plan, test_set, len(sentences)), how.as_prepared(test_set.name, plan.target)
    prepared = [joined(_shown(sentences[number - 1])) for number in numbers]
    wanted = [as_prepared(published[number - 1]) for number in numbers]
    if how.truecased:
        # The recaser restores capitals only at the beginning of sentences.
        with_case = _bleu(prepared, wanted)
        prepared, wanted = (list(map(lower_case, lines)) for lines in (prepared, wanted))
        allowed.append(f"truecased text, compared without case ({with_case:.2f} BLEU with it)")
        if with_case < LEAST_TRUECASED:
            problem = f"{with_case:.2f} BLEU with case: the capitals of truecased text were not restored"
    lines = zip(numbers, prepared, wanted, strict=True)
    differing = [(number, text, other) for number, text, other in lines if text.split() != other.split()]
    # Nothing was compared if every line has an unknown token.
    score = _bleu(prepared, wanted) if prepared else 0.0
    if changes := [*how.changed.get(test_set.name, ()), *(["lower case"] if how.lower_case else [])]:
        allowed.append(f"published text changed as text.json says: {', '.join(changes)}")
    if not problem and (score < LEAST or len(differing) > MOST_DIFFERING * len(prepared)):
        problem = (
            f"a perfect translation would have {score:.2f} BLEU (at least {LEAST:g} is expected), and "
            f"{len(differing):,} of {len(prepared):,} lines would differ: the prepared references (subwords: "
            f"{how.subwords}, tokens: {how.tokeniser}) are not those of {test_set.published}"
        )
    return Result(len(prepared), len(differing), score, tuple(allowed), problem, _examples(differing))


def _published(plan: DecodePlan, test_set: TestSet, count: int) -> list[str]:
    """The published references, which have ``count`` lines like the binarised ones and those in tokens."""
    texts = [(file, list(read_lines(file))) for file in (test_set.published, test_set.tokenised) if file]
    for file, lines in texts:
        if len(lines) != count:
            raise UserError(
                f"{file}: {len(lines)} lines, but {test_set.subset} in {plan.binarised} has {count} sentences: "
                "not the references of this test set"
            )
    return texts[0][1]


def _bleu(prepared: Sequence[str], published: Sequence[str]) -> float:
    """BLEU; equal texts have 100, even if no line is long enough for BLEU."""
    if [line.split() for line in prepared] == [line.split() for line in published]:
        return 100.0
    return round(value_of(METRICS["sacrebleu"], prepared, [published]).value, 4)


def _same(tokens: SeenTokens, written: Sequence[str]) -> bool:
    """Whether all known tokens are the tokens of a text."""
    return len(tokens) == len(written) and all(
        token in (None, other) for token, other in zip(tokens, written, strict=True)
    )


def _shown(tokens: SeenTokens) -> str:
    return " ".join("<unk>" if token is None else token for token in tokens)


def _examples(differing: Sequence[tuple[int, str, str]]) -> tuple[str, ...]:
    """The first lines that differ."""
    return tuple(
        f"line {number}: prepared '{text.strip()}', published '{other.strip()}'"
        for number, text, other in differing[:SHOWN]
    )
