"""Methods that stock fairseq computes once they are folded, and what the fold has done to them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fairseq_plugins.errors import UserError
from tests.checkpoints.test_fold import assert_same, folded, random_in, tiny_model
from tests.models import residuals, tiny

SCALED: list[tuple[str, dict[str, Any]]] = [
    ("deepnet", {}),
    ("deepnet", {"residual": "deepnorm,plain"}),
    ("deepnet", {"encoder_layers_to_keep": "0,1"}),
    ("admin_torch", {}),
    ("admin_torch", {"admin_torch_omega": "trained"}),
    ("admin_torch", {"admin_torch_omega": "trained,fixed", "decoder_learned_pos": True}),
]
"""Tables and embeddings are those of Admin, in ``tests/checkpoints/test_fold.py``."""


@pytest.mark.parametrize(("method", "values"), SCALED, ids=str)
def test_a_scaled_stream(method: str, values: dict[str, Any], tmp_path: Path) -> None:
    arch = f"{method}_transformer"
    model, values = tiny_model(arch, **values)
    with torch.no_grad():
        for residual in residuals(model).values():
            if isinstance(getattr(residual, "omega", None), nn.Parameter):
                residual.omega.copy_(random_in(0.5, 2.0, residual.omega))
    stock = folded(tmp_path, arch, model, values)
    assert_same(model, stock)
    # The fold is not empty: the matrices of the queries have taken one over the scale.
    first = model.encoder.layers[0]
    ratio = first.self_attn.q_proj.weight / stock.encoder.layers[0].self_attn.q_proj.weight
    torch.testing.assert_close(ratio, first.self_attn_residual.stream_scale().expand_as(ratio), rtol=1e-5, atol=0)


def test_branch_norm_folds_once_it_has_its_full_size(tmp_path: Path) -> None:
    model, values = tiny_model("branch_norm_transformer", branch_norm_updates="10")
    with pytest.raises(UserError, match="it does more than scale the stream and add the branch"):
        folded(tmp_path, "branch_norm_transformer", model, values)
    model.set_num_updates(10)
    assert_same(model, folded(tmp_path, "branch_norm_transformer", model, values))


def test_layernorm_scaling_has_the_weights_of_pre_ln_and_folds_into_it(tmp_path: Path) -> None:
    model, values = tiny_model("layernorm_scaling_transformer")
    assert model.state_dict().keys() == tiny("pre_ln_transformer").state_dict().keys()
    stock = folded(tmp_path, "layernorm_scaling_transformer", model, values)
    assert_same(model, stock)
    for mine, theirs in zip(model.decoder.layers, stock.decoder.layers, strict=True):
        for name in ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"):
            for one, other in zip(getattr(theirs, name).parameters(), getattr(mine, name).parameters(), strict=True):
                torch.testing.assert_close(one, other / math.sqrt(mine.depth))


def test_layer_scale_folds_into_pre_ln(tmp_path: Path) -> None:
    model, values = tiny_model("layer_scale_transformer", layer_scale_start="0.5")
    with torch.no_grad():
        for residual in residuals(model).values():
            residual.alpha.copy_(random_in(0.5, 2.0, residual.alpha))
    stock = folded(tmp_path, "layer_scale_transformer", model, values)
    assert_same(model, stock)
    ratio = stock.encoder.layers[0].fc2.bias / model.encoder.layers[0].fc2.bias
    torch.testing.assert_close(ratio, model.encoder.layers[0].ffn_residual.alpha)


FIXED: list[dict[str, Any]] = [
    {},
    {"share_all_embeddings": True},
    {"norm_position": "post", "residual": "admin", "share_all_embeddings": True},
]


@pytest.mark.parametrize("values", FIXED, ids=str)
def test_fix_norm_folds_into_stored_unit_vectors(values: dict[str, Any], tmp_path: Path) -> None:
    """Admin's scale, which then goes into the table of words, stretches them."""
    model, values = tiny_model("scale_norm_transformer", norm_type="layer_norm", **values)
    stock = folded(tmp_path, "scale_norm_transformer", model, values)
    assert_same(model, stock)
    tables = [stock.decoder.output_projection.weight]
    tables += [] if "residual" in values else [stock.encoder.embed_tokens.weight, stock.decoder.embed_tokens.weight]
    for table in tables:
        lengths = table.norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths).index_fill(0, torch.tensor([1]), lengths[1]))


def test_completep_folds_into_pre_ln(tmp_path: Path) -> None:
    model, values = tiny_model("completep_transformer", depth_mup_base="1")
    stock = folded(tmp_path, "completep_transformer", model, values)
    assert_same(model, stock)
    last, ours = stock.encoder.layers[0].fc2.weight, model.encoder.layers[0].fc2.weight
    torch.testing.assert_close(last, ours / len(model.encoder.layers))
