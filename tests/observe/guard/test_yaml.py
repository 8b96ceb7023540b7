"""The guard's flags in a YAML of ``configs/``, with the overrides that ``fairseq-deep run`` hands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fairseq.trainer import Trainer
from fairseq_cli import hydra_train
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from fairseq_plugins.errors import UserError
from fairseq_plugins.observe.guard.guarding import guard_of
from fairseq_plugins.observe.guard.settings import Settings
from fairseq_plugins.pipeline.machine import Machine
from fairseq_plugins.pipeline.run import Request, make_plan
from tests import toy
from tests.observe.guard.conftest import Faults

CONFIG = Path(__file__).resolve().parents[3] / "configs" / "multi30k_de_en" / "b2t_3e3d.yaml"
TINY = (
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.encoder_embed_dim=16",
    "model.decoder_embed_dim=16",
    "model.encoder_ffn_embed_dim=32",
    "model.decoder_ffn_embed_dim=32",
    "model.encoder_attention_heads=2",
    "model.decoder_attention_heads=2",
    "dataset.max_tokens=120",
    "optimization.max_update=3",
    "criterion._name=label_smoothed_cross_entropy_with_diagnostics",
)


def configured(data: Path, run: Path, *overrides: str) -> DictConfig:
    """What ``fairseq-hydra-train`` is given by the plan of ``fairseq-deep run CONFIG DATA RUN KEY=VALUE ...``."""
    plan = make_plan(Request(CONFIG, data, run, (*TINY, *overrides)), Machine((), True))
    words = list(plan.command)
    changes = [word for word in words[words.index("--config-name") + 2 :] if not word.startswith("hydra")]
    with initialize_config_dir(config_dir=str(CONFIG.parent), version_base="1.1"):
        config = compose(CONFIG.stem, overrides=changes)
    hydra_train.add_defaults(config)
    made: Any = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    return made


def test_every_flag(toy_data: Path, tmp_path: Path, faults: Faults) -> None:
    flags = {"action": "skip", "band": "6.5", "patience": "3", "plateau": "700"}
    toy.run_training(
        configured(toy_data.parent, tmp_path / "a run", *(f"criterion.divergence_{k}={v}" for k, v in flags.items()))
    )
    trainer: Trainer = faults.trainers[0]
    assert guard_of(trainer).settings == Settings("skip", 6.5, 3, 700)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            "divergence_action=stpo",
            "--divergence-action stpo: unknown action 'stpo' (did you mean 'stop'?); legal values: skip, stop",
        ),
        ("divergence_band=0.5", "--divergence-band 0.5: it must be at least 1"),
        (
            "divergance_action=stop",
            "unknown key 'criterion.divergance_action' (did you mean 'criterion.divergence_action'?)",
        ),
    ],
)
def test_mistakes(toy_data: Path, tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        toy.run_training(configured(toy_data.parent, tmp_path / "run", f"criterion.{override}"))
    assert caught.value.problems == (problem,)
