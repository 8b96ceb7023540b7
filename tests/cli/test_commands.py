"""``fairseq-deep hydra-train`` on a toy corpus: it really trains, with paths as a user writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fairseq_plugins.cli.stock import USER_DIR
from tests import toy

SIZES = {"layers": 1, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 1}
CONFIG = {
    "common": {"cpu": True, "seed": 3, "log_format": "none"},
    "checkpoint": {"save_dir": "saved", "no_epoch_checkpoints": True},
    "dataset": {"num_workers": 0, "max_tokens": 400, "disable_validation": True},
    "optimization": {"max_update": 2, "lr": [0.001]},
    # Relative, as a user writes it.
    "task": {"_name": "translation", "data": "data-bin", "source_lang": "de", "target_lang": "en"},
    "criterion": {"_name": "cross_entropy"},
    "optimizer": {"_name": "adam"},
    "lr_scheduler": {"_name": "fixed"},
    "model": {
        "_name": "deep_transformer",
        **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in SIZES.items()},
    },
}
MISTAKES = {
    "+model.encoder_lyers=3": "unknown setting 'encoder_lyers' (did you mean 'encoder_layers'?)",
    "optimisation.max_update=3": "unknown setting 'optimisation' (did you mean 'optimization'?)",
    "+common.seed=-1": "Could not append to config. An item is already at 'common.seed'.; ",
    "common.seed=-1": "common.seed must be from 0 to 4294967295, as numpy requires, not -1",
}
"""An override of Hydra's, and how the line about it begins."""
FORKED = """
import os
import sys

from fairseq_cli import hydra_train
from fairseq_plugins.cli.main import main

for directory in sys.argv[1:]:
    child = os.fork()
    if not child:
        os.chdir(directory)
        os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
        overrides = open("overrides").read().split()
        sys.exit(main(["hydra-train", "--config-dir", ".", *overrides, "--config-name", "tiny"]))
    with open(os.path.join(directory, "code"), "w") as code:
        code.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


def run(*command: str, cwd: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(USER_DIR).parent)}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_hydra_train(tmp_path: Path) -> None:
    """In processes of their own, since Hydra keeps state that outlives a run; most fork from one that has imported."""
    data = toy.binarise(tmp_path)
    runs = {}
    for number, override in enumerate(["", *MISTAKES, "alone"]):
        runs[override] = directory = tmp_path / f"run{number}"
        directory.mkdir()
        (directory / "data-bin").symlink_to(data)
        (directory / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        (directory / "overrides").write_text(override, encoding="utf-8")
    alone = runs.pop("alone")
    run("-m", "fairseq_plugins.cli", "hydra-train", "--config-dir", ".", "--config-name", "tiny", cwd=alone)
    run("-c", FORKED, *map(str, runs.values()), cwd=tmp_path)
    errors = {override: (directory / "stderr").read_text(encoding="utf-8") for override, directory in runs.items()}
    codes = {override: (directory / "code").read_text() for override, directory in runs.items()}
    assert codes == {"": "0", **dict.fromkeys(MISTAKES, "2")}, errors
    for directory in (alone, runs[""]):
        saved = torch.load(directory / "saved" / "checkpoint_last.pt", weights_only=True)
        assert saved["cfg"]["model"]["_name"] == "deep_transformer"
        assert saved["cfg"]["common"]["user_dir"] == USER_DIR
    for override, line in MISTAKES.items():
        said = [text for text in errors[override].splitlines() if text.startswith(("error: ", "Traceback"))]
        assert len(said) == 1
        assert said[0].startswith(f"error: {line}")
