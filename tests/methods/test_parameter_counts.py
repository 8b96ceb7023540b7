"""Numbers of parameters that papers, public logs and arithmetic give; no model here is given memory."""

from tests.models import count

JOINED = {"share_all_embeddings": True}
TIED = {"share_decoder_input_output_embed": True}


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
