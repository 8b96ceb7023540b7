"""Norms on the heads of an attention: QK-norm and HybridNorm."""

from __future__ import annotations

import pytest

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.method import PARTS, Axis
from fairseq_plugins.search.step_attention import has_steps
from tests.models import tiny


@pytest.mark.parametrize(("attention", "normed"), [("qk_norm", ["q_proj", "k_proj"]), ("qkv_norm", None)])
def test_which_maps_have_a_norm(attention: str, normed: list[str] | None) -> None:
    model = tiny("deep_transformer", attention=attention)
    attentions = [one for one in model.modules() if isinstance(one, Attention)]
    assert len(attentions) == 3 + 2 * 2
    for one in attentions:
        assert has_steps(one), "the search has steps for it"
        names = [name for name in ("q_proj", "k_proj", "v_proj", "out_proj") if hasattr(getattr(one, name), "norm")]
        assert names == (normed or ["q_proj", "k_proj", "v_proj"])
        assert all(getattr(one, name).norm.weight.shape == (8,) for name in names)  # 16 / 2 heads


def test_the_norm_of_the_heads_is_the_norm_module() -> None:
    for module in PARTS[Axis.NORM_MODULE]:
        model = tiny("deep_transformer", norm="pre", attention="qk_norm", norm_module=module)
        kinds = {type(one.q_proj.norm) for one in model.modules() if isinstance(one, Attention)}
        assert kinds == {type(model.encoder.layers[0].final_layer_norm)}
