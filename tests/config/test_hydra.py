"""A YAML for ``fairseq-hydra-train`` and flags for ``fairseq-train``: the same model and training, bit for bit."""

import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.models import build_model
from fairseq.tasks.speech_to_text import SpeechToTextTask
from fairseq.tasks.translation import TranslationTask
from fairseq_cli import hydra_train
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.core.config import SIZE_FIELDS
from fairseq_plugins.core.fields import OLD_NAMES
from fairseq_plugins.core.method import Axis, all_options
from tests import models, toy
from tests.config.published import completed, composed
from tests.faults.exact import differences
from tests.language_model import text
from tests.refusals import problems_of, refused
from tests.speech_to_text import audio

FLAGS = zip(toy.TINY_MODEL[::2], toy.TINY_MODEL[1::2], strict=True)
TINY: dict[str, Any] = {flag.removeprefix("--").replace("-", "_"): int(value) for flag, value in FLAGS}
TINY |= {"share_all_embeddings": True, "dropout": 0.2}
CHOICES = [axis.value for axis in Axis] + [option.name for option in all_options()]
NOWHERE = Path("nowhere")


def read(directory: Path, content: dict[str, Any], *overrides: str) -> DictConfig:
    """A YAML as ``fairseq-hydra-train --config-dir directory --config-name run`` reads it, with overrides."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "run.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return composed(directory / "run.yaml", *overrides)


def resolved(directory: Path, content: dict[str, Any], *overrides: str) -> DictConfig:
    """The same after what ``fairseq-hydra-train`` does to it before it trains."""
    return completed(OmegaConf.to_container(read(directory, content, *overrides)))


def model_of(config: DictConfig) -> torch.nn.Module:
    torch.manual_seed(1)
    language_model = "_lm" in config.model._name
    task = models.language_modeling() if language_model else models.task()
    return build_model(config.model, task)


def minimal(arch: str, **values: Any) -> dict[str, Any]:
    """A translation model and no more."""
    return {"task": {"_name": "translation", "data": "nowhere"}, "model": {"_name": arch, **values}}


def flags_of(values: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in values.items():
        flags += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return flags


@pytest.mark.parametrize(
    "archs",
    [
        ["admin_transformer_iwslt_de_en", "dsinit_matt_transformer_wmt_en_de_12", "admin_transformer_lm_gpt"],
        pytest.param(
            ["b2t_transformer_wmt_en_de_big", "rezero_transformer_60_12", "pre_ln_transformer_lm_wiki103"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_architecture_means_the_same_by_yaml_and_by_flag(archs: list[str], tmp_path: Path) -> None:
    """In the model and in the configuration that a checkpoint keeps."""
    for arch in archs:
        said = dict.fromkeys(("adaptive_input_cutoff", "adaptive_softmax_cutoff"), "10,20") if "wiki103" in arch else {}
        if "_lm" in arch:
            task: dict[str, Any] = {"_name": "language_modeling", "data": "nowhere", "tokens_per_sample": 48}
            flags = [*flags_of(said), "--tokens-per-sample", "48"]
            by_flag = text.parse_training(NOWHERE, tmp_path, arch, *flags, model=())
        else:
            task = {"_name": "translation", "data": "nowhere"}
            by_flag = toy.parse_training(NOWHERE, tmp_path, arch=arch, model=())
        by_yaml = resolved(tmp_path, {"task": task, "model": {"_name": arch, **said}})
        with torch.device("meta"):
            models = [model_of(by_yaml), model_of(by_flag)]
        first, second = ({name: value.shape for name, value in model.state_dict().items()} for model in models)
        assert first == second, arch
        assert models[0].max_positions() == models[1].max_positions(), arch
        assert [stack.design for _, stack in models[0].stacks()] == [stack.design for _, stack in models[1].stacks()]
        names = [name for name in (*SIZE_FIELDS, *CHOICES) if "_lm" not in arch or name in by_flag.model]
        assert [(name, by_yaml.model[name]) for name in names if by_yaml.model[name] != by_flag.model[name]] == []


def test_numbers_need_no_quotes_and_what_is_misspelt_is_refused(tmp_path: Path) -> None:
    arch = "admin_transformer_iwslt_de_en"
    parts = {"norm_position": "none", "residual": "rezero", "init": "b2t", "rezero_alpha": 0.5, "b2t_init_scale": 0.1}
    options = model_of(resolved(tmp_path, minimal(arch, **TINY, **parts))).encoder.design.options
    assert (options.rezero_alpha, options.b2t_init_scale) == (0.5, "0.1")
    with pytest.raises(OmegaConfBaseException, match="encoder_layer' not in 'DeepTransformerConfig'"):
        resolved(tmp_path, minimal(arch, encoder_layer=3))
    wrong = resolved(tmp_path, minimal(arch, **TINY, norm_position="pst", residual="admn"))
    assert [problem.split(";")[0] for problem in problems_of(model_of, wrong)] == [
        "unknown value of --norm-position 'pst' (did you mean 'post'?)",
        "unknown value of --residual 'admn' (did you mean 'admin'?)",
    ]


def test_earlier_names_by_flag_and_by_yaml(tmp_path: Path) -> None:
    old = {"norm": "pre,branch", "norm_module": "dyt", "history": "denseformer,last", "weight_form": "sigma,plain"}
    new = {name: old[earlier] for earlier, name in OLD_NAMES.items()}

    def by_flag(**values: str) -> DictConfig:
        return toy.parse_training(NOWHERE, tmp_path, *flags_of(values), arch="post_ln_transformer")

    def by_yaml(**values: str) -> DictConfig:
        return resolved(tmp_path, minimal("post_ln_transformer", **TINY, **values))

    designs = [
        [stack.design for _, stack in model_of(read(**values)).stacks()]
        for read, values in itertools.product((by_flag, by_yaml), (old, new))
    ]
    assert designs[0] == designs[1]
    assert designs[2] == designs[3]
    assert [design.choice(Axis.NORM_POSITION) for design in designs[0]] == ["pre", "branch"]
    both = "--norm post is the old name of --norm-position, which is pre"
    for read in (by_flag, by_yaml):
        assert refused(lambda read: model_of(read(norm="post", norm_position="pre")), read) == both


def recipe(task: type[Any], data: Path, save_dir: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The recipe of ``tests/toy.py``, or of ``audio.py``, as a YAML."""
    # fairseq's task for speech is of the old kind: found by ``task``, without defaults.
    of_task = {"_name": "speech_to_text", "task": "speech_to_text", "seed": 3, "config_yaml": "config.yaml"}
    of_task.update(max_source_positions=6000, max_target_positions=32)
    splits = {"train_subset": "train", "valid_subset": "dev"}
    speech = task is SpeechToTextTask
    schedule = {"_name": "fixed"} if speech else {"_name": "inverse_sqrt", "warmup_updates": 4}
    size = {"max_tokens": 800, **splits} if speech else {"max_tokens": 120}
    return {
        "common": {"seed": 3, "cpu": True, "no_progress_bar": True, "log_format": "none"},
        "task": {**(of_task if speech else {"_name": "translation"}), "data": str(data)},
        "dataset": {"num_workers": 0, "disable_validation": True, **size},
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": schedule,
        "optimization": {"max_update": 6, "lr": [0.004 if speech else 0.005], "clip_norm": 1.0},
        "checkpoint": {"save_dir": str(save_dir), "no_epoch_checkpoints": True},
        "model": model,
    }


def run_hydra(directory: Path, content: dict[str, Any], save_dir: Path) -> Path:
    """``fairseq-hydra-train`` in this process, from a clean state as :func:`tests.toy.run_training`."""
    config = read(directory, content)
    toy.forget_earlier_trainings()
    handlers = list(logging.root.handlers)
    hydra_train._hydra_main(config)
    logging.root.handlers[:] = handlers
    return save_dir / "checkpoint_last.pt"


@pytest.mark.parametrize(
    ("task", "arch", "choices"),
    [
        pytest.param(
            TranslationTask,
            "admin_transformer_iwslt_de_en",
            {**TINY, "admin_profile": "released,paper"},
            marks=pytest.mark.slow,
        ),
        (
            TranslationTask,
            "deep_transformer",
            {**TINY, "residual": "b2t", "attention": "matt", "norm_position": "post,none", "base_init": "xavier"},
        ),
        (SpeechToTextTask, "admin_s2t_transformer_s", {"admin_profile": "released,paper", "word_dropout": 0.1}),
    ],
)
def test_training_is_the_same(task, arch, choices, toy_data, speech_data, tmp_path):
    data = speech_data if task is SpeechToTextTask else toy_data
    flags = ["--max-update", "6", "--no-epoch-checkpoints", *flags_of(choices)]

    def by_flags() -> Path:
        if task is SpeechToTextTask:
            return audio.train(data, tmp_path / "flags", arch, *flags)
        return toy.train_toy(data, tmp_path / "flags", *flags, arch=arch, model=())

    sizes = audio.SETTINGS if task is SpeechToTextTask else {}
    content = recipe(task, data, tmp_path / "yaml", {"_name": arch, **sizes, **choices})
    losses, first = toy.losses_of(task, by_flags)
    losses_by_yaml, second = toy.losses_of(task, lambda: run_hydra(tmp_path / "config", content, tmp_path / "yaml"))
    assert len(losses) == 6
    assert losses == losses_by_yaml
    # fairseq leaves some buffers uninitialised.
    assert {name.rpartition(".")[2] for name in differences(first["model"], second["model"])} <= {"_float_tensor"}
    if arch == "deep_transformer":
        return  # fairseq builds it from a copy of the settings, so its checkpoint has only those of the YAML file
    kept = [dict(checkpoint["cfg"]["model"]) for checkpoint in (first, second)]
    names = CHOICES if task is TranslationTask else list(kept[0])
    assert [name for name in names if kept[0].get(name) != kept[1].get(name)] == []
