"""How a command ends: code and line for what the user can fix, the exception itself for a bug."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NoReturn

import pytest
from torch.multiprocessing import ProcessRaisedException

from fairseq_plugins.errors import UserError
from fairseq_plugins.process import INTERRUPTED, exit_code, log_as_fairseq_does
from tests import processes
from tests.refusals import refused

CHECKOUT = Path(__file__).resolve().parents[2]


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def command() -> NoReturn:
        raise error

    return command


TRACE = (
    "\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
    "  File \"x.py\", line 1, in f\nfairseq_plugins.errors.UserError: unknown norm 'pst'; legal values: post, pre\n"
)
MENDED: dict[BaseException, str] = {
    UserError(["first", "second"]): "error: first\nerror: second\n",
    FileNotFoundError(2, "No such file or directory", "dict.txt"): "error: No such file or directory: dict.txt\n",
    FileNotFoundError("Dataset not found: train (data-bin)"): "error: Dataset not found: train (data-bin)\n",
    OSError("Model file not found: last.pt"): "error: Model file not found: last.pt\n",
    ProcessRaisedException(TRACE, 1, 99): "error: unknown norm 'pst'; legal values: post, pre\n",
    OSError(28, "No space left on device", "train.bpe"): "error: No space left on device: train.bpe\n",
    OSError(28, "No space left on device"): "error: No space left on device: nothing more can be written\n",
}
DEFECTS = (
    ValueError("shape"),
    AssertionError("ours"),
    OSError(5, "Input/output error"),
    ProcessRaisedException("\n\n-- Process 0 terminated ...\nRuntimeError: size mismatch\n", 0, 99),
    BrokenPipeError("a worker's, not standard output"),
    SystemExit(5),
)


def test_what_the_user_can_mend_is_one_line_and_a_defect_keeps_its_trace(capfd: pytest.CaptureFixture[str]) -> None:
    assert [exit_code(lambda: returned) for returned in (None, 0, 3)] == [0, 0, 3]  # noqa: B023
    for error, printed in MENDED.items():
        assert exit_code(raising(error)) == 2
        assert capfd.readouterr() == ("", printed)
    assert exit_code(raising(KeyboardInterrupt())) == INTERRUPTED
    for defect in DEFECTS:
        with pytest.raises(type(defect)) as caught:
            exit_code(raising(defect))
        assert caught.value is defect
    assert capfd.readouterr() == ("", "")


def test_a_level_that_does_not_exist_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGLEVEL", "verbose")
    line = "unknown LOGLEVEL 'VERBOSE' (did you mean 'ERROR'?); legal values: CRITICAL, DEBUG, ERROR, INFO, WARNING"
    assert refused(log_as_fairseq_does) == line


def printing_to(output: BinaryIO, unbuffered: str, *words: str) -> tuple[int, str]:
    """Exit code and errors of a Python whose standard output is ``output``."""
    there = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [sys.executable, *words], stdout=output, stderr=subprocess.PIPE, cwd=CHECKOUT, env=there, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_has_left(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stream:
        assert printing_to(stream, unbuffered, "-m", "fairseq_plugins.tools.cli", "--help") == (141, "")


INTERRUPTED_IMPORTS = {"text --help": "difflib", "cli score a b": "sacrebleu", "cli average --help": "torch"}
"""Commands, and a module during whose import Ctrl-C comes: the first, one of the command, and torch."""


@pytest.mark.parametrize("command", INTERRUPTED_IMPORTS)
def test_ctrl_c_while_a_command_imports_ends_it_at_once(command: str, tmp_path: Path) -> None:
    """Torch and numpy make another error of a KeyboardInterrupt that reaches their C code."""
    interrupted = tmp_path / INTERRUPTED_IMPORTS[command] / "__init__.py"
    interrupted.parent.mkdir()
    interrupted.write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(9)\n"
        "except KeyboardInterrupt:\n    raise ImportError from None\n"
    )
    module, *words = command.split()
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    ended = processes.python("-m", f"fairseq_plugins.tools.{module}", *words, cwd=tmp_path, PYTHONPATH=path)
    assert ended == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_result_that_a_full_disk_has_not_taken_is_one_line_and_code_2(unbuffered: str, tmp_path: Path) -> None:
    """On /dev/full nothing can be written; the limit lets the first part of the help through, as a disk that fills."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    call = "from fairseq_plugins.tools.cli.main import run; import sys; sys.argv[1:] = {!r}; run()"
    unwritten = "error: {}: nothing more can be written\n"
    for before, words, output, cause in (
        ("", ["--help"], Path("/dev/full"), "No space left on device"),
        ("", ["score", "--help"], Path("/dev/full"), "No space left on device"),
        (limit, ["--help"], tmp_path / "out", "File too large"),
    ):
        with open(output, "wb") as stream:
            ended = printing_to(stream, unbuffered, "-c", before + call.format(words))
        assert ended == (2, unwritten.format(cause))
