"""Lines for dictionaries, checkpoints and numbers that do not fit, and nothing for errors that the user cannot mend.

What the commands say of their options is in ``tests/cli/test_mistakes.py``.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FP16Optimizer
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from hydra.core.utils import JobReturn, JobStatus

from fairseq_plugins.errors import UserError
from tests import toy
from tests.refusals import line_of, problems_of

REMOVE = "; remove it"
DICTIONARIES = {
    b"a 3\nb\t3\n": "line 2: 'b\t3' is not a word and its count, separated by a space, not a tab",
    b"a 3\nb\n": "line 2: 'b' is not a word and its count",
    b"a 3\n\nb 3\n": "line 2: '' is not a word and its count",
    b"a 3\nb 1.5\n": "line 2: 'b 1.5' is not a word and its count",
    b"x" * 99: f"line 1: '{'x' * 80}' is not a word and its count",
    b"a 3\nb 2\na 1\n": f"line 3: the word 'a' is in line 1 already{REMOVE}",
    b"a 3\n<pad> 3\n": f"line 2: the word '<pad>' is one that fairseq adds itself{REMOVE}",
    b"a 3\nb\r3\n": "line 2: carriage return inside the line, where fairseq splits it; remove it",
    b"a 3\n\xff 3\n": "line 2: not UTF-8 (byte 0xff)",
    b"\xef\xbb\xbfa 3\n": "line 1: begins with a byte order mark; remove it",
}


def test_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    said = {}
    for content in DICTIONARIES:
        path.write_bytes(content)
        said[content] = line_of(Dictionary.load, str(path))
    assert said == {content: f"{path}: {line}" for content, line in DICTIONARIES.items()}
    path.write_text("a 3\nb c 2\n<pad> 1 #fairseq:overwrite\n", encoding="utf-8")
    assert Dictionary.load(str(path)).symbols[4:] == ["a", "b c", "<pad>"]


def test_a_checkpoint_of_a_deeper_and_wider_model(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    flags = ("--encoder-layers", "3", "--decoder-layers", "1", "--decoder-ffn-embed-dim", "48", "--max-update", "5")
    line = line_of(toy.train_toy, toy_data, tmp_path / "run", "--restore-file", str(toy_checkpoint), *flags)
    assert line is not None
    assert line.startswith(f"checkpoint {toy_checkpoint} is of another architecture or dictionary: ")
    assert 'Missing key(s) in state_dict: "encoder.layers.2.' in line
    assert 'Unexpected key(s) in state_dict: "decoder.layers.1.' in line
    assert "size mismatch for decoder.layers.0.fc1.weight: copying a param with shape torch.Size([32, 16])" in line


@pytest.mark.parametrize("kind", ["model", "task"])
def test_a_checkpoint_of_a_model_or_task_that_nobody_has_loaded(kind: str, toy_data: Path, tmp_path: Path) -> None:
    state = torch.load(toy.train_toy(toy_data, tmp_path, "--max-update", "1", arch="post_ln_transformer"))
    state["cfg"][kind]["_name"] = "mine"
    torch.save(state, tmp_path / "mine.pt")
    line = line_of(checkpoint_utils.load_model_ensemble, [str(tmp_path / "mine.pt")])
    assert line == f"the checkpoint's {kind} 'mine' is unknown: give the --user-dir that defines it"


def test_a_full_gpu_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    params = [torch.nn.Parameter(torch.zeros(2))]
    monkeypatch.setattr(torch.cuda, "current_device", mock.Mock(side_effect=RuntimeError("CUDA out of memory")))
    assert str(line_of(FP16Optimizer.build_fp32_params, None, params)).startswith("--fp16 needs a GPU")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert line_of(FP16Optimizer.build_fp32_params, None, params) is None


def test_a_task_without_data() -> None:
    line = line_of(TranslationTask.setup_task, TranslationConfig())
    assert str(line) == "task.data is not set: add +task.data=DIR to the command"


def test_a_failure_of_another_kind_keeps_its_trace(toy_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", mock.Mock(side_effect=RuntimeError("boom")))
    assert line_of(checkpoint_utils.load_model_ensemble, [str(toy_checkpoint)]) is None


def finished(status: JobStatus, value: object) -> JobReturn:
    job = JobReturn(overrides=[], status=status)
    job.return_value = value
    return job


def test_under_stock_hydra_only_a_user_error_ends_in_its_lines_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    failed = finished(JobStatus.FAILED, UserError(["first", "second"]))
    with pytest.raises(SystemExit) as end:
        _ = failed.return_value
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: first\nerror: second\n"
    with pytest.raises(KeyError):
        _ = finished(JobStatus.FAILED, KeyError("x")).return_value
    assert finished(JobStatus.COMPLETED, 7).return_value == 7


BETAS = "two numbers in brackets, each at least 0 and below 1"
SEED = "from 0 to 4294967295, as numpy requires"
NOWHERE = ("nowhere", "--arch", "transformer", "--optimizer", "adam", *toy.RECIPE)

NUMBERS: Mapping[str, str] = {
    "--lr -0.1": "--lr must be at least 0, not [-0.1]",
    "--lr 0.1,1e999": "--lr must be at least 0, not [0.1, inf]",
    "--seed -1": f"--seed must be {SEED}, not -1",
    "--max-tokens 0": "--max-tokens must be at least 1, not 0",
    "--max-tokens-valid 4k": "--max-tokens-valid must be at least 1, not 4k",
    "--update-freq 1,0": "--update-freq must be at least 1, not [1, 0]",
    "--update-freq []": "--update-freq must be at least 1, not []",
    "--dropout 1.5": "--dropout must be at least 0 and below 1, not 1.5",
    "--label-smoothing 1": "--label-smoothing must be at least 0 and below 1, not 1.0",
    "--adam-betas (0.9": f"--adam-betas must be {BETAS}, not (0.9",
    "--adam-betas 0.9": f"--adam-betas must be {BETAS}, not 0.9",
    "--adam-betas '(0.9, 1)'": f"--adam-betas must be {BETAS}, not (0.9, 1)",
    "--adam-betas __import__('os')": f"--adam-betas must be {BETAS}, not __import__(os)",
    "--optimizer lamb --lamb-betas '(-0.1, 0.98)'": f"--lamb-betas must be {BETAS}, not (-0.1, 0.98)",
    "--optimizer lamb --lamb-eps nan": "--lamb-eps must be above 0, not nan",
    "--optimizer muon --muon-momentum 1": "--muon-momentum must be at least 0 and below 1, not 1.0",
    "--optimizer muon --muon-lr-scale 0": "--muon-lr-scale must be above 0, not 0.0",
}
"""Additions to a good training, each with its whole line."""


def parse(*flags: str) -> object:
    return options.parse_args_and_arch(options.get_training_parser(), [*NOWHERE, *flags])


def test_numbers() -> None:
    said = {words: problems_of(parse, *shlex.split(words)) for words in NUMBERS}
    assert said == {words: (line,) for words, line in NUMBERS.items()}
    assert len(problems_of(parse, "--max-tokens", "0", "--lr", "-1")) == 2
    flags = "--lr 0 --clip-norm 0 --update-freq 4,2 --warmup-updates 0 --max-epoch 0 --dropout 0 --seed 0"
    parse(*flags.split(), "--adam-betas", "(0.9, 0.98)", "--warmup-init-lr", "-1")
    options.parse_args_and_arch(options.get_generation_parser(), ["nowhere", "--retain-dropout"])


def test_configurations() -> None:
    wrong: dict[tuple[str, str, object], str] = {
        ("optimization", "lr", (-0.1,)): "optimization.lr must be at least 0, not [-0.1]",
        ("optimization", "update_freq", (0,)): "optimization.update_freq must be at least 1, not [0]",
        ("common", "seed", -1): f"common.seed must be {SEED}, not -1",
        ("dataset", "max_tokens", 0): "dataset.max_tokens must be at least 1, not 0",
        ("optimizer", "adam_betas", "(0.9, 1)"): f"optimizer.adam_betas must be {BETAS}, not (0.9, 1)",
    }
    for (group, name, value), line in wrong.items():
        config = convert_namespace_to_omegaconf(parse())
        config[group][name] = list(value) if isinstance(value, tuple) else value
        said = problems_of(distributed_utils.call_main, config, lambda cfg: pytest.fail("it began"))
        assert said == (line,)


def test_a_bleu_that_is_not_of_translated_words_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """97.20 was printed where the words had 94.83."""

    def said(dictionary: str, *flags: str) -> str:
        (tmp_path / "dict.en.txt").write_text(f"der 9\n{dictionary} 2\n", encoding="utf-8")
        caplog.clear()
        options.parse_args_and_arch(options.get_generation_parser(), [str(tmp_path), "--path", "model.pt", *flags])
        return caplog.text

    for mark in ("hau@@", "▁Haus"):
        assert "the BLEU at the end is that of subwords: add --remove-bpe" in said(mark)
        assert said(mark, "--remove-bpe") == ""
    assert said("Haus") == ""
    assert "the BLEU at the end is always 100" in said("hau@@", "--score-reference")
