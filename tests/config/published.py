"""The YAML files of the published results, and any others as ``fairseq-hydra-train`` reads and completes them."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults, hydra_init
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
NAMES = sorted(
    f"{path.parent.name}/{path.stem}"
    for path in CONFIGS.glob("*/*.yaml")
    if path.parent.name not in ("multi30k_de_en", "tatoeba_de_en")
)


@cache
def content(name: str) -> dict[str, Any]:
    """The file as it stands; the parser in C is ten times as fast."""
    return yaml.load((CONFIGS / f"{name}.yaml").read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def schema() -> DictConfig:
    """Every setting that fairseq has for each choice of parts."""
    return OmegaConf.structured(FairseqConfig)


def completed(values: dict[str, Any]) -> DictConfig:
    """A configuration as ``fairseq-hydra-train`` completes it, every key checked; without Hydra's search for files."""
    config = OmegaConf.merge(schema(), {group: value for group, value in values.items() if group != "hydra"})
    add_defaults(config)
    config.task.data = "nowhere"
    plain = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    OmegaConf.set_struct(plain, True)
    return plain


@cache
def completed_file(name: str) -> DictConfig:
    """The file as ``fairseq-hydra-train`` completes it."""
    return completed(content(name))


def composed(path: Path, *overrides: str) -> DictConfig:
    """A file as Hydra reads it, with overrides, before it is completed."""
    hydra_init(path.stem)
    with warnings.catch_warnings(), initialize_config_dir(config_dir=str(path.parent), version_base="1.1"):
        warnings.simplefilter("ignore")
        return compose(path.stem, overrides=list(overrides))
