"""Methods that stock fairseq computes once they are folded, and what the fold has done to them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.errors import UserError
from tests.checkpoints.test_fold import assert_same, folded, random_in, tiny_model

SCALED: list[tuple[str, dict[str, Any]]] = [
    ("deepnet", {}),
    ("deepnet", {"residual": "deepnorm,plain"}),
    ("deepnet", {"encoder_layers_to_keep": "0,1"}),
    ("admin_torch", {}),
    ("admin_torch", {"admin_torch_omega": "trained"}),
    ("admin_torch", {"admin_torch_omega": "trained,fixed", "decoder_learned_pos": True}),
    ("layernorm_scaling", {}),
    ("layer_scale", {"layer_scale_start": "0.5"}),
    ("completep", {"depth_mup_base": "1"}),
]
"""Tables and embeddings are those of Admin, in ``tests/checkpoints/test_fold.py``."""


@pytest.mark.parametrize(("method", "values"), SCALED, ids=str)
def test_stock_computes_the_same_without_the_factors(method: str, values: dict[str, Any], tmp_path: Path) -> None:
    model, values = tiny_model(f"{method}_transformer", **values)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("_residual.omega", "_residual.alpha")):
                parameter.copy_(random_in(0.5, 2.0, parameter))
    assert_same(model, folded(tmp_path, f"{method}_transformer", model, values))


def test_branch_norm_folds_once_it_has_its_full_size(tmp_path: Path) -> None:
    model, values = tiny_model("branch_norm_transformer", branch_norm_updates="10")
    with pytest.raises(UserError, match="it does more than scale the stream and add the branch"):
        folded(tmp_path, "branch_norm_transformer", model, values)
    model.set_num_updates(10)
    assert_same(model, folded(tmp_path, "branch_norm_transformer", model, values))


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
