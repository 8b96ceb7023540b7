"""A YAML file of ``configs/`` with KEY=VALUE changes, read as ``fairseq-deep hydra-train`` will read it.

Every key and value is checked before a training starts, because Hydra's own errors fill a page.
"""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.process import importing
from fairseq_plugins.records import require

GROUPS_BY_NAME = ("task", "model", "criterion", "optimizer", "lr_scheduler", "bpe", "tokenizer", "scoring")
"""Groups whose keys depend on their ``_name``."""
CHOSEN = ("task", "model", "criterion", "optimizer", "lr_scheduler")
"""The groups that a training needs: fairseq's own defaults are for its flags."""
MISREAD = {":": "fairseq splits paths there", "${": "it begins a reference in a configuration"}
SCALAR_FOR_LIST = re.compile(r"(?:override \+{0,2}[\w.]+=([^\[;]+);.*)? is not a ListConfig.*full_key: ([\w.]+)")
CHANGE = re.compile(r"\+{0,2}(?P<key>[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)


def quoted(value: object) -> str:
    """``value``, with any characters, quoted for Hydra."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(str(value), Quote.single).with_quotes()


def taken_as_it_is(path: Path) -> Path:
    """Return the absolute form of ``path``; a UserError if fairseq or Hydra would read another path."""
    whole = path.resolve()
    for mark, why in MISREAD.items():
        if mark in str(whole):
            raise UserError(f"{whole}: '{mark}' is not supported in a path: {why}; use another directory")
    return whole


class Configuration(NamedTuple):
    """A YAML file, its complete configuration with the user's changes, and the changes as Hydra overrides."""

    file: Path
    config: Any
    overrides: tuple[str, ...]
    processes: int
    """The number of GPUs that it was written for; their batches make one update."""


def read_configuration(path: Path, changes: Sequence[str], data: Path, fixed: Mapping[str, str]) -> Configuration:
    """Compose the configuration of a training; a UserError if a key or value in the file or ``changes`` is illegal.

    ``fixed`` has keys that the user cannot set, each with advice; ``data`` is the value of ``task.data``.
    """
    from omegaconf import OmegaConf

    split: dict[str, str] = {}
    for change in changes:
        match = CHANGE.fullmatch(change)
        if not match:
            raise UserError(f"'{change}' is not of the form KEY=VALUE, for instance optimization.max_update=1000")
        split[match["key"]] = match["value"]
    if problems := [f"{key} cannot be set here: {fixed[key]}" for key in split if key in fixed]:
        raise UserError(problems)
    # With ``++`` Hydra takes any key: the YAML may lack one of a named group. A group is chosen by its ``_name`` alone.
    forced = [f"++{key}={value}" for key, value in split.items() if "." in key]
    config = _composed(path, [f"++task.data={quoted(data)}", *forced])
    legal, problems = sorted(set(_legal_keys(path, config))), []
    for key in split:
        if key not in legal:
            meant = f"{key}._name" if key in GROUPS_BY_NAME else key
            siblings = [name for name in legal if name.startswith(f"{key.rpartition('.')[0]}.")]
            problems.append(f"unknown key '{key}'{nearest(key, siblings) or nearest(meant, legal)}")
    problems += unknown_choices(config)
    if problems:
        raise UserError(problems)
    overrides = tuple(
        f"{'++' if key.split('.')[0] in GROUPS_BY_NAME else ''}{key}={value}" for key, value in split.items()
    )
    # fairseq's own default is the number of GPUs of the machine, so the batch would depend on the machine.
    key = "distributed_training.distributed_world_size"
    configured = OmegaConf.select(OmegaConf.load(path), key)
    processes = split.get(key, 1 if configured is None else configured)
    if not str(processes).isdigit() or int(processes) < 1:
        raise UserError(f"{key} must be a whole number of at least 1, not '{processes}'")
    return Configuration(path, _completed(path, config), overrides, int(processes))


def refuse_file(path: Path, stem: str, named: str) -> None:
    """Refuse a YAML file whose name Hydra takes for a group of fairseq's settings, or whose content has no end."""
    with importing():
        from fairseq.dataclass.configs import FairseqConfig
    import yaml  # type: ignore[import-untyped]

    with suppress(OSError, yaml.YAMLError):  # Hydra reports these errors better
        try:
            require(yaml.safe_load(path.read_bytes()), object)
        except (RecursionError, ValueError) as error:
            raise UserError(f"{path}: nested too deeply, or larger than it seems: {error}") from None
    if stem == "config" or stem in FairseqConfig.__dataclass_fields__:
        raise UserError(f"{named}: this is the name of a group of fairseq's settings, or of all; rename the file")


def _composed(path: Path, overrides: Sequence[str]) -> Any:
    refuse_file(path, path.stem, str(path))
    with importing():
        from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hydra_init(path.stem)
        try:
            with initialize_config_dir(config_dir=str(path.parent.resolve()), version_base="1.1"):
                return compose(path.stem, overrides=list(overrides))
        except (HydraException, OmegaConfBaseException, YAMLError) as error:
            raise UserError(f"{path}: {one_line(error)}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from error


def one_line(error: BaseException) -> str:
    """The message of an ``error`` of Hydra and of its cause, without the lines that repeat the type."""
    if unknown := unknown_key(error):
        return unknown
    messages = [str(error), *([str(error.__cause__)] if error.__cause__ else [])]
    lines = [line.strip() for message in messages for line in message.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("object_type=", "reference_type=", "See http"))]
    text = "; ".join(dict.fromkeys(kept))
    scalar = SCALAR_FOR_LIST.search(text)
    return f"{scalar[2]} is a list, even of one value: {scalar[2]}=[{scalar[1] or 'VALUE'}]" if scalar else text


def unknown_key(error: BaseException) -> str | None:
    """The message about an unknown setting, with the nearest one; None if ``error`` of Hydra is another."""
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if not isinstance(cause, (ConfigKeyError, ConfigAttributeError)) or not cause.full_key:
        return None
    parent, key = cause.object_type, str(cause.key)
    if is_dataclass(parent):
        legal, hint = [field.name for field in fields(parent)], ""
    else:
        legal = [str(name) for name in cause.parent_node] if OmegaConf.is_dict(cause.parent_node) else []
        hint = f"; +{cause.full_key}=VALUE adds one that the YAML file leaves out"
    return f"unknown setting '{cause.full_key}'{nearest(key, legal)}{hint}"


def _completed(path: Path, config: Any) -> Any:
    """The composed configuration with every default, as ``fairseq-hydra-train`` completes it."""
    from fairseq.dataclass.initialize import add_defaults
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise UserError([f"{path}: {key} is not set: add {key}=VALUE to the command" for key in missing])
    try:
        add_defaults(config)
        plain = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    except (OmegaConfBaseException, ValueError) as error:
        raise UserError(f"{path}: {one_line(error)}") from error
    return OmegaConf.create(plain, flags={"struct": True})


def _legal_keys(path: Path, config: Any) -> Iterator[str]:
    """Every key of fairseq's configuration, of the dataclasses of the groups that ``config`` names, and of the file."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY
    from omegaconf import OmegaConf

    written: Any = OmegaConf.load(path)
    groups = get_type_hints(FairseqConfig)
    tables = {group: REGISTRIES.get(group, {}).get("dataclass_registry", {}) for group in GROUPS_BY_NAME}
    tables |= {"task": TASK_DATACLASS_REGISTRY, "model": MODEL_DATACLASS_REGISTRY}
    for group, table in tables.items():
        yield f"{group}._name"
        name = _name_in(config, group) or ""
        groups[group] = table.get(ARCH_MODEL_NAME_REGISTRY.get(name, name) if group == "model" else name)
    for group, known in groups.items():
        # Some of fairseq's tasks have no dataclass.
        yield from (f"{group}.{key}" for key in written.get(group) or ())
        if is_dataclass(known):
            yield from (f"{group}.{field.name}" for field in fields(known))


def _name_in(config: Any, group: str) -> str | None:
    content = config.get(group)
    name = content if isinstance(content, str) else (content or {}).get("_name")
    return None if name is None else str(name)


def unknown_choices(config: Any) -> Iterator[str]:
    """A line for each group of a configuration whose choice is unknown, or missing where fairseq needs one."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    tables = {"task": TASK_REGISTRY, "model": ARCH_MODEL_REGISTRY}
    for group in GROUPS_BY_NAME:
        name = _name_in(config, group)
        known = tables[group] if group in tables else REGISTRIES.get(group, {}).get("registry", {})
        if name is None and group in CHOSEN and group in config.keys():
            default = REGISTRIES.get(group, {}).get("default")
            yield f"{group}._name is not set{f'; fairseq-train has {default!r} by default' if default else ''}"
        if name is not None and known and name not in known:
            # There are hundreds of architectures.
            every = "" if group == "model" else f"; legal values: {', '.join(sorted(known))}"
            yield f"unknown {group}._name '{name}'{nearest(name, sorted(known))}{every}"


def task_and_model(config: Any) -> tuple[Any, Any]:
    """Build the task, and the model without its memory; a UserError if settings contradict or a file is missing."""
    import torch
    from fairseq.models import build_model
    from fairseq.tasks import setup_task
    from omegaconf import OmegaConf

    try:
        task = setup_task(config.task)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}" if error.strerror else str(error)) from error
    with torch.device("meta"):
        return task, build_model(OmegaConf.create(OmegaConf.to_container(config.model)), task)
