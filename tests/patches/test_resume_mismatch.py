"""A directory's training is continued by itself alone; what differs is named in one line."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq.tasks.translation import TranslationTask

from fairseq_plugins.core.fields import OLD_NAMES
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import num_updates
from fairseq_plugins.patches import resume_mismatch
from tests import toy
from tests.config.test_hydra import TINY, recipe, run_hydra
from tests.refusals import refused

ARCH, OTHER = "post_ln_transformer", "deepnet_transformer"
Training = Callable[..., Path]


def updates(checkpoint: Path) -> int | None:
    return num_updates(torch.load(checkpoint, weights_only=True))


@pytest.fixture(scope="module")
def begun(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.train_toy(toy_data, tmp_path_factory.mktemp("begun"), "--max-update", "2", arch=ARCH).parent


@pytest.fixture
def here(begun: Path, tmp_path: Path) -> Path:
    return shutil.copytree(begun, tmp_path / "here")


@pytest.fixture
def go_on(here: Path, toy_data: Path) -> Training:
    def run(*flags: str, arch: str = ARCH, data: Path = toy_data) -> Path:
        return toy.train_toy(data, here, "--max-update", "4", *flags, arch=arch)

    return run


OTHER_SETTINGS = {
    "--decoder-layers 3 --dropout 0.3 --residual rezero --word-dropout 0.1": (
        "model.decoder_layers: 3, was 2; model.dropout: 0.3, was 0.1; model.residual: rezero, was plain; "
        "model.word_dropout: 0.1, was 0.0"
    ),
    "--seed 4 --label-smoothing 0.2 --sentence-avg --adam-betas (0.9,0.98) --warmup-updates 5": (
        "seed: 4, was 3; criterion.label_smoothing: 0.2, was 0.1; criterion.sentence_avg: True, was False; "
        "optimizer.adam_betas: [0.9, 0.98], was [0.9, 0.999]; lr_scheduler.warmup_updates: 5, was 4"
    ),
    "--criterion label_smoothed_cross_entropy_with_rdrop --optimizer radam --lr-scheduler fixed --seed 4 "
    "--dropout 0.3 --attention-dropout 0.3 --activation-dropout 0.3 --weight-decay 0.1": (
        "seed: 4, was 3; criterion: label_smoothed_cross_entropy_with_rdrop, was label_smoothed_cross_entropy; "
        "optimizer: radam, was adam; learning rate schedule: fixed, was inverse_sqrt; "
        "model.activation_dropout: 0.3, was 0.0; model.attention_dropout: 0.3, was 0.0; 2 more"
    ),
    # A reset excuses only what it resets.
    "--reset-lr-scheduler --optimizer radam": "optimizer: radam, was adam",
    "--reset-optimizer --reset-lr-scheduler --reset-dataloader --reset-meters --dropout 0.3": (
        "model.dropout: 0.3, was 0.1"
    ),
}


def test_other_settings(go_on: Training, here: Path) -> None:
    last = here / "checkpoint_last.pt"
    before = last.read_bytes()
    for flags, said in OTHER_SETTINGS.items():
        assert refused(go_on, *flags.split()) == (
            f"{here}: holds a training with other settings ({said}); use another --save-dir, and add "
            f"--finetune-from-model {last} if the new training should start from its weights"
        )
    assert last.read_bytes() == before


def test_another_architecture_of_the_same_size(go_on: Training) -> None:
    line = refused(go_on, arch=OTHER)
    for said in (f"(architecture: {OTHER}, was {ARCH}; ", "model.residual: deepnorm, was plain", "init: deepnorm, was"):
        assert said in line


@pytest.mark.parametrize(
    "flags",
    [
        "--lr 0.001 --clip-norm 5 --update-freq 2 --max-tokens 60 --num-workers 1 --checkpoint-activations",
        pytest.param("--source-lang de --target-lang en --adam-betas (0.9,0.999)", marks=pytest.mark.slow),
        "--reset-optimizer --optimizer radam --label-smoothing 0 --lr-scheduler fixed",
        pytest.param("--reset-lr-scheduler --lr-scheduler fixed", marks=pytest.mark.slow),
        "--restore-file {here}/checkpoint_last.pt --dropout 0.3",
    ],
)
def test_what_may_change(go_on: Training, here: Path, flags: str) -> None:
    assert updates(go_on(*flags.format(here=here).split())) == 4


def test_an_optimizer_that_goes_on_keeps_the_settings_of_its_file(
    go_on: Training, here: Path, tmp_path: Path, toy_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = here / "checkpoint_last.pt"
    named = ("--restore-file", str(file), "--weight-decay", "0.5")
    line = f"checkpoint {file}: its optimizer has other settings (optimizer.weight_decay: 0.5, was 0.0), and keeps them"
    assert refused(toy.train_toy, toy_data, tmp_path / "new", *named, arch=ARCH).startswith(line)
    overrides = ("--max-update", "3", "--optimizer-overrides", "{'weight_decay': 0.5}")
    last = toy.train_toy(toy_data, tmp_path / "new", *named, *overrides, arch=ARCH)
    groups = torch.load(last, weights_only=True)["last_optimizer_state"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.5] * len(groups)
    caplog.clear()
    go_on("--restore-file", str(last), "--weight-decay", "0.5")
    assert any(line.startswith(f"{file}: is not read, since --restore-file") for line in caplog.messages)


def test_a_training_whose_settings_have_earlier_names_is_resumed(go_on: Training, here: Path) -> None:
    last = here / "checkpoint_last.pt"
    state = torch.load(last, weights_only=True)
    state["cfg"]["model"] |= {old: state["cfg"]["model"].pop(new) for old, new in OLD_NAMES.items()}
    torch.save(state, last)
    assert "(model.norm_position: pre, was post)" in refused(go_on, "--norm-position", "pre")
    assert updates(go_on("--norm", "post")) == 4


def test_a_criterion_that_records_is_left_again(go_on: Training) -> None:
    recording = "--criterion label_smoothed_cross_entropy_with_diagnostics --diagnostics-interval 2"
    assert updates(go_on(*recording.split(), "--max-update", "3")) == 3
    assert updates(go_on()) == 4


def test_a_stock_model_is_resumed_and_compared(toy_data: Path, tmp_path: Path) -> None:
    """Its configuration is a namespace with every flag of the command."""
    toy.train_toy(toy_data, tmp_path, "--max-update", "2")
    assert updates(toy.train_toy(toy_data, tmp_path, "--max-update", "3", "--lr", "0.1", "--patience", "2")) == 3
    with pytest.raises(UserError, match=r"settings \(model.dropout: 0.2, was 0.1\);"):
        toy.train_toy(toy_data, tmp_path, "--max-update", "4", "--dropout", "0.2")
    with pytest.raises(UserError, match=rf"settings \(architecture: {ARCH}, was transformer[;)]"):
        toy.train_toy(toy_data, tmp_path, "--max-update", "4", arch=ARCH)


def test_an_optimizer_without_declared_settings(toy_data: Path, tmp_path: Path) -> None:
    """Its configuration has every flag of the command, too."""
    sgd = ("--optimizer", "sgd", "--lr-scheduler", "fixed")
    toy.train_toy(toy_data, tmp_path, *sgd, "--max-update", "2", arch=ARCH)
    moved = shutil.copytree(toy_data, tmp_path / "moved")
    assert updates(toy.train_toy(moved, tmp_path, *sgd, "--max-update", "3", arch=ARCH)) == 3
    with pytest.raises(UserError, match=r"settings \(optimizer: adam, was sgd\);"):
        toy.train_toy(moved, tmp_path, "--lr-scheduler", "fixed", "--max-update", "4", arch=ARCH)


def test_the_way_out_is_one(toy_data: Path, begun: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another directory with the weights of the first training, where the same command resumes afterwards."""
    first = str(begun / "checkpoint_last.pt")
    for limit in (1, 2):
        flags = ("--finetune-from-model", first, "--dropout", "0.3", "--max-update", str(limit))
        assert updates(toy.train_toy(toy_data, tmp_path, *flags, arch=OTHER)) == limit
    said = [line for line in caplog.messages if line.startswith(f"{first} is of a model")]
    assert said == [
        f"{first} is of a model with other settings, and its weights start this one: "
        f"architecture: {OTHER}, was {ARCH}; model.base_init: xavier, was fairseq; model.init: deepnorm, was keep; "
        "model.residual: deepnorm, was plain"
    ]


def test_other_words_and_languages_with_dictionaries_of_one_size(go_on: Training, here: Path, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path / "other" / "text")
    for path in (tmp_path / "other" / "text").iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace("eins", "onze"), encoding="utf-8")
    other = toy.binarise_text(tmp_path / "other", tuple(toy.SIZES))
    with pytest.raises(UserError, match=r"settings \(source_dictionary: \w+, was \w+; target_dictionary: \w+, was"):
        go_on(data=other)
    with pytest.raises(UserError, match=r"settings \(source_lang: nl, was de\);"):
        go_on(data=toy.binarise(tmp_path / "nl", source="nl"))
    # A checkpoint that does not say is accepted.
    state = torch.load(here / "checkpoint_last.pt", weights_only=True)
    del state["extra_state"][resume_mismatch.TRAINED_ON]
    torch.save(state, here / "checkpoint_last.pt")
    assert updates(go_on(data=other)) == 4


def test_a_yaml_file(toy_data: Path, here: Path, tmp_path: Path) -> None:
    """It goes on with what flags began, and another one does not."""
    contents = {}
    model = {"dropout": 0.1, "share_all_embeddings": False}
    for arch in (OTHER, ARCH):
        contents[arch] = recipe(TranslationTask, toy_data, here, {**TINY, **model, "_name": arch})
        contents[arch]["optimization"]["max_update"] = 4
        contents[arch]["optimizer"]["adam_betas"] = [0.9, 0.999]
    with pytest.raises(UserError, match=f"architecture: {OTHER}, was {ARCH}"):
        run_hydra(tmp_path / OTHER, contents[OTHER], here)
    assert updates(run_hydra(tmp_path / ARCH, contents[ARCH], here)) == 4
