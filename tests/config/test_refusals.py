"""What cannot be built is refused before a module is built: one line a problem, all problems together, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fairseq_cli import train

from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.errors import UserError
from tests.models import TINY, settings, tiny
from tests.models import task as translation_task

ROOT = Path(__file__).resolve().parents[2]
LEGAL = "; legal values: "
PST = "unknown value of --norm 'pst' (did you mean 'post'?)"
KEEPP = "unknown value of --init 'keepp' (did you mean 'keep'?)"
ADAPTIVE = {"adaptive_input": True, "adaptive_input_cutoff": "10"}
CHARACTERS = {"character_embeddings": True}
TIED = {"share_decoder_input_output_embed": True}
REZERO = {"residual": "rezero", "norm": "none"}

MISTAKES: dict[str, list[tuple[dict[str, Any], tuple[str, ...]]]] = {
    "deep_transformer": [
        ({"norm": "pst"}, (PST + LEGAL,)),
        ({"admin_profile": "relesed"}, ("unknown value of --admin-profile", "(did you mean 'released'?)", LEGAL)),
        ({"b2t_init_scale": "0.2"}, (f"unknown value of --b2t-init-scale '0.2' (did you mean '0.1'?){LEGAL}",)),
        ({"ds_init_alpha": "1,two"}, ("--ds-init-alpha takes a number, not 'two'",)),
        ({"rezero_alpha": "nan"}, ("--rezero-alpha takes a number, not 'nan'",)),
        ({"norm": "pre,post,pre"}, ("--norm takes one value or ENCODER,DECODER, not 3 values",)),
        ({"norm": "none", "layernorm_embedding": True}, ("--norm none", "--layernorm-embedding")),
        ({"attention": "matt", "encoder_embed_dim": 8}, ("matt", "--encoder-embed-dim 8", "--decoder-embed-dim 16")),
        ({"attention": "matt", "no_cross_attention": True}, ("matt", "--no-cross-attention")),
        ({"residual": "b2t", "norm": "pre"}, ("--residual b2t", "--norm pre", "--norm post or none")),
        ({"residual": "b2t", "norm": "none,post", "b2t_skip": "all,residual"}, ("--b2t-skip all", "--norm none")),
        ({"residual": "admin", "norm": "pre"}, ("--residual admin", "--norm post", "not pre")),
        ({"residual": "plain,admin", "norm": "post,none"}, ("--residual admin", "--norm post", "not none")),
        ({"residual": "b2t", "b2t_init_scale": "layers"}, ("--b2t-init-scale", "no effect", "--init b2t")),
        ({"rezero_alpha": "0.0,1"}, ("--rezero-alpha", "no effect", "--residual rezero")),
        ({"dropout": 1.5}, ("--dropout", "below 1", "not 1.5")),
        ({"embedding_dropout": 1.0}, ("--embedding-dropout must be at least 0 and below 1, not 1.0",)),
        ({"decoder_layerdrop": -0.1}, ("--decoder-layerdrop", "at least 0", "not -0.1")),
        ({"word_dropout": "0.1,1.5"}, ("--word-dropout", "not 1.5")),
        ({"encoder_normalize_before": True}, ("--encoder-normalize-before", "--norm post", "--norm pre")),
        ({"decoder_normalize_before": True, "norm": "pre,none"}, ("--decoder-normalize-before", "--norm pre,none")),
        ({"encoder_layers": 0}, ("--encoder-layers", "at least 1", "not 0")),
        ({"encoder_attention_heads": 3}, ("--encoder-embed-dim 16", "multiple", "--encoder-attention-heads 3")),
        ({"share_all_embeddings": True, "encoder_embed_dim": 8}, ("--share-all-embeddings", "--encoder-embed-dim 8")),
        ({"share_all_embeddings": True, "decoder_embed_path": "vectors"}, ("--decoder-embed-path must equal",)),
        ({"base_layers": 1}, ("--base-layers is not supported",)),
        ({"cross_self_attention": True}, ("--cross-self-attention is not supported",)),
        ({"quant_noise_pq": 0.1}, ("--quant-noise-pq is not supported",)),
        ({"encoder_xformers_att_config": "{}"}, ("--encoder-xformers-att-config is not supported",)),
    ],
    "deep_transformer_lm": [
        ({"norm": "post,pre"}, ("--norm takes one value here, not post,pre", "only a decoder")),
        ({**REZERO, "rezero_alpha": "0,1"}, ("--rezero-alpha takes one value here",)),
        ({"attention": "matt"}, ("--attention matt", "cross-attention")),
        ({"norm": "none", "layernorm_embedding": True}, ("--norm none", "--layernorm-embedding")),
        ({"decoder_layers": 0}, ("--decoder-layers", "at least 1")),
        ({"decoder_normalize_before": True}, ("--decoder-normalize-before", "--norm pre")),
        ({"scale_heads": True}, ("--scale-heads is not supported",)),
        ({"adaptive_input": True}, ("--adaptive-input needs --adaptive-input-cutoff",)),
        ({"adaptive_softmax_cutoff": "20,10"}, ("--adaptive-softmax-cutoff", "increasing numbers", "'20,10'")),
        ({"adaptive_softmax_cutoff": "20,50"}, ("--adaptive-softmax-cutoff 20,50", "44 words")),
        ({"adaptive_input": True, "adaptive_input_cutoff": "50"}, ("--adaptive-input-cutoff 50", "44 words")),
        ({"tie_adaptive_weights": True}, ("--tie-adaptive-weights needs --adaptive-input",)),
        ({"tie_adaptive_proj": True}, ("--tie-adaptive-proj", "no effect", "--tie-adaptive-weights")),
        (
            {**ADAPTIVE, "tie_adaptive_weights": True, "adaptive_softmax_cutoff": "12"},
            ("--adaptive-input-cutoff 10", "--adaptive-softmax-cutoff 12"),
        ),
        ({**TIED, "adaptive_softmax_cutoff": "10"}, ("--share-decoder-input-output", "--adaptive-softmax-cutoff")),
        ({**TIED, "decoder_input_dim": 8}, ("--decoder-input-dim 8", "--decoder-output-dim 16")),
        ({**CHARACTERS, **ADAPTIVE}, ("--character-embeddings and --adaptive-input",)),
        ({**CHARACTERS, "character_filters": "[(1, 64"}, ("--character-filters", "[(1, 64), (2, 128)]", "'[(1, 64'")),
        ({**CHARACTERS, "character_filters": "[(1, 0)]"}, ("--character-filters", "not '[(1, 0)]'")),
        ({**CHARACTERS, "character_filters": "64"}, ("--character-filters", "not '64'")),
        ({"no_weight_decay_on": "norms"}, ("--no-weight-decay-on", "did you mean 'norm'")),
    ],
    "deep_s2t_transformer": [
        ({"attention": "matt", "decoder_embed_dim": 8}, ("--encoder-embed-dim 16", "--decoder-embed-dim 8")),
        ({"encoder_attention_heads": 3}, ("--encoder-embed-dim 16", "--encoder-attention-heads 3")),
        ({"conv_kernel_sizes": "5,x"}, ("--conv-kernel-sizes", "positive numbers", "'5,x'")),
        ({"conv_channels": 7}, ("--conv-channels must be even", "not 7")),
        ({"word_dropout": "0.1,0.2"}, ("--word-dropout takes a single value here", "no word embeddings")),
    ],
}
"""Settings of a tiny model of each family, and words of the one line that refuses them."""


def problems(arch: str = "deep_transformer", **values: Any) -> tuple[str, ...]:
    """The lines that refuse a model; none if it is built."""
    try:
        tiny(arch, **values)
    except UserError as error:
        return error.problems
    return ()


@pytest.mark.parametrize("arch", MISTAKES)
def test_a_mistake_is_refused_in_one_line_that_names_it(arch: str) -> None:
    wrong = []
    for values, words in MISTAKES[arch]:
        lines = problems(arch, **values)
        if len(lines) != 1 or "\n" in lines[0] or [word for word in words if word not in lines[0]]:
            wrong.append(f"{values}: {lines}")
    assert wrong == []


def test_what_only_the_other_stack_would_object_to_is_legal() -> None:
    assert tiny("deep_transformer", attention="matt,softmax", encoder_embed_dim=8).decoder.layers[0].self_attn
    model = tiny("deep_transformer", residual="b2t", norm="none,post", b2t_skip="residual,all")
    assert model.encoder.layers[0].final_layer_norm is None


def test_normalize_before_is_stocks_word_for_norm_pre() -> None:
    both = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    assert tiny("pre_ln_transformer", **both).state_dict().keys() == tiny("pre_ln_transformer").state_dict().keys()


def test_one_dictionary_for_shared_embeddings() -> None:
    config = settings("deep_transformer", **TINY, share_all_embeddings=True)
    with pytest.raises(UserError, match="--share-all-embeddings .* fairseq-preprocess with --joined-dictionary"):
        DeepTransformerModel.build_model(config, translation_task(44, 45))


def test_all_problems_are_reported_together_before_a_module_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a module was built")

    monkeypatch.setattr("torch.nn.Module.__init__", never)
    wrong = {
        "norm": "pst",
        "residual": "admn,plain",
        "init": "ds-init",
        "admin_omega": "fixed",
        "rezero_alpha": "zero",
        "encoder_layers": 0,
        "decoder_attention_heads": 3,
        "base_layers": 2,
    }
    lines = problems(**wrong)
    assert len(lines) == len(wrong)
    flags = [f"--{name.replace('_', '-')}" for name in wrong]
    assert [flag for flag in flags if not any(flag in line for line in lines)] == []


def test_fairseq_train_refuses_before_it_reads_data(monkeypatch: pytest.MonkeyPatch) -> None:
    one_value = "--init takes one value here, not keep,keepp: the model has only a decoder"
    odd = "--conv-channels must be even, since its gate halves them, not 7"
    language_model = "language_modeling --arch admin_transformer_lm --norm pst --init keep,keepp"
    speech = "speech_to_text --arch b2t_s2t_transformer_s --norm pst --conv-channels 7"
    for flags, lines in ((language_model, [PST, KEEPP, one_value]), (speech, [odd, PST])):
        monkeypatch.setattr(sys, "argv", ["fairseq-train", "nowhere", "--optimizer", "adam", "--task", *flags.split()])
        with pytest.raises(UserError) as caught:
            train.cli_main()
        assert [problem.split(";")[0] for problem in caught.value.problems] == lines


def test_fairseq_train_ends_with_code_2_and_a_line_for_each_problem(tmp_path: Path) -> None:
    flags = ["--arch", "admin_transformer", "--norm", "pst", "--ds-init-alpha", "x", "--optimizer", "adam"]
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_cli.train", str(tmp_path), "--user-dir", str(ROOT / "fairseq_plugins"), *flags],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        check=False,
    )
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2
    assert lines[0].startswith(f"error: {PST}{LEGAL}")
    assert lines[1] == "error: --ds-init-alpha takes a number, not 'x'"
    assert "Traceback" not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []
