"""``fairseq-deep run`` whole."""

import json
from pathlib import Path

import pytest
import torch
from fairseq_cli import hydra_train
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fairseq_plugins.tools.pipeline.machine import Machine
from fairseq_plugins.tools.pipeline.run import Request, make_plan
from tests import processes, toy
from tests.faults.exact import differences
from tests.scripts.running import ROOT

ADMIN = ROOT / "configs" / "multi30k_de_en" / "admin_3e3d.yaml"
POST_LN = ADMIN.with_name("post_ln_3e3d.yaml")
SIZES = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}
SMALL = (
    *(f"model.{stack}_{name}={size}" for name, size in SIZES.items() for stack in ("encoder", "decoder")),
    "dataset.max_tokens=120",
    "common.log_interval=5",
)
TINY = (*SMALL, "common.seed=3")
LENGTH = ("optimization.max_update=200", "checkpoint.save_interval_updates=10", "lr_scheduler.warmup_updates=40")
LAST = "checkpoint_last.pt"
ONE_CPU = Machine((), True)

needs_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="counts processes of a CPU")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory with a blank and a quote in its name."""
    directory = tmp_path_factory.mktemp("corpus") / "Anna's corpus"
    toy.binarise(directory)
    return directory


def train_here(request: Request) -> Path:
    """Train by the overrides of the plan in this process; the last checkpoint's path."""
    command = list(make_plan(request, ONE_CPU).command)
    overrides = [word for word in command[command.index("--config-name") + 2 :] if not word.startswith("hydra")]
    with initialize_config_dir(config_dir=str(request.config.parent), version_base="1.1"):
        config = compose(request.config.stem, overrides=overrides)
    hydra_train.add_defaults(config)
    toy.run_training(OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True)))
    return request.run / "checkpoints" / LAST


@pytest.mark.slow
def test_a_run_has_the_weights_of_its_plan_and_the_files_that_commands_read(prepared: Path, tmp_path: Path) -> None:
    """Kills, torn files and interrupts are in ``tests/faults``."""
    run = tmp_path / "run 1"
    words = map(str, (ADMIN, prepared, run, *TINY, *LENGTH))
    ended = processes.python("-m", "fairseq_plugins.tools.cli", "run", *words, "--quiet")
    assert (ended.code, ended.errors) == (0, "")
    assert ended.output.splitlines()[-1] == f"{run}: finished (200 updates, 20 epochs)"
    expected = toy.weights_of(train_here(Request(ADMIN, prepared, tmp_path / "here", (*TINY, *LENGTH))))
    assert differences(toy.weights_of(run / "checkpoints" / LAST), expected) == []
    assert {path.name for path in run.iterdir()} - {".lock"} == {"checkpoints", "finished", "run.json", "train.log"}
    assert json.loads((run / "finished").read_text()) == {"num_updates": 200, "epochs": 20}
    record = json.loads((run / "run.json").read_text())
    assert record["config"] == "multi30k_de_en/admin_3e3d"
    assert record["overrides"] == [*TINY, *LENGTH]
    assert (record["method"], record["seed"], record["precision"]) == ("admin_transformer", 3, "fp32")
    assert (record["processes"], record["update_freq"], record["tokens_per_update"]) == (1, [1], 120)
    sizes = [path.stat().st_size for path in (run / "checkpoints").glob("*.pt")]
    # 12 bytes a parameter; at this size the names, settings and meters next to them are larger still.
    assert all(12 * record["parameters"] < size < 12 * record["parameters"] + 120_000 for size in sizes)
