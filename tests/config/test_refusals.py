"""What cannot be built is refused before a module is built: one line a problem, all problems together, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.errors import UserError
from tests.building import TINY, settings, tiny, translation_task

ROOT = Path(__file__).resolve().parents[2]


def problems(arch: str = "deep_transformer", **values: Any) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        tiny(arch, **values)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"norm": "pst"}, "unknown value of --norm 'pst' (did you mean 'post'?); legal values: "),
        ({"norm": "pre,pots"}, "unknown value of --norm 'pots' (did you mean 'post'?); legal values: "),
        ({"attention": "mat"}, "unknown value of --attention 'mat' (did you mean 'matt'?); legal values: "),
        ({"base_init": "xaver"}, "unknown value of --base-init 'xaver' (did you mean 'xavier'?); legal values: "),
        (
            {"admin_profile": "relesed"},
            "unknown value of --admin-profile 'relesed' (did you mean 'released'?); legal values: ",
        ),
        ({"b2t_init_scale": "0.2"}, "unknown value of --b2t-init-scale '0.2' (did you mean '0.1'?); legal values: "),
        ({"ds_init_alpha": "one"}, "--ds-init-alpha takes a number, not 'one'"),
        ({"ds_init_alpha": "1,two"}, "--ds-init-alpha takes a number, not 'two'"),
        ({"rezero_alpha": "nan"}, "--rezero-alpha takes a number, not 'nan'"),
        ({"rezero_alpha": "inf"}, "--rezero-alpha takes a number, not 'inf'"),
        ({"norm": "pre,post,pre"}, "--norm takes one value or ENCODER,DECODER, not 3 values"),
    ],
    ids=str,
)
def test_values(values: dict[str, Any], message: str) -> None:
    (problem,) = problems(**values)
    # A method that is added later adds legal values.
    assert problem.startswith(message) if message.endswith("legal values: ") else problem == message


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"norm": "none", "layernorm_embedding": True}, ("--norm none", "--layernorm-embedding")),
        ({"norm": "post,none", "layernorm_embedding": True}, ("--norm none", "--layernorm-embedding")),
        ({"attention": "matt", "encoder_embed_dim": 8}, ("matt", "--encoder-embed-dim 8", "--decoder-embed-dim 16")),
        ({"attention": "matt", "no_cross_attention": True}, ("matt", "--no-cross-attention")),
        ({"residual": "b2t", "norm": "pre"}, ("--residual b2t", "--norm pre", "--norm post or none")),
        ({"residual": "b2t", "norm": "none", "b2t_skip": "all"}, ("--b2t-skip all", "--norm none")),
        ({"residual": "b2t", "norm": "none,post", "b2t_skip": "all,residual"}, ("--b2t-skip all", "--norm none")),
        ({"residual": "admin", "norm": "pre"}, ("--residual admin", "--norm post", "not pre")),
        ({"residual": "plain,admin", "norm": "post,none"}, ("--residual admin", "--norm post", "not none")),
        ({"residual": "b2t", "b2t_init_scale": "layers"}, ("--b2t-init-scale", "no effect", "--init b2t")),
        ({"rezero_alpha": "0.0,1"}, ("--rezero-alpha", "no effect", "--residual rezero")),
        ({"dropout": 1.5}, ("--dropout", "below 1", "not 1.5")),
        ({"decoder_layerdrop": -0.1}, ("--decoder-layerdrop", "at least 0", "not -0.1")),
        ({"encoder_normalize_before": True}, ("--encoder-normalize-before", "--norm post", "--norm pre")),
        ({"decoder_normalize_before": True, "norm": "pre,none"}, ("--decoder-normalize-before", "--norm pre,none")),
        ({"encoder_layers": 0}, ("--encoder-layers", "at least 1", "not 0")),
        ({"decoder_layers": -2}, ("--decoder-layers", "at least 1", "not -2")),
        ({"decoder_ffn_embed_dim": 0}, ("--decoder-ffn-embed-dim", "at least 1")),
        ({"encoder_attention_heads": 3}, ("--encoder-embed-dim 16", "multiple", "--encoder-attention-heads 3")),
        ({"decoder_attention_heads": 0}, ("--decoder-embed-dim 16", "multiple", "--decoder-attention-heads 0")),
        (
            {"share_all_embeddings": True, "encoder_embed_dim": 8},
            ("--share-all-embeddings", "--encoder-embed-dim 8", "--decoder-embed-dim 16"),
        ),
        (
            {"share_all_embeddings": True, "decoder_embed_path": "vectors.txt"},
            ("--share-all-embeddings", "--decoder-embed-path", "--encoder-embed-path"),
        ),
        ({"base_layers": 1}, ("--base-layers", "not supported")),
        ({"cross_self_attention": True}, ("--cross-self-attention", "not supported")),
        ({"quant_noise_pq": 0.1}, ("--quant-noise-pq", "not supported")),
        ({"encoder_xformers_att_config": "{}"}, ("--encoder-xformers-att-config", "not supported")),
    ],
    ids=str,
)
def test_conflicts(values: dict[str, Any], words: tuple[str, ...]) -> None:
    (problem,) = problems(**values)
    assert [word for word in words if word not in problem] == []


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
    found = problems(
        norm="pst",
        residual="admn,plain",
        init="ds-init",
        admin_omega="fixed",
        rezero_alpha="zero",
        encoder_layers=0,
        decoder_attention_heads=3,
        base_layers=2,
    )
    flags = (
        "--norm",
        "--residual",
        "--init",
        "--admin-omega",
        "--rezero-alpha",
        "--encoder-layers",
        "--decoder-attention-heads",
        "--base-layers",
    )
    assert len(found) == len(flags)
    assert [flag for flag in flags if not any(flag in problem for problem in found)] == []


def test_the_architecture_refuses_before_fairseq_reads_data() -> None:
    """So that ``fairseq-train`` says it at once and not after minutes of loading."""
    with pytest.raises(UserError, match="did you mean 'none'"):
        settings("admin_transformer", norm="non")


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
    assert lines[0].startswith("error: unknown value of --norm 'pst' (did you mean 'post'?); legal values: ")
    assert lines[1] == "error: --ds-init-alpha takes a number, not 'x'"
    assert "Traceback" not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []
