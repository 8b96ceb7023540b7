"""Methods refuse combinations that their papers do not cover, and numbers that make no sense, in one line."""

from typing import Any

from tests.config.test_refusals import problems

MIXES = "--layer-aggregation dlcl mixes outputs of LayerNorms: it needs --norm-position pre or post, not"
MERGED = "is part of the cross-attention, which language models and --no-cross-attention lack: use"
MAPS = "--reparam sigma needs plain linear maps, and"
MIRRORS = "--init looklinear mirrors one half of the feed-forward width in the other:"
TANH = "--init looklinear cannot make a feed-forward sub-layer with --activation-fn tanh linear"
APART = "--base-init xavier_apart applies to the cross-attention, and this model has none: use --base-init xavier"
ON_TOP = "--norm-on-top has no effect here: it belongs to --norm-position branch and"
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    *(
        (one, {"norm_position": norm}, f"a LayerNorm after each sum: use --norm-position {wanted}, not {norm}")
        for one, wanted in (
            *((one, "post") for one in ("admin", "admin_torch", "deepnet", "resi_dual", "span_norm")),
            *(("keel", "keel or post"), ("siamese_norm", "siamese or post")),
        )
        for norm in ("pre", "none", "branch", "peri", "sub")
    ),
    *(("deep", {"norm_position": at, "norm_type": "dyt"}, "--norm-type dyt has no effect") for at in ("none", "fixup")),
    *(("deep", {"attention": one, "no_cross_attention": True}, MERGED) for one in ("matt", "matt_self", "matt_aan")),
    *((m, {"norm_position": "post"}, "it needs --norm-position pre, not post") for m in ("mhc", "attention_residuals")),
    ("mhc", {"norm_position": "mix", "mix_post": "0.5"}, "it needs --norm-position pre, not mix"),
    (
        "hyper_connections",
        {"layer_aggregation": "dlcl"},
        "hyper has streams of its own: it needs --layer-aggregation last, not dlcl",
    ),
    ("hyper_connections", {"hyper_streams": "0"}, "--hyper-streams must be at least 1, not 0"),
    ("attention_residuals", {"attention_residual_blocks": "-1"}, "-residual-blocks must be at least 0, not -1"),
    ("cosine_attention", {"cosine_length": "1"}, "--cosine-length must be at least 2, not 1"),
    ("rms_norm", {"rms_norm_epsilon": 0.0}, "--rms-norm-epsilon must be at least 1e-30, not 0"),
    ("scale_norm", {"adaptive_softmax_cutoff": "8"}, "rows of one table: drop --adaptive-softmax-cutoff"),
    ("deep", {"norm_position": "none", "norm_type": "scale_norm"}, "--norm-type scale_norm has no effect"),
    ("deepscale", {"encoder_embed_path": "x"}, "draws the embeddings: it cannot be combined with --encoder-embed-path"),
    ("dlcl", {"encoder_layers_to_keep": "0"}, "every layer's output: it cannot be combined with --encoder-layers-to"),
    ("pcformer", {"encoder_layers_to_keep": "0"}, "every layer's output, and cannot be combined with --encoder-layers"),
    ("deep", {"adaptive_softmax_dropout": 0.3}, "--adaptive-softmax-dropout has no effect without --adaptive-softmax-"),
    ("deep", {"adaptive_input": True}, "--adaptive-input is a setting of language models"),
    ("sub_ln", {"attention": "aan"}, "in front of out_proj, which with --attention aan and --bias vector is not"),
    ("sub_ln", {"bias": "fixup"}, "in front of fc2, which with --attention softmax and --bias fixup is not"),
    ("deep", {"norm_position": "sub", "reparam": "sigma"}, MAPS),
    ("deep", {"norm_position": "fixup", "bias": "fixup", "reparam": "sigma"}, MAPS),
    ("deep", {"norm_position": "pre", "attention": "qk_norm", "reparam": "sigma"}, MAPS),
    ("deep", {"base_init": "xavier_apart", "no_cross_attention": True}, APART),
    *((one, {"norm_on_top": "yes"}, ON_TOP) for one in ("post_ln", "pre_ln", "admin")),
    ("branch_norm", {"branch_norm_updates": "0"}, "--branch-norm-updates must be at least 1, not 0"),
    ("deepscale", {"deepscale_k": 0.0}, "--deepscale-k must be at least 1e-06, not 0"),
    ("denseformer", {"denseformer_dilation": "0"}, "--denseformer-dilation must be at least 1, not 0"),
    ("denseformer", {"denseformer_period": "-1"}, "--denseformer-period must be at least 1, not -1"),
    ("denseformer", {"denseformer_period": "3"}, "--denseformer-period 3 is more than the 2 layers of the decoder"),
    ("denseformer", {"encoder_layerdrop": 0.1}, "needs every layer's output"),
    ("deep", {"solver": "ode"}, "use it in the encoder alone, --solver ode,euler"),
    ("resi_dual", {"solver": "ode,euler"}, "keeps one stream: it cannot be combined with --residual resi_dual"),
    ("ode_rk4", {"ode_coefficients": "trained"}, "--ode-coefficients has no effect here: it belongs to --solver ode"),
    ("pcformer", {"norm_position": "post"}, "it needs --norm-position pre, not post"),
    ("pcformer", {"layer_aggregation": "dlcl"}, "it needs --layer-aggregation last, not dlcl"),
    ("pcformer", {"encoder_layerdrop": 0.1}, "needs every layer's output"),
    ("dlcl", {"norm_position": "none"}, f"{MIXES} none"),
    ("dlcl", {"norm_position": "pre,branch"}, f"{MIXES} branch"),
    ("dlcl", {"dlcl_window": "-1"}, "--dlcl-window must be at least 0, not -1"),
    ("dlcl", {"dlcl_window": "1.5"}, "--dlcl-window takes a number, not '1.5'"),
    ("dlcl", {"dlcl_normalised": "yes", "dlcl_init": "one"}, "drop --dlcl-init one"),
    ("dlcl", {"dlcl_normalised": "yes", "dlcl_window": "1"}, "--dlcl-window 1 leaves each mixture one weight"),
    ("dlcl", {"encoder_layerdrop": 0.1}, "it cannot be combined with --encoder-layerdrop"),
    ("gtrans", {"gtrans_group": "2"}, "--gtrans-group must divide the 3 layers of the encoder, not 2"),
    ("completep", {"depth_mup_alpha": 0.4}, "--depth-mup-alpha must be at least 0.5, not 0.4"),
    ("completep", {"depth_mup_base": "0"}, "--depth-mup-base must be at least 1, not 0"),
    ("fixup", {"layernorm_embedding": True}, "--norm-position fixup leaves no LayerNorm, but --layernorm-embedding"),
    ("looklinear", {"activation_fn": "tanh"}, f"{TANH}: use one of relu, gelu, gelu_fast, gelu_accurate, linear"),
    ("looklinear", {"encoder_ffn_embed_dim": 33}, f"{MIRRORS} --encoder-ffn-embed-dim 33 must be even"),
    ("looklinear", {"decoder_ffn_embed_dim": 33}, f"{MIRRORS} --decoder-ffn-embed-dim 33 must be even"),
    ("post_ln", {"aan_ffn": "yes"}, "--aan-ffn has no effect here: it belongs to --attention aan"),
    ("aan", {"aan_ffn": "ye"}, "unknown value of --aan-ffn 'ye'"),
]


def test_what_makes_no_sense_is_refused_by_name() -> None:
    wrong = []
    for method, values, words in REFUSALS:
        lines = problems(f"{method}_transformer", **values)
        wrong += [] if any(words in line for line in lines) else [f"{method} {values}: {lines}"]
    assert wrong == []


def test_a_language_model_has_no_published_rule_of_t_fixup() -> None:
    wanted = ("--init t_fixup has no published rule for a language model: choose another --init",)
    assert problems("t_fixup_transformer_lm") == problems("deep_transformer_lm", init="t_fixup", norm="none") == wanted


def test_what_the_other_stack_chooses_does_not_matter() -> None:
    for method, values in (
        ("deepnet", {"norm_position": "post,pre", "residual": "deepnorm,plain"}),
        ("looklinear", {"encoder_ffn_embed_dim": 33, "init": "keep,looklinear"}),
        ("looklinear", {"decoder_ffn_embed_dim": 33, "init": "looklinear,keep"}),
    ):
        assert problems(f"{method}_transformer", **values) == (), method
