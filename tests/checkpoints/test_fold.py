"""Folding: stock loads the result strictly and computes the same; what cannot be folded is refused with reasons.

Every residual gets a random scale a dimension, every LayerNorm a random gain and bias, so that a factor that is
forgotten, misplaced or applied twice shows.
"""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models.transformer import TransformerModel
from torch import Tensor, nn

from fairseq_plugins.checkpoints import fold as fold_module
from fairseq_plugins.checkpoints.fold import fold_checkpoint, main
from fairseq_plugins.core.method import PARTS, Axis, Site
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import read_checkpoint, weights_hash
from tests import processes
from tests.models import TINY, batch, logits, residuals, settings
from tests.models import full as build
from tests.models import task as translation_task
from tests.rounding import assert_same_to_rounding
from tests.toy import binarise, train_toy, translate_toy, translations_in

POSITIONS = 12
"""The longest sentence of every model here, so that the last row of a table of positions is used."""


def random_in(low: float, high: float, like: Tensor) -> Tensor:
    return low + (high - low) * torch.rand(like.shape)


def set_scale(residual: nn.Module, scale: Tensor) -> None:
    """Half of it measured, half of it trained."""
    if residual.omega_trained is None:
        residual.omega_profiled.copy_(scale)
    else:
        residual.omega_trained.copy_(0.4 * scale)
        residual.omega_profiled.copy_(scale - residual.omega_trained)
    residual.calibrated.fill_(1.0)


@torch.no_grad()
def as_if_trained(model: nn.Module) -> nn.Module:
    """Weights away from every initial value; scales from 0.5 to 2, of either sign in one residual connection."""
    torch.manual_seed(5)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.copy_(random_in(0.5, 1.5, module.weight))
            module.bias.copy_(random_in(-0.5, 0.5, module.bias))
        elif isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.copy_(random_in(-0.3, 0.3, module.bias))
    for stack in (model.encoder, model.decoder):
        for residual in residuals(stack).values():
            if hasattr(residual, "omega_profiled"):
                set_scale(residual, random_in(0.5, 2.0, residual.omega_profiled))
        last = list(residuals(stack).values())[-1]
        if hasattr(last, "omega_profiled"):
            set_scale(last, -last.stream_scale())
    return model.eval()


def tiny_model(arch: str, **values: Any) -> tuple[nn.Module, dict[str, Any]]:
    values = {**TINY, "max_source_positions": POSITIONS, "max_target_positions": POSITIONS - 1, **values}
    return as_if_trained(build(arch, **values)), values


def save(path: Path, arch: str, model: nn.Module, values: dict[str, Any]) -> Path:
    """A checkpoint with the entries of fairseq's."""
    options = {"_name": arch, **vars(settings(arch, **values))}
    options.pop("arch")
    state = {
        "args": None,
        "cfg": {"common": {"user_dir": "somewhere"}, "task": {"_name": "translation"}, "model": options},
        "model": model.state_dict(),
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 7, "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 4.0},
        "last_optimizer_state": {"state": {}},
    }
    torch.save(state, path)
    return path


def folded(directory: Path, arch: str, model: nn.Module, values: dict[str, Any]) -> nn.Module:
    """The model that fairseq's own loader makes of the folded checkpoint, strictly."""
    fold_checkpoint(save(directory / "in.pt", arch, model, values), directory / "out.pt")
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(directory / "out.pt")], task=translation_task(), strict=True
    )
    assert type(models[0]) is TransformerModel
    return models[0].eval()


@torch.no_grad()
def log_probabilities(model: nn.Module) -> Tensor:
    return model.get_normalized_probs((logits(model, batch(longest=POSITIONS)), {}), log_probs=True)


def assert_same(first: nn.Module, second: nn.Module) -> None:
    expected = log_probabilities(first)
    assert expected.std() > 0.1
    assert_same_to_rounding(log_probabilities(second), expected)


TIES = ({}, {"share_decoder_input_output_embed": True}, {"share_all_embeddings": True})
POSITION_TABLES: tuple[dict[str, Any], ...] = (
    {},
    {"encoder_learned_pos": True, "decoder_learned_pos": True},
    {"decoder_learned_pos": True},
    {"no_token_positional_embeddings": True},
)
NORM_OF_EMBEDDINGS = ({}, {"layernorm_embedding": True})
SETTINGS: list[dict[str, Any]] = [
    *({**tie, **table, **norm} for tie in TIES for table in POSITION_TABLES for norm in NORM_OF_EMBEDDINGS),
    {"no_scale_embedding": True, "share_all_embeddings": True},
    {"admin_scale": "scalar"},
    {"admin_omega": "frozen"},
    {"adaptive_softmax_cutoff": [10, 20]},
    {"decoder_output_dim": 8},
    {"no_cross_attention": True},
    {"activation_fn": "gelu", "share_decoder_input_output_embed": True},
    {"encoder_layers": 1, "decoder_layers": 4},
    {"residual": "admin,plain", "share_all_embeddings": True},
    {"residual": "plain,admin", "share_all_embeddings": True},
    {"norm_position": "pre,post", "residual": "plain,admin"},
    {"norm_position": "post,pre", "residual": "admin,plain"},
    {"checkpoint_activations": True},
    {"encoder_layers_to_keep": "0,1"},
]


def test_stock_computes_the_same_for_every_setting(tmp_path, subtests):
    for number, values in enumerate(SETTINGS):
        directory = tmp_path / str(number)
        directory.mkdir()
        with subtests.test(**{name: str(value) for name, value in values.items()}):
            model, values = tiny_model("admin_transformer", **values)
            assert_same(model, folded(directory, "admin_transformer", model, values))


def test_dividing_the_values_of_the_cross_attention_is_wrong(tmp_path, monkeypatch):
    """Appendix C of the paper prints it so. The command measures its own result and writes nothing."""
    readers = {**fold_module.READERS, Site.CROSS: ("encoder_attn.q_proj", "encoder_attn.v_proj")}
    monkeypatch.setattr(fold_module, "READERS", readers)
    model, values = tiny_model("admin_transformer")
    path = save(tmp_path / "in.pt", "admin_transformer", model, values)
    with pytest.raises(UserError, match="the folded model differs by"):
        fold_checkpoint(path, tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()


def test_tables_are_untied_only_where_they_take_a_scale(tmp_path):
    tables = (({}, False), ({"residual": "admin,plain"}, True), ({"residual": "plain,admin"}, False))
    for number, (values, tied) in enumerate([*tables, ({"layernorm_embedding": True}, True)]):
        (tmp_path / str(number)).mkdir()
        model, values = tiny_model("admin_transformer", share_all_embeddings=True, **values)
        stock = folded(tmp_path / str(number), "admin_transformer", model, values)
        assert (stock.decoder.output_projection.weight is stock.decoder.embed_tokens.weight) is tied
        assert ("decoder.embed_positions.weight" not in stock.state_dict()) is tied


@pytest.mark.parametrize("arch", ["post_ln_transformer", "pre_ln_transformer"])
def test_what_has_no_scale_passes_through_to_the_bit(tmp_path, arch):
    model, values = tiny_model(arch, share_all_embeddings=True)
    stock = folded(tmp_path, arch, model, values)
    assert list(stock.state_dict()) == list(model.state_dict())
    for name, value in stock.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)
    torch.testing.assert_close(log_probabilities(stock), log_probabilities(model), rtol=0, atol=0)
    assert stock.encoder.layers[0].normalize_before is (arch == "pre_ln_transformer")


def test_result_is_plain_data_of_stock_fairseq_in_float32(tmp_path):
    model, values = tiny_model("admin_transformer", share_all_embeddings=True)
    path = save(tmp_path / "in.pt", "admin_transformer", model, values)
    half = {name: value.half() for name, value in model.state_dict().items()}
    change(path, model=half)
    (tmp_path / "out.pt").touch()
    assert main([str(path), str(tmp_path / "out.pt"), "--force"]) == 0
    with torch.serialization.safe_globals([]):
        state = read_checkpoint(tmp_path / "out.pt")
    options = state["cfg"]["model"]
    assert type(options) is dict
    changed = {"_name": "transformer", "share_all_embeddings": False, "encoder_learned_pos": True}
    assert changed.items() <= options.items()
    assert not [name for name in options if name.startswith("admin") or name == "residual"]
    assert not [name for name in state["model"] if "residual" in name]
    assert {value.dtype for value in state["model"].values()} == {torch.float32}
    assert state["cfg"]["common"]["user_dir"] is None
    assert "last_optimizer_state" not in state
    assert state["extra_state"] == {"train_iterator": {"epoch": 1}, "weights_sha256": weights_hash(state["model"])}
    assert state["folded_from"] == {"file": "in.pt", "arch": "admin_transformer", "num_updates": 7}
    task = translation_task()
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "out.pt")], task=task)
    model.load_state_dict(half)
    assert_same(model, models[0].eval())


REFUSED = [
    ("b2t", {}, ["--residual b2t cannot be folded: stock fairseq has no connection from the bottom"]),
    ("rezero", {}, ["--norm-position none cannot be folded", "--residual rezero cannot be folded: stock"]),
    ("rezero_post_ln", {}, ["--residual rezero cannot be folded"]),
    ("dsinit_matt", {}, ["--attention matt cannot be folded: stock fairseq has no average attention"]),
    ("b2t", {"attention": "matt"}, ["--residual b2t cannot be folded", "--attention matt cannot be folded"]),
    ("admin", {"residual": "b2t,rezero"}, ["--residual b2t cannot be folded", "--residual rezero cannot be folded"]),
]


def test_what_has_no_fold_is_refused_with_every_reason(tmp_path, capsys, subtests):
    for method, values, reasons in REFUSED:
        with subtests.test(method, **values):
            arch = f"{method}_transformer"
            model, values = tiny_model(arch, **values)
            path = save(tmp_path / "in.pt", arch, model, values)
            assert main([str(path), str(tmp_path / "out.pt")]) == 2
            lines = capsys.readouterr().err.splitlines()
            assert len(lines) == len(reasons)
            for line, reason in zip(lines, reasons, strict=True):
                assert line.startswith(f"error: {reason}")
            assert [file.name for file in tmp_path.iterdir()] == ["in.pt"]


def test_the_proof_refuses_a_scale_that_nothing_can_take(tmp_path, monkeypatch):
    """With Pre-LN no LayerNorm takes it, and zero has no inverse."""
    parts = PARTS[Axis.RESIDUAL]
    monkeypatch.setitem(parts, "admin", replace(parts["admin"], conflicts=lambda design, config: []))
    zero, values_of_zero = tiny_model("admin_transformer", admin_omega="frozen")
    zero.decoder.layers[1].encoder_attn_residual.omega_profiled[3] = 0.0
    for model, values in (tiny_model("admin_transformer", norm_position="pre,post"), (zero, values_of_zero)):
        path = save(tmp_path / "in.pt", "admin_transformer", model, values)
        with pytest.raises(UserError, match="the folded model differs by"):
            fold_checkpoint(path, tmp_path / "out.pt")
        assert not (tmp_path / "out.pt").exists()


def change(path: Path, **entries: Any) -> None:
    # Read at once: a file that is mapped must not be written over.
    torch.save({**torch.load(path, weights_only=True), **entries}, path)


def test_an_input_that_cannot_be_used_ends_in_one_line(tmp_path, capsys, subtests):
    model, values = tiny_model("admin_transformer")
    path = tmp_path / "in.pt"
    weights = {name: value for name, value in model.state_dict().items() if name != "decoder.layers.1.fc1.bias"}
    foreign = "is not a translation model of this package"
    for damage, message in (
        ({"model": weights}, f"checkpoint {path} is of another architecture or dictionary: Missing key(s) in "),
        ({"cfg": {"model": {"_name": "fconv"}}}, f"{path}: 'fconv' {foreign}"),
        ({"cfg": {"model": {"_name": "admin_transformer_lm"}}}, f"{path}: 'admin_transformer_lm' {foreign}"),
        ({"cfg": None}, f"{path}: 'None' {foreign}"),
        ({"cfg": {"model": Namespace(arch="transformer")}}, f"{path}: 'transformer' {foreign}"),
    ):
        with subtests.test(message):
            change(save(path, "admin_transformer", model, values), **damage)
            assert main([str(path), str(tmp_path / "out.pt")]) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"error: {message}")
            assert error.count("\n") == 1
            assert not (tmp_path / "out.pt").exists()


STOCK_GENERATE = """
import sys
from fairseq_cli.generate import cli_main
cli_main()
assert not [name for name in sys.modules if name.startswith("fairseq_plugins")]
"""


@pytest.mark.slow
def test_stock_fairseq_translates_with_a_folded_training(tmp_path):
    """Trained with the plugin, folded, translated by fairseq alone in a process that knows nothing of the plugin."""
    data = binarise(tmp_path)
    flags = ("--share-all-embeddings", "--max-update", "40", "--store-ema")
    checkpoint = train_toy(data, tmp_path / "training", *flags, arch="admin_transformer")
    before = translate_toy(data, checkpoint, tmp_path / "before")
    assert main([str(checkpoint), str(tmp_path / "folded.pt")]) == 0

    command = ["-c", STOCK_GENERATE, data, "--path", tmp_path / "folded.pt", "--results-path", tmp_path / "after"]
    flags = "--cpu --beam 2 --max-len-b 12 --max-tokens 400 --num-workers 0 --required-batch-size-multiple 1"
    ended = processes.python(*command, *flags.split(), cwd=tmp_path, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="")
    assert ended.code == 0, ended.errors
    assert len(before) == 60
    assert translations_in(tmp_path / "after") == before
