"""Numbers of parameters that papers, public logs and arithmetic give; no model here is given memory."""

from typing import Any

from tests.models import count

JOINED = {"share_all_embeddings": True}
TIED = {"share_decoder_input_output_embed": True}
BASE = 44_138_496
"""Both stacks of Post-LN with six layers each, width 512, without the embeddings."""
NORMS = 6 * 2 * 2 * 512 + 6 * 3 * 2 * 512
"""All its LayerNorms."""
GATE = 4 * 512**2 + 2 * 512
ATTENTION = 4 * 512**2 + 4 * 512
NETWORK = 2 * 512 * 2048 + 2048 + 512


def stacks(arch: str, **values: Any) -> int:
    """Parameters of both stacks without the embeddings; width 512."""
    return count(arch, **JOINED, **values) - 44 * 512


STACKS: list[tuple[str, dict[str, Any], int]] = [
    ("post_ln_transformer_iwslt_de_en", {}, 31_543_296),
    ("post_ln_transformer", {}, BASE),
    ("post_ln_transformer_12", {}, 88_276_992),
    ("post_ln_transformer_wmt_en_de_60_12", {}, 239_591_424),
    # One more norm on each stack, and on one.
    ("pre_ln_transformer", {}, BASE + 2 * 2 * 512),
    ("post_ln_transformer", {"norm_position": "post,pre"}, BASE + 2 * 512),
    # An omega at each residual connection.
    ("admin_transformer", {}, BASE + 15_360),
    ("admin_transformer_60_12", {}, 239_591_424 + 79_872),
    ("admin_transformer", {"admin_omega": "frozen"}, BASE),
    ("admin_transformer", {"admin_scale": "scalar"}, BASE + 2 * 6 + 3 * 6),
    ("admin_torch_transformer", {}, BASE),
    ("admin_torch_transformer", {"admin_torch_omega": "trained"}, BASE + 30 * 512),
    ("admin_torch_transformer_60_12", {"admin_torch_omega": "trained"}, 239_591_424 + 156 * 512),
    # No parameters of their own.
    ("ds_init_transformer", {}, BASE),
    ("t_fixup_transformer", {}, BASE - NORMS),
    # One scalar a layer or a sub-layer, and no LayerNorm.
    ("rezero_transformer", {}, BASE - NORMS + 12),
    ("rezero_transformer", {"rezero_alpha_per": "sublayer"}, BASE - NORMS + 6 * 2 + 6 * 3),
    ("rezero_post_ln_transformer", {}, BASE + 12),
    # Merged attention saves 4 d^2 + 6 d a layer; with an attention of its own beside it a LayerNorm.
    ("dsinit_matt_transformer", {}, BASE - 6 * 1_051_648),
    ("dsinit_matt_self_transformer", {}, BASE - 6 * 1024),
    ("dsinit_matt_aan_transformer", {}, BASE - 6 * (1024 + 1024)),
    ("aan_transformer", {}, BASE - 6 * (ATTENTION - GATE)),
    ("aan_transformer", {"aan_ffn": "yes"}, BASE - 6 * (ATTENTION - GATE) + 6 * NETWORK),
    # A matrix (L + 1)^2 and L LayerNorms in a stack.
    ("dlcl_post_ln_transformer", {}, BASE + 2 * (49 + 6144)),
    ("dlcl_post_ln_transformer", {"dlcl_weights": "dimension"}, BASE + 2 * (49 * 512 + 6144)),
    ("dlcl_transformer", {}, BASE + 2 * 2 * 512 + 2 * (49 + 6144)),
]


def test_both_stacks_without_embeddings() -> None:
    found = {f"{arch} {values}": stacks(arch, **values) for arch, values, _ in STACKS}
    expected = {f"{arch} {values}": number for arch, values, number in STACKS}
    assert found == expected


def test_whole_models() -> None:
    """With a joined dictionary of 32,768 words for WMT'14, and those of IWSLT'14; DLCL's deep encoder adds the rest."""
    wmt = {"": 60_915_712, "_12": 105_054_208, "_18": 149_192_704, "_60_12": 256_368_640, "_big": 209_911_808}
    for suffix, expected in wmt.items():
        assert count(f"post_ln_transformer_wmt_en_de{suffix}", 32768, 32768, **JOINED) == expected
    iwslt = "transformer_iwslt_de_en"
    assert count(f"post_ln_{iwslt}", 8848, 6632, **TIED) == 39_469_056
    assert count(f"post_ln_{iwslt}", 8848, 6640, **TIED) == 39_473_152
    assert count(f"post_ln_{iwslt}", 8848, 6632) == 42_864_640
    assert count(f"admin_{iwslt}", 10_152, 10_152, **JOINED) == 36_741_120 + 15_360
    deep = {**JOINED, "encoder_layers": 30}
    for method, plain in (("dlcl", "pre_ln"), ("dlcl_post_ln", "post_ln")):
        more = count(f"{method}_transformer", **deep) - count(f"{plain}_transformer", **deep)
        assert more == 31**2 + 2 * 512 * 30 + 49 + 6144


def test_models_of_the_dlcl_paper() -> None:
    """Deep encoders, a decoder of six layers and about 33,700 types shared by all embeddings, WMT16 En-De."""
    models = {("pre_ln", 20): (106, 105.5), ("dlcl_post_ln", 25): (121, 121.3), ("dlcl", 30): (137, 137.1)}
    for (arch, layers), (printed, exact) in models.items():
        size = count(f"{arch}_transformer_wmt_en_de", 33_700, 33_700, **JOINED, encoder_layers=layers) / 1e6
        assert (round(size), round(size, 1)) == (printed, exact), arch
