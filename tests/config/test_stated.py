"""Every file of ``configs/`` against ``stated.yaml``, which was written from the papers and not from the recipes."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from omegaconf import OmegaConf

from fairseq_plugins.pipeline.published import ROWS, rows_of

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "configs"
NAMES = sorted(
    f"{path.parent.name}/{path.stem}" for path in CONFIGS.glob("*/*.yaml") if path.parent.name != "multi30k_de_en"
)
ENTRIES = yaml.safe_load((HERE / "stated.yaml").read_text(encoding="utf-8"))
CORPORA = yaml.safe_load(files("fairseq_plugins.text").joinpath("known_corpora.yaml").read_text(encoding="utf-8"))
KINDS = ("stated", "conflicts", "chosen")

ACCOUNTED = (
    "criterion.",
    "optimizer.",
    "lr_scheduler.",
    "optimization.",
    "generation.",
    "dataset.max_tokens",
    "common.seed",
    "common.fp16",
    "common.threshold_loss_scale",
    "model.share",
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "model.embedding_dropout",
    "model.word_dropout",
    "model.activation_fn",
)
"""What changes a score: each such setting of a file is in the table, as stated or with the source it was taken from."""
DERIVED = ("optimization.update_freq", "dataset.max_tokens")
"""Both are in ``tokens_per_update``; a file is free to split it."""


class Fact(NamedTuple):
    """A value of the table, what it is (one of KINDS), and where it is read."""

    value: Any
    kind: str
    place: str


def entries_of(name: str) -> list[Mapping[str, Any]]:
    """The entries of a file, in their order; ``but`` excludes files, ``only`` asks for an earlier entry."""
    found: list[Mapping[str, Any]] = []
    for entry in ENTRIES:
        here = any(fnmatch(name, pattern) for pattern in entry["files"])
        not_here = any(fnmatch(name, pattern) for pattern in entry.get("but", ()))
        based = entry.get("only") in {None, *(each["recipe"] for each in found)}
        found += [entry] if here and not not_here and based else []
    return found


@cache
def facts(name: str) -> Mapping[str, Fact]:
    found: dict[str, Fact] = {}
    for entry in entries_of(name):
        for kind in KINDS:
            found.update({key: Fact(value, kind, place) for key, (value, place) in (entry.get(kind) or {}).items()})
    return found


@cache
def content(name: str) -> Any:
    return OmegaConf.load(CONFIGS / f"{name}.yaml")


@cache
def defaults(names: tuple[tuple[str, str], ...]) -> Any:
    """fairseq's defaults, which hold for what a file leaves unset; by what is chosen for each group."""
    config = OmegaConf.merge(OmegaConf.structured(FairseqConfig), {group: {"_name": name} for group, name in names})
    add_defaults(config)
    return config


def setting(name: str, key: str) -> Any:
    """What a training from the file takes for ``GROUP.KEY``."""
    found = OmegaConf.select(content(name), key)
    if found is not None:
        return found
    groups = content(name).items()
    chosen = tuple((group, str(members._name)) for group, members in groups if "_name" in members)
    return OmegaConf.select(defaults(chosen), key)


def agrees(key: str, found: list[Any], stated: Any) -> bool:
    """Rows may leave a column empty, and may have any of several values where the table lists them."""
    if key in ("train", "valid"):
        return any(abs(rows / stated[1] - 1) < 0.015 for rows in known_rows(stated[0], key))
    if key.startswith("row."):
        return set(found) - {None} <= set(stated if isinstance(stated, list) else [stated])
    return found == [stated]


def known_rows(corpus: str, split: str) -> list[float]:
    """How many pairs the known forms of a split have; the middle of a range."""
    known = next(each for each in CORPORA["corpora"] if each["name"] == corpus)
    counts = [form["rows"] for form in known["splits"][split] if form["rows"]]
    return [count if isinstance(count, int) else sum(count) / 2 for count in counts]


def values(name: str, key: str) -> list[Any]:
    """What the file, or each of its rows, has for a key of the table."""
    if key.startswith("row."):
        return sorted({_cell(getattr(row, key.removeprefix("row."))) for row in rows_of(name)}, key=str)
    if key in ("train", "valid"):
        return []
    if key == "data":
        text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
        return [text.partition("# Data: ")[2].partition(";")[0]]
    if key == "tokens_per_update":
        said = content(name)
        return [said.dataset.max_tokens * said.optimization.update_freq[0]]
    found = setting(name, key)
    return [OmegaConf.to_container(found) if OmegaConf.is_config(found) else found]


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def test_the_table_is_of_files_that_there_are() -> None:
    used = {entry["recipe"] for name in NAMES for entry in entries_of(name)}
    assert [entry["recipe"] for entry in ENTRIES if entry["recipe"] not in used] == []
    assert len({entry["recipe"] for entry in ENTRIES}) == len(ENTRIES)
    assert sorted({row.config for row in ROWS} - set(NAMES)) == []


def test_every_file_has_what_its_paper_states() -> None:
    wrong = [
        f"{name}: {key} is {found}, but {fact.value} is {fact.kind} ({fact.place})"
        for name in NAMES
        for key, fact in facts(name).items()
        if not agrees(key, found := values(name, key), fact.value)
    ]
    assert wrong == []


def test_every_setting_that_changes_a_score_has_its_source() -> None:
    without = []
    for name in NAMES:
        groups = {group: members for group, members in content(name).items() if OmegaConf.is_config(members)}
        said = {f"{group}.{key}" for group, members in groups.items() for key in members}
        said = {key for key in said if key.startswith(ACCOUNTED) and key not in DERIVED}
        without += [f"{name}: {key}" for key in sorted(said - set(facts(name)))]
    assert without == []


def test_every_fact_names_its_place() -> None:
    for entry in ENTRIES:
        for kind in KINDS:
            for key, fact in (entry.get(kind) or {}).items():
                assert len(fact) == 2, f"{entry['recipe']}: {key}"
                assert fact[1], f"{entry['recipe']}: {key}"
