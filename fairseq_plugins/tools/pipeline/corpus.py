"""A prepared directory: the data and the test sets in it, checked before a training or an evaluation starts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.lines import read_lines
from fairseq_plugins.sums import require_sums
from fairseq_plugins.tools.pipeline.prepare_settings import SET
from fairseq_plugins.tools.text.description import FILE as DESCRIPTION
from fairseq_plugins.tools.text.description import SUBWORDS, TOKENISERS, Description, described


@dataclass(frozen=True)
class TestSet:
    """A test set: its split in ``data-bin``, its name, and the files of its references.

    The tokenised ones are from before the subwords, so they have the unknown words.
    """

    __test__ = False  # no class of tests

    subset: str
    name: str
    published: Path = Path()
    tokenised: Path | None = None


def require_apart(results: Path, data: Path, name: str) -> None:
    """Raise a UserError if the argument ``name`` would write results into the directory of the data."""
    if results.resolve() in {data.resolve(), (data / "data-bin").resolve()}:
        raise UserError(f"{results}: the prepared directory; give {name} another name")


def binarised(data: Path) -> Path:
    """The directory that fairseq reads: ``data/data-bin``, or ``data`` itself; a UserError if there is none."""
    if not data.is_dir():
        raise UserError(f"{data}: no such directory")
    inner = data / "data-bin"
    return inner if inner.is_dir() else data


def check_data(data: Path, config: Any) -> tuple[Path, ...]:
    """Return dictionaries and training files; a UserError if a file of the task is missing, empty or changed."""
    task, dataset = config.task, config.dataset
    pair = languages_of(data, task) if "source_lang" in task else None
    sides = pair or ("",)
    if str(task._name) not in ("translation", "language_modeling") and not task.get("source_lang"):
        return tuple(sorted(data.glob("*.txt")))
    dictionaries = [data / (f"dict.{side}.txt" if side else "dict.txt") for side in sides]
    splits = [str(getattr(dataset, "train_subset", "train"))]
    if not dataset.disable_validation:
        splits += str(dataset.valid_subset).split(",")
    names = [f"{split}.{'-'.join(pair)}.{side}" if pair else split for split in splits for side in sides]
    for path in [*dictionaries, *(data / f"{name}.{end}" for name in names for end in ("bin", "idx"))]:
        if not path.is_file():
            made_by = "is it an output of fairseq-deep prepare or fairseq-preprocess?"
            raise UserError(f"{data}: contains no {path.name}; {made_by}")
        if path.stat().st_size == 0:
            raise UserError(f"{path}: empty")
        require_sums(data, path.name)
    training = [data / f"{name}.bin" for name in names[: len(sides)]]
    return (*dictionaries, *training, *(path.with_suffix(".idx") for path in training))


def languages_of(data: Path, task: Mapping[str, Any]) -> tuple[str, str]:
    """Source and target of a task, unset ones from the file names; a UserError if the data has other languages."""
    matches = [re.fullmatch(r"\w+\.(\w+)-(\w+)\.\1\.idx", path.name) for path in data.glob("*.idx")]
    pairs = sorted({match.groups() for match in matches if match})
    configured = (task.get("source_lang"), task.get("target_lang"))
    if None in configured and len(pairs) != 1:
        raise UserError(f"{data}: contains {len(pairs)} language pairs; set task.source_lang and task.target_lang")
    if None not in configured and pairs and configured not in pairs:
        shown = ", ".join("-".join(pair) for pair in pairs)
        raise UserError(f"{data}: contains {shown}, but the configuration translates {'-'.join(map(str, configured))}")
    source, target = pairs[0] if None in configured else configured
    return str(source), str(target)


def sets_to_evaluate(data: Path, wanted: Sequence[str] = ()) -> list[TestSet]:
    """The result of :func:`test_sets`; a UserError if the directory was prepared without a test set."""
    if sets := test_sets(data, wanted):
        return sets
    raise UserError(f"{data}: prepared without a test set; only valid can be evaluated, if it is named")


def test_sets(data: Path, wanted: Sequence[str]) -> list[TestSet]:
    """All test sets of a prepared directory, or the named ones (also ``valid``); a UserError for an unknown name."""
    table = data / "test_sets"
    sets = [TestSet("test", "test")]
    if table.exists():
        lines = read_lines(table) if table.stat().st_size else ()
        rows = [line.split("\t") for line in lines if line.strip()]
        if any(len(row) != 2 or not all(map(SET.fullmatch, row)) for row in rows):
            raise UserError(
                f"{table}: each line must be a split in data-bin, a tab, and a name of letters, digits and -_."
            )
        sets = [TestSet(subset, name) for subset, name in rows]
    by_name = {test_set.name: test_set for test_set in [*sets, TestSet("valid", "valid")]}
    if unknown := [name for name in wanted if name not in by_name]:
        raise UserError([f"{data}: {unknown_name('test set', name, by_name)}" for name in unknown])
    return [by_name[name] for name in wanted] if wanted else sets


def text_of(data: Path) -> Description:
    """Tokens, subwords and case of a directory's text; a UserError if its ``text.json`` is missing or damaged."""
    if text := described(data):
        return text
    if (above := data.resolve().parent / DESCRIPTION).is_file():
        raise UserError(f"{data}: no {DESCRIPTION} describes its text (did you mean '{above.parent}', which has one?)")
    raise UserError(
        f"{data}: no {DESCRIPTION} describes its text; write it: python -m fairseq_plugins.tools.text describe "
        f"--tokeniser {'|'.join(TOKENISERS)} --subwords {'|'.join(SUBWORDS)} {data / DESCRIPTION}"
    )
