"""``fairseq-deep`` on a toy corpus: fairseq's commands really run, with the architectures of this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fairseq_plugins.cli.main import main
from fairseq_plugins.cli.stock import USER_DIR
from tests import toy

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
        "encoder_layers": 1,
        "encoder_embed_dim": 8,
        "encoder_ffn_embed_dim": 8,
        "encoder_attention_heads": 1,
        "decoder_layers": 1,
        "decoder_embed_dim": 8,
        "decoder_ffn_embed_dim": 8,
        "decoder_attention_heads": 1,
    },
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.binarise(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of ``fairseq-deep train`` with an architecture that fairseq alone does not know."""
    saved = tmp_path_factory.mktemp("saved")
    flags = [*toy.TINY_MODEL, *toy.RECIPE, "--max-update", "2", "--save-dir", str(saved)]
    assert main(["train", str(data), "--arch", "post_ln_transformer", *flags]) == 0
    return saved / "checkpoint_last.pt"


def test_train_knows_the_architectures(checkpoint: Path) -> None:
    saved = torch.load(checkpoint, weights_only=True)
    assert saved["cfg"]["model"]["_name"] == "post_ln_transformer"
    assert saved["optimizer_history"][-1]["num_updates"] == 2


def test_generate_translates_every_sentence(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    flags = ["--cpu", "--beam", "1", "--max-len-b", "5", "--max-tokens", "400", "--results-path", str(tmp_path)]
    assert main(["generate", str(data), "--path", str(checkpoint), *flags]) == 0
    lines = (tmp_path / "generate-test.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(int(line[2:].split("\t")[0]) for line in lines if line.startswith("H-")) == list(range(60))


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


@pytest.mark.slow
class TestHydraTrain:
    """In processes of their own, since Hydra keeps state that outlives a run; all fork from one that has imported."""

    def prepare(self, data: Path, directory: Path, *overrides: str) -> Path:
        (directory / "data-bin").symlink_to(data)
        (directory / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        (directory / "overrides").write_text(" ".join(overrides), encoding="utf-8")
        return directory

    def run(self, *command: str, cwd: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(USER_DIR).parent)}
        done = subprocess.run(
            [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    @pytest.fixture(scope="class")
    def ended(self, data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
        """The directory in which a training with an override, or with none, has ended."""
        overrides = ["", *MISTAKES]
        runs = {one: self.prepare(data, tmp_path_factory.mktemp("run"), one) for one in overrides}
        self.run("-c", FORKED, *map(str, runs.values()), cwd=tmp_path_factory.getbasetemp())
        return runs

    def check_saved(self, directory: Path) -> None:
        saved = torch.load(directory / "saved" / "checkpoint_last.pt", weights_only=True)
        assert saved["cfg"]["model"]["_name"] == "deep_transformer"
        assert saved["cfg"]["common"]["user_dir"] == USER_DIR

    def test_relative_paths_mean_the_working_directory(self, ended: dict[str, Path]) -> None:
        assert (ended[""] / "code").read_text() == "0", (ended[""] / "stderr").read_text()
        self.check_saved(ended[""])

    def test_a_process_that_is_started_for_it_trains_the_same(self, data: Path, tmp_path: Path) -> None:
        self.prepare(data, tmp_path)
        command = ["-m", "fairseq_plugins.cli", "hydra-train", "--config-dir", ".", "--config-name", "tiny"]
        self.run(*command, cwd=tmp_path)
        self.check_saved(tmp_path)

    @pytest.mark.parametrize("override", MISTAKES)
    def test_a_mistake_is_one_line(self, override: str, ended: dict[str, Path]) -> None:
        assert (ended[override] / "code").read_text() == "2"
        said = (ended[override] / "stderr").read_text(encoding="utf-8")
        errors = [text for text in said.splitlines() if text.startswith("error: ")]
        assert len(errors) == 1
        assert errors[0].startswith(f"error: {MISTAKES[override]}")
        assert "Traceback" not in said
