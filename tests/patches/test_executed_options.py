"""The value of an option is calculated, not executed."""

import importlib
import os
import re
import sys
from argparse import Namespace
from pathlib import Path

import fairseq
import fairseq_cli
import pytest
from fairseq import utils
from fairseq.data import FastaDataset
from fairseq.optim.adafactor import FairseqAdafactor
from fairseq.tasks.audio_pretraining import AudioPretrainingConfig, AudioPretrainingTask

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.executed_options import calculated
from tests.refusals import refused

PROGRAMS = (
    "__import__('os').system('touch executed')",
    "[open('executed', 'w'), 1]",
    "().__class__.__base__.__subclasses__()",
    "[x for x in (1, 2)]",
    "9 ** 9 ** 9",
    "name",
    "1; 2",
    "(" * 5000,
    "",
    "1/0",
    "'a' + 1",
    "-'a'",
    "{[1]: 2}",
)


def test_a_program_is_no_value_but_in_stock(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in PROGRAMS:
        with pytest.raises(UserError, match="neither a number nor a list"):
            calculated(text)
    for read in (utils.eval_str_list, utils.eval_bool):
        with pytest.raises(UserError):
            read(PROGRAMS[0])
    with pytest.raises(UserError):
        _ = FairseqAdafactor.optimizer_config.fget(Namespace(args=Namespace(lr=[0.1], adafactor_eps=PROGRAMS[0])))
    assert list(here.rglob("executed*")) == []
    monkeypatch.delitem(vars(utils), "eval")
    utils.eval_bool(PROGRAMS[0])
    assert list(here.rglob("executed*")) == [here / "executed"]


def test_what_fairseq_documents_is_calculated() -> None:
    values = {
        "(0.9, 0.98)": (0.9, 0.98),
        "0.1,0.2": (0.1, 0.2),
        " [(512, 3)] * 2 + [(256, 1)]": [(512, 3), (512, 3), (256, 1)],
        "{'a': -1, 'b': None, 'c': True}": {"a": -1, "b": None, "c": True},
        "1/3": 1 / 3,
    }
    assert {text: calculated(text) for text in values} == values
    assert utils.eval_str_list("[0.1, 2]") == [0.1, 2.0]
    # fairseq calls it with a setting of a checkpoint that is a bool already, and expects the builtin's error.
    assert [utils.eval_bool(value, default=None) for value in (True, 1, "True")] == [None, None, True]


def test_a_program_after_each_checkpoint_is_refused() -> None:
    for script, expected in ((None, None), ("touch executed", "task.post_save_script: 'touch executed' is not run")):
        config = AudioPretrainingConfig(data="nowhere", post_save_script=script)
        if expected is None:
            assert AudioPretrainingTask(config).cfg is config
        else:
            assert expected in refused(AudioPretrainingTask, config)


def test_the_path_of_a_text_is_not_executed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes before each sequence, and their letters; fairseq calls the program tqdm, too."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("-n $(touch executed)", "it's; touch executed", "a b"):
        (here / name).mkdir()
        (here / name / "train.fasta").write_text(">one\nABC\nDE\n>two\nF\n")
        read = FastaDataset(f"{name}/train")
        assert (list(read.offsets), list(read.sizes)) == ([0, 12], [5, 1])
        assert read[0] == (">one", "ABCDE")
    assert list(here.rglob("executed*")) == []


def test_no_module_of_fairseq_is_forgotten() -> None:
    calls = re.compile(r"^[^#\n]*(?<![\w.])eval\(", re.MULTILINE)
    calling = set()
    for package in (fairseq, fairseq_cli):
        root = Path(next(iter(package.__path__)))
        for path in root.rglob("*.py"):
            place = path.relative_to(root.parent).with_suffix("")
            if "examples" not in place.parts and calls.search(path.read_text(encoding="utf-8")):
                calling.add(".".join(place.parts))
    assert calling
    assert [name for name in calling if vars(importlib.import_module(name))["eval"] is not calculated] == []
