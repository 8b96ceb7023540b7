"""Impossible models are refused before a module is built: one line a problem, all problems together, exit code 2."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fairseq_cli import train

from fairseq_plugins.process import users_mistake
from tests.models import tiny
from tests.refusals import problems_of

PST = "unknown value of --norm-position 'pst' (did you mean 'post'?)"
MISTAKES = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))
KEEPP = "unknown value of --init 'keepp' (did you mean 'keep'?)"


def problems(arch: str = "deep_transformer", **values: Any) -> tuple[str, ...]:
    """The lines that refuse a model; none if it is built."""
    try:
        tiny(arch, **values)
    except Exception as error:
        mistake = users_mistake(error)
        if mistake is None:
            raise
        return mistake.problems
    return ()


@pytest.mark.parametrize("arch", MISTAKES)
def test_a_mistake_is_refused_in_one_line_that_names_it(arch: str) -> None:
    wrong = []
    for mistake in MISTAKES[arch]:
        lines = problems(arch, **mistake["settings"])
        if len(lines) != 1 or "\n" in lines[0] or [word for word in mistake["words"] if word not in lines[0]]:
            wrong.append(f"{mistake}: {lines}")
    assert wrong == []


def test_what_only_the_other_stack_would_object_to_is_legal() -> None:
    model = tiny("deep_transformer", residual="b2t", norm_position="none,post", b2t_skip="residual,all")
    assert model.encoder.layers[0].final_layer_norm is None


def test_normalize_before_is_stocks_word_for_norm_pre() -> None:
    both = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    assert tiny("pre_ln_transformer", **both).state_dict().keys() == tiny("pre_ln_transformer").state_dict().keys()


def test_all_problems_are_reported_together_before_a_module_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a module was built")

    monkeypatch.setattr("torch.nn.Module.__init__", never)
    wrong = {
        "norm_position": "pst",
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
    language_model = "language_modeling --arch admin_transformer_lm --norm-position pst --init keep,keepp"
    speech = "speech_to_text --arch b2t_s2t_transformer_s --norm-position pst --conv-channels 7"
    for flags, lines in ((language_model, [PST, KEEPP, one_value]), (speech, [odd, PST])):
        monkeypatch.setattr(sys, "argv", ["fairseq-train", "nowhere", "--optimizer", "adam", "--task", *flags.split()])
        assert [problem.split(";")[0] for problem in problems_of(train.cli_main)] == lines
