"""Names and sizes of speech-to-text models; what is said by flag and by YAML; what is refused, and how."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.dataclass.initialize import hydra_init
from fairseq.logging import metrics
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.speech_to_text import SpeechToTextTask
from fairseq_cli import hydra_train, train
from hydra import compose, initialize_config_dir

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.speech_to_text import SPEECH_TO_TEXT, DeepS2TTransformerModel
from fairseq_plugins.errors import UserError
from tests.models import methods_of, settings, tiny
from tests.speech_to_text import audio

OURS = [name for name, model in ARCH_MODEL_REGISTRY.items() if model is DeepS2TTransformerModel]
SIZES = {
    "": (12, 6, 512, 2048, 8, 0.1),
    "_xs": (6, 3, 256, 1024, 4, 0.3),
    "_s": (12, 6, 256, 2048, 4, 0.1),
    "_sp": (16, 6, 256, 2048, 4, 0.1),
    "_m": (12, 6, 512, 2048, 8, 0.15),
    "_mp": (16, 6, 512, 2048, 8, 0.15),
    "_l": (12, 6, 1024, 4096, 16, 0.2),
    "_lp": (16, 6, 1024, 4096, 16, 0.2),
}
"""Encoder and decoder layers, width, feed-forward width, heads and dropout of fairseq's architectures."""


def test_which_architectures_there_are() -> None:
    names = ["deep", *METHODS]
    assert methods_of(DeepS2TTransformerModel) == names
    assert set(OURS) == {f"{name}_s2t_transformer{size}" for name in names for size in SIZES}
    assert {ARCH_MODEL_NAME_REGISTRY[arch] for arch in OURS} == {"deep_s2t_transformer"}


def flags(arch: str) -> set[str]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return {name for action in parser._actions for name in action.option_strings}


def test_flags_are_those_of_stock_and_of_the_parts() -> None:
    # The widths at the decoder's ends are no setting of stock's model.
    added = flags("deep_transformer") - flags("transformer") - {"--decoder-input-dim"}
    assert {"--norm", "--residual", "--word-dropout"} <= added
    assert flags("deep_s2t_transformer") - flags("s2t_transformer") == added
    assert flags("s2t_transformer") - flags("deep_s2t_transformer") == set()


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: str) -> None:
    config = settings(f"b2t_s2t_transformer{size}")
    encoder, decoder, *same, dropout = SIZES[size]
    assert (config.encoder_layers, config.decoder_layers) == (encoder, decoder)
    for stack in ("encoder", "decoder"):
        names = [f"{stack}_{name}" for name in ("embed_dim", "ffn_embed_dim", "attention_heads")]
        assert [getattr(config, name) for name in names] == same
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (dropout,) * 3
    assert vars(settings(**vars(config))) == vars(config), "fairseq applies an architecture twice"


@pytest.mark.parametrize(
    "said",
    [
        {"dropout": 0.3},
        {"dropout": 0.3, "attention_dropout": 0.0},
        {"encoder_embed_dim": 64},
        {"encoder_ffn_embed_dim": 64, "decoder_layers": 2},
        {"conv_kernel_sizes": "3"},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", ["", "_s"])
def test_what_is_not_said_follows_stock(size: str, said: dict[str, Any]) -> None:
    """The rates inside a layer follow the dropout, and the decoder's widths the encoder's."""
    ours, stock = settings(f"pre_ln_s2t_transformer{size}", **said), settings(f"s2t_transformer{size}", **said)
    names = [name for name in SPEECH_TO_TEXT.presettable if hasattr(stock, name)]
    assert len(names) > 15
    assert {name: getattr(ours, name) for name in names} == {name: getattr(stock, name) for name in names}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"norm": "pst"}, ("unknown value of --norm 'pst'", "did you mean 'post'")),
        ({"residual": "admin", "norm": "pre"}, ("--residual admin", "--norm post", "not pre")),
        ({"encoder_normalize_before": True}, ("--encoder-normalize-before", "--norm pre")),
        ({"attention": "matt", "decoder_embed_dim": 8}, ("--encoder-embed-dim 16", "--decoder-embed-dim 8")),
        ({"encoder_attention_heads": 3}, ("--encoder-embed-dim 16", "--encoder-attention-heads 3")),
        ({"dropout": 1.0, "attention_dropout": 0.0, "activation_dropout": 0.0}, ("--dropout", "below 1")),
        ({"conv_kernel_sizes": "5,x"}, ("--conv-kernel-sizes", "positive numbers", "'5,x'")),
        ({"conv_kernel_sizes": "5,0"}, ("--conv-kernel-sizes", "positive numbers", "'5,0'")),
        ({"conv_channels": 7}, ("--conv-channels must be even", "not 7")),
        ({"word_dropout": "0.1,0.2"}, ("--word-dropout takes a single value here", "no word embeddings")),
    ],
    ids=str,
)
def test_refusals(values: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        tiny("deep_s2t_transformer", **values)
    (problem,) = caught.value.problems
    assert [word for word in words if word not in problem] == []
    assert "\n" not in problem


def test_fairseq_train_refuses_all_problems_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """That its process ends with a line for each and code 2 is tested in ``tests/config/test_refusals.py``."""
    flags = ["--task", "speech_to_text", "--arch", "b2t_s2t_transformer_s", "--norm", "pst", "--conv-channels", "7"]
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "nowhere", *flags, "--optimizer", "adam"])
    with pytest.raises(UserError) as caught:
        train.cli_main()
    assert [problem.split(";")[0] for problem in caught.value.problems] == [
        "--conv-channels must be even, since its gate halves them, not 7",
        "unknown value of --norm 'pst' (did you mean 'post'?)",
    ]


def recipe(data: Path, save_dir: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The recipe of ``audio.py`` as a YAML. fairseq's task is of the old kind: found by ``task``, without defaults."""
    of_task: dict[str, Any] = {"_name": "speech_to_text", "task": "speech_to_text", "data": str(data), "seed": 3}
    of_task.update(config_yaml="config.yaml", max_source_positions=6000, max_target_positions=32)
    return {
        "common": {"seed": 3, "cpu": True, "no_progress_bar": True, "log_format": "none"},
        "task": of_task,
        "dataset": {
            "max_tokens": 800,
            "num_workers": 0,
            "disable_validation": True,
            "train_subset": "train",
            "valid_subset": "dev",
        },
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"max_update": 6, "lr": [0.004], "clip_norm": 1.0},
        "checkpoint": {"save_dir": str(save_dir), "no_epoch_checkpoints": True},
        "model": model,
    }


def run_hydra(directory: Path, content: dict[str, Any]) -> None:
    """``fairseq-hydra-train`` in this process, from a clean state."""
    directory.mkdir()
    (directory / "run.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    hydra_init("run")
    with initialize_config_dir(config_dir=str(directory), version_base="1.1"):
        config = compose("run")
    metrics.reset()
    handlers = list(logging.root.handlers)
    if hasattr(train.should_stop_early, "best"):
        del train.should_stop_early.best
    hydra_train._hydra_main(config)
    logging.root.handlers[:] = handlers


def test_training_is_the_same_by_yaml_and_by_flag(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[float] = []
    train_step = SpeechToTextTask.train_step

    def listen(task: SpeechToTextTask, *args: Any, **kwargs: Any) -> Any:
        result = train_step(task, *args, **kwargs)
        losses.append(result[0].item())
        return result

    monkeypatch.setattr(SpeechToTextTask, "train_step", listen)
    arch, choices = "admin_s2t_transformer_s", {"admin_profile": "released,paper", "word_dropout": 0.1}
    flags = ["--admin-profile", "released,paper", "--word-dropout", "0.1", "--max-update", "6"]
    first = audio.train(data, tmp_path / "flags", arch, *flags)
    said = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_embed_dim": 16,
        "encoder_ffn_embed_dim": 32,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "conv_channels": 12,
        "conv_kernel_sizes": "3,3",
    }
    model = {"_name": arch, **said, **choices}
    run_hydra(tmp_path / "config", recipe(data, tmp_path / "yaml", model))
    assert len(losses) == 12
    assert losses[:6] == losses[6:]
    states = [torch.load(one, weights_only=True) for one in (first, tmp_path / "yaml" / "checkpoint_last.pt")]
    assert list(states[0]["model"]) == list(states[1]["model"])
    names = [name for name in states[0]["model"] if not name.endswith("_float_tensor")]
    assert [name for name in names if not torch.equal(states[0]["model"][name], states[1]["model"][name])] == []
    kept = [state["cfg"]["model"] for state in states]
    assert {name: (value, kept[1][name]) for name, value in kept[0].items() if value != kept[1][name]} == {}
