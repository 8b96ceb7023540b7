"""The commands on the pretended GPU: what they write there is what they write on a CPU."""

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fairseq.logging import progress_bar

from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.tools.translator.engines import FAIRSEQ
from fairseq_plugins.tools.translator.translate import Translator
from tests import toy
from tests.faults.exact import differences
from tests.gpu.pretend import REAL, on_gpu
from tests.pipeline.making import write_run
from tests.translator.conftest import Made


def command(*words: object, given: str = "") -> None:
    """``fairseq-deep`` with arguments, and with a text on standard input."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    code = cli.main([str(word) for word in words])
    assert not code, words


@pytest.mark.slow
def test_evaluate(made: Made, tmp_path: Path) -> None:
    """A run that was trained and averaged is decoded on the GPU, and scored."""
    scores = []
    for where in ("cpu", "cuda"):
        run = write_run(tmp_path / where, seed=3, data=made.data)
        (run / "checkpoints").mkdir()
        shutil.copyfile(made.checkpoint, run / "checkpoints" / "checkpoint_last.pt")
        words = ("evaluate", run, made.data, "--device", where, "--beam", "2", "--average", "none")
        if where == "cuda":
            on_gpu(command, *words)
        else:
            command(*words)
        scores.append((run / "evaluation" / "test" / "hypotheses.txt").read_text(encoding="utf-8"))
    assert scores[0]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_a_package_and_what_is_made_of_it(made: Made, package: Path, tmp_path: Path) -> None:
    lines = (made.data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()

    def translated(device: str) -> tuple[list[str], list[float], str]:
        translator = Translator(package, beam=3, engine=FAIRSEQ, device=device)
        answers = translator.translate(lines)
        assert device == "cpu" or translator._engine.decoders[False].generator.graphs[0].rooms  # steps were CUDA graphs
        words = [line.split() for line in lines[:3]]
        forced = [score for scores in translator._engine.score(words, words) for score in scores]
        return [answer.text for answer in answers], [*forced, *(answer.score for answer in answers)], str(translator)

    def on_the_gpu() -> Any:
        command("package", made.checkpoint, tmp_path / "packaged", "--data", made.data)
        command("translate", package, "--device", "cuda", "--beam", "3", "--engine", FAIRSEQ, given="ein hund\n")
        return translated("cuda")

    texts, scores, label = translated("cpu")
    found, found_scores, found_label = on_gpu(on_the_gpu)
    assert "fairseq, float32, cpu" in label
    assert "fairseq, float32, cuda" in found_label
    assert found == texts
    assert found_scores == pytest.approx(scores, abs=1e-4)
    one, other = (place / "weights.safetensors" for place in (tmp_path / "packaged", package))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["--fp16", "--bf16"])
def test_validation_with_bleu_and_tensorboard(precision, toy_data, tmp_path, monkeypatch):
    """TensorBoard gets numbers, not tensors, at its own interval."""
    shown: dict[str, Any] = {}
    writer = mock.Mock(add_scalar=lambda name, value, step: shown.update({name: value}))
    monkeypatch.setattr(progress_bar, "SummaryWriter", lambda directory: writer)
    monkeypatch.setattr(progress_bar, "_tensorboard_writers", {})

    def train() -> dict[str, Any]:
        search = '{"beam": 2, "max_len_b": 9}'
        flags = ("--eval-bleu", "--eval-bleu-args", search, precision, "--max-update", "2", "--log-format", "simple")
        board = ("--tensorboard-logdir", str(tmp_path / "board"), "--log-interval", "1")
        config = toy.parse_training(toy_data, tmp_path / "run", *flags, *board, arch="admin_transformer", validate=True)
        config.common.cpu = False
        toy.run_training(config)
        return shown

    found = on_gpu(train)
    assert {type(value) for value in found.values()} <= {int, float}
    assert found.keys() >= {"bleu", "loss", "gnorm", *(["loss_scale"] if precision == "--fp16" else [])}


RECIPE = """
common: {cpu: false, bf16: true, seed: 3%s}
task: {_name: translation, source_lang: de, target_lang: en}
model: {_name: pre_ln_transformer, encoder_layers: 1, decoder_layers: 1, encoder_embed_dim: 16, decoder_embed_dim: 16,
  encoder_ffn_embed_dim: 32, decoder_ffn_embed_dim: 32, encoder_attention_heads: 2, decoder_attention_heads: 2}
criterion: {_name: cross_entropy}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
dataset: {max_tokens: 700, num_workers: 0, disable_validation: true}
optimization: {lr: [0.005], max_epoch: 3}
checkpoint: {no_epoch_checkpoints: true}
"""
REPLAYED = "2 shapes of 2 seen, 33.3 % of 6 batches replayed"
ON = "CUDA graphs: fewer launches, the same losses; common.cuda_graphs=false turns them off"
FUSED = "--optimizer fused_adam is faster with --cuda-graphs: adam updates each parameter by itself"


@pytest.mark.skipif(REAL, reason="run forks, and CUDA does not start in a fork of a process that uses it")
@pytest.mark.parametrize("names", ["run", pytest.param("run off hydra", marks=pytest.mark.slow)])
def test_a_run_has_graphs_by_default_and_the_weights_of_a_run_without(names, toy_data, tmp_path, capfd, monkeypatch):
    """And hydra-train has them where the YAML file asks."""
    monkeypatch.chdir(tmp_path)
    same = (f"checkpoint.save_dir={tmp_path}/hydra", "dataset.update_epoch_batch_itr=true", "dataset.length_grid=1")
    weights, keys = {}, {"run": "", "off": ", cuda_graphs: false", "hydra": ", cuda_graphs: true"}
    for name in names.split():
        (tmp_path / f"my_{name}.yaml").write_text(RECIPE % keys[name], encoding="utf-8")
        if name == "hydra":
            where = ("--config-dir", tmp_path, "--config-name", "my_hydra", f"+task.data={toy_data}", *same)
            on_gpu(command, "hydra-train", *where)
        else:
            on_gpu(command, "run", tmp_path / f"my_{name}.yaml", toy_data, tmp_path / name)
        said = "".join(capfd.readouterr())
        assert [line in said for line in (REPLAYED, FUSED)] == [name != "off"] * 2, name
        assert (ON in said) == (name == "run")
        place = tmp_path / name / ("" if name == "hydra" else "checkpoints") / "checkpoint_last.pt"
        weights[name] = torch.load(place, weights_only=True)["model"]
        if name != "hydra":
            recorded = json.loads((tmp_path / name / "run.json").read_text())
            assert recorded["cuda_graphs"] == (name == "run")
        assert differences(weights["run"], weights[name]) == []
