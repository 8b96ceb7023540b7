"""Every file of ``configs/`` against ``stated.yaml``, which was written from the papers and not from the recipes."""

from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from fairseq_plugins.tools.pipeline.published import rows_of
from tests.config.published import CONFIGS, NAMES, completed_file, content

ENTRIES = yaml.safe_load(Path(__file__).with_name("stated.yaml").read_text(encoding="utf-8"))
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
"""Prefixes of settings that change a score; the table has each setting of a file, stated or with its source."""
DERIVED = ("optimization.update_freq", "dataset.max_tokens")
"""Both are in ``tokens_per_update``; a file is free to split it."""


def entries_of(name: str) -> list[Mapping[str, Any]]:
    """The entries of a file, in their order; ``but`` excludes files, ``only`` asks for an earlier entry."""
    entries: list[Mapping[str, Any]] = []
    for entry in ENTRIES:
        named = any(fnmatch(name, pattern) for pattern in entry["files"])
        excluded = any(fnmatch(name, pattern) for pattern in entry.get("but", ()))
        based = entry.get("only") in {None, *(earlier["recipe"] for earlier in entries)}
        entries += [entry] if named and not excluded and based else []
    return entries


@cache
def facts(name: str) -> Mapping[str, tuple[Any, str, str]]:
    """The table's rows of a file by key: a value, its kind (one of KINDS), and where it is read."""
    return {
        key: (value, kind, place)
        for entry in entries_of(name)
        for kind in KINDS
        for key, (value, place) in (entry.get(kind) or {}).items()
    }


def value(name: str, key: str) -> Any:
    """The value that a training from the file takes for a key of the table."""
    if key == "data":
        return (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8").partition("# Data: ")[2].partition(";")[0]
    if key == "tokens_per_update":
        return content(name)["dataset"]["max_tokens"] * content(name)["optimization"]["update_freq"][0]
    setting = OmegaConf.select(completed_file(name), key)
    return OmegaConf.to_container(setting) if OmegaConf.is_config(setting) else setting


def difference(name: str, key: str, stated: Any) -> str:
    """The values of the file, or of its rows, that differ from the stated ones; empty if they agree.

    Rows may leave a column empty, and may have any of several values where the table lists them.
    """
    if not key.startswith("row."):
        return "" if value(name, key) == stated else repr(value(name, key))
    cells = {getattr(row, key.removeprefix("row.")) for row in rows_of(name)}
    found = {" ".join(map(str, cell)) if isinstance(cell, tuple) else cell for cell in cells} - {None}
    return "" if found <= set(stated if isinstance(stated, list) else [stated]) else str(found)


def test_the_table_is_of_files_that_there_are_and_every_fact_names_its_place() -> None:
    used = {entry["recipe"] for name in NAMES for entry in entries_of(name)}
    assert [entry["recipe"] for entry in ENTRIES if entry["recipe"] not in used] == []
    assert len({entry["recipe"] for entry in ENTRIES}) == len(ENTRIES)
    assert [(name, key) for name in NAMES for key, (*_, place) in facts(name).items() if not place] == []


def test_every_file_has_what_its_paper_states() -> None:
    wrong = [
        f"{name}: {key} is {found}, but {stated} is {kind} ({place})"
        for name in NAMES
        for key, (stated, kind, place) in facts(name).items()
        if (found := difference(name, key, stated))
    ]
    assert wrong == []


def test_every_setting_that_changes_a_score_has_its_source() -> None:
    without = []
    for name in NAMES:
        groups = {group: members for group, members in content(name).items() if isinstance(members, dict)}
        said = {f"{group}.{key}" for group, members in groups.items() for key in members}
        said = {key for key in said if key.startswith(ACCOUNTED) and key not in DERIVED}
        without += [f"{name}: {key}" for key in sorted(said - set(facts(name)))]
    assert without == []
