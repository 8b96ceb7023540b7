"""A YAML for ``fairseq-hydra-train`` and flags for ``fairseq-train``: the same model and training, bit for bit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.logging import metrics
from fairseq.models import build_model
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli import hydra_train, train
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.core.config import SIZE_FIELDS
from fairseq_plugins.core.method import Axis, all_options
from fairseq_plugins.errors import UserError
from tests.building import build, dictionary
from tests.toy import binarise, parse_training, run_training

TINY = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_embed_dim": 16,
    "decoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 32,
    "decoder_ffn_embed_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "share_all_embeddings": True,
    "dropout": 0.2,
}
CHOICES = [axis.value for axis in Axis] + [option.name for option in all_options()]


def read(directory: Path, content: dict[str, Any], *overrides: str) -> DictConfig:
    """A YAML as ``fairseq-hydra-train --config-dir directory --config-name run`` reads it, with overrides."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "run.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    hydra_init("run")
    with initialize_config_dir(config_dir=str(directory), version_base="1.1"):
        return compose("run", overrides=list(overrides))


def resolved(directory: Path, content: dict[str, Any], *overrides: str) -> DictConfig:
    """The same after what ``fairseq-hydra-train`` does to it before it trains."""
    config = read(directory, content, *overrides)
    add_defaults(config)
    config = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    OmegaConf.set_struct(config, True)
    return config


def model_of(config: DictConfig) -> torch.nn.Module:
    torch.manual_seed(1)
    return build_model(config.model, TranslationTask(TranslationConfig(), dictionary(), dictionary()))


def minimal(arch: str, **values: Any) -> dict[str, Any]:
    return {"task": {"_name": "translation", "data": "nowhere"}, "model": {"_name": arch, **values}}


@pytest.mark.parametrize(
    "arch",
    [
        "deep_transformer",
        pytest.param("post_ln_transformer", marks=pytest.mark.slow),
        "admin_transformer_iwslt_de_en",
        pytest.param("b2t_transformer_wmt_en_de_big", marks=pytest.mark.slow),
        "dsinit_matt_transformer_wmt_en_de_12",
        pytest.param("rezero_transformer_60_12", marks=pytest.mark.slow),
    ],
)
def test_an_architecture_means_the_same_by_yaml_and_by_flag(arch: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        by_yaml = model_of(resolved(tmp_path, minimal(arch)))
        by_flag = build(arch)
    assert {name: value.shape for name, value in by_yaml.state_dict().items()} == {
        name: value.shape for name, value in by_flag.state_dict().items()
    }
    for stack in ("encoder", "decoder"):
        assert getattr(by_yaml, stack).design == getattr(by_flag, stack).design


def test_the_configuration_that_a_checkpoint_keeps_is_the_same(tmp_path: Path) -> None:
    config = resolved(tmp_path, minimal("admin_transformer_iwslt_de_en", encoder_layers=1, decoder_layers=1))
    model_of(config)
    flags = parse_training(
        Path("nowhere"),
        tmp_path,
        "--encoder-layers",
        "1",
        "--decoder-layers",
        "1",
        arch="admin_transformer_iwslt_de_en",
        model=(),
    )
    for name in (*SIZE_FIELDS, *CHOICES):
        assert config.model[name] == flags.model[name], name
        assert config.model[name] is not None, name


def test_overrides_of_the_command_line(tmp_path: Path) -> None:
    content = minimal("admin_transformer", **TINY, init="ds_init", admin_profile="paper")
    model = model_of(resolved(tmp_path, content, "model.encoder_layers=3", "+model.ds_init_alpha='0.5,1'"))
    assert len(model.encoder.layers) == 3
    options = [stack.design.options for stack in (model.encoder, model.decoder)]
    assert [one.ds_init_alpha for one in options] == [0.5, 1.0]
    assert [one.admin_profile for one in options] == ["paper", "paper"]


@pytest.mark.parametrize("arch", ["deep_transformer", "admin_transformer"])
def test_a_number_need_not_be_quoted(arch: str, tmp_path: Path) -> None:
    parts = {"norm": "none", "residual": "rezero", "init": "b2t"}
    model = model_of(resolved(tmp_path, minimal(arch, **TINY, **parts, rezero_alpha=0.5, b2t_init_scale=0.1)))
    assert model.encoder.design.options.rezero_alpha == 0.5
    assert model.encoder.design.options.b2t_init_scale == "0.1"


@pytest.mark.parametrize("arch", ["deep_transformer", "admin_transformer_iwslt_de_en"])
def test_a_misspelt_key_is_refused(arch: str, tmp_path: Path) -> None:
    with pytest.raises(OmegaConfBaseException, match="encoder_layer' not in 'DeepTransformerConfig'"):
        resolved(tmp_path, minimal(arch, encoder_layer=3))


@pytest.mark.parametrize("arch", ["deep_transformer", "admin_transformer_iwslt_de_en"])
def test_misspelt_values_are_refused_together(arch: str, tmp_path: Path) -> None:
    config = resolved(tmp_path, minimal(arch, **TINY, norm="pst", residual="admn"))
    with pytest.raises(UserError) as caught:
        model_of(config)
    assert [problem.split(";")[0] for problem in caught.value.problems] == [
        "unknown value of --norm 'pst' (did you mean 'post'?)",
        "unknown value of --residual 'admn' (did you mean 'admin'?)",
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return binarise(tmp_path_factory.mktemp("toy"), {"train": 60})


def recipe(data: Path, save_dir: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The recipe of ``tests/toy.py`` as a YAML."""
    return {
        "common": {"seed": 3, "cpu": True, "no_progress_bar": True, "log_format": "none"},
        "task": {"_name": "translation", "data": str(data)},
        "dataset": {"max_tokens": 120, "num_workers": 0, "disable_validation": True},
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "inverse_sqrt", "warmup_updates": 4},
        "optimization": {"max_update": 6, "lr": [0.005], "clip_norm": 1.0},
        "checkpoint": {"save_dir": str(save_dir), "no_epoch_checkpoints": True},
        "model": model,
    }


def flags_of(values: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in values.items():
        flags += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return flags


def losses(run: Any, *arguments: Any) -> list[float]:
    """Unrounded losses of the updates of one training."""
    heard: list[float] = []
    train_step = TranslationTask.train_step

    def listen(task: TranslationTask, *args: Any, **kwargs: Any) -> Any:
        result = train_step(task, *args, **kwargs)
        heard.append(result[0].item())
        return result

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TranslationTask, "train_step", listen)
        run(*arguments)
    return heard


def run_hydra(config: DictConfig) -> None:
    """``fairseq-hydra-train`` in this process, from a clean state as :func:`tests.toy.run_training`."""
    metrics.reset()
    handlers = list(logging.root.handlers)
    if hasattr(train.should_stop_early, "best"):
        del train.should_stop_early.best
    hydra_train._hydra_main(config)
    logging.root.handlers[:] = handlers


@pytest.mark.parametrize(
    ("arch", "choices"),
    [
        pytest.param("admin_transformer_iwslt_de_en", {"admin_profile": "released,paper"}, marks=pytest.mark.slow),
        ("deep_transformer", {"residual": "b2t", "attention": "matt", "norm": "post,none", "base_init": "xavier"}),
    ],
)
def test_training_is_the_same(data: Path, tmp_path: Path, arch: str, choices: dict[str, Any]) -> None:
    values = {**TINY, **choices}
    flags = ["--max-update", "6", "--no-epoch-checkpoints", *flags_of(values)]
    by_flags = losses(run_training, parse_training(data, tmp_path / "flags", *flags, arch=arch, model=()))
    content = recipe(data, tmp_path / "yaml", {"_name": arch, **values})
    by_yaml = losses(run_hydra, read(tmp_path / "config", content))
    assert len(by_flags) == 6
    assert by_yaml == by_flags
    first, second = (torch.load(tmp_path / one / "checkpoint_last.pt", weights_only=True) for one in ("flags", "yaml"))
    assert list(first["model"]) == list(second["model"])
    assert [name for name, value in first["model"].items() if not torch.equal(value, second["model"][name])] == []
    if arch == "deep_transformer":
        return  # by YAML its checkpoint keeps what was said alone, since fairseq builds it from a copy of the settings
    kept = [dict(checkpoint["cfg"]["model"]) for checkpoint in (first, second)]
    assert [(one, kept[0].get(one), kept[1].get(one)) for one in CHOICES if kept[0].get(one) != kept[1].get(one)] == []


def plain(value: Any) -> bool:
    """Whether ``value`` is made of nothing but the types that every JSON file could hold."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(plain(one) for one in value)
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize("arch", ["admin_transformer", "dsinit_matt_transformer"])
def test_a_checkpoint_holds_plain_data(data: Path, tmp_path: Path, arch: str) -> None:
    flags = ["--max-update", "1", "--no-epoch-checkpoints", *flags_of(TINY)]
    run_training(parse_training(data, tmp_path, *flags, arch=arch, model=()))
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert type(state["cfg"]) is dict
    model = state["cfg"]["model"]
    assert type(model) is dict
    assert [name for name, value in model.items() if not plain(value)] == []
    assert state["args"] is None
    assert {name: model[name] for name in TINY} == TINY
    assert [name for name in CHOICES if type(model[name]) is not str] == []
