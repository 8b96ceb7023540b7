"""How a command ends: code and line for what the user can fix, the exception itself for a bug."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from torch.multiprocessing import ProcessRaisedException

from fairseq_plugins import process
from fairseq_plugins.errors import UserError
from fairseq_plugins.process import INTERRUPTED, end_quietly, exit_code, raise_again

CHECKOUT = Path(__file__).resolve().parents[2]


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def command() -> NoReturn:
        raise error

    return command


def test_an_unbuffered_stream_of_the_caller_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb", buffering=0) as raw:
        stream = io.TextIOWrapper(raw, write_through=True)
        monkeypatch.setattr(sys, "stdout", stream)
        assert exit_code(lambda: None) == 0
        assert sys.stdout is stream


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


def test_assertion_of_a_fairseq_command_is_the_users() -> None:
    stated: dict[str, object] = {"__name__": "fairseq_cli.train"}
    exec("def main():\n    assert False, 'Must specify batch size'", stated)
    assert exit_code(stated["main"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_has_left(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fairseq_plugins.cli", "--help"],
            stdout=writer,
            stderr=subprocess.PIPE,
            cwd=CHECKOUT,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("module", "content", "command"),
    [
        pytest.param("logging", "raise KeyboardInterrupt", ("text", "--help"), id="before any other import"),
        pytest.param("sacrebleu", "raise KeyboardInterrupt", ("cli", "score", "a", "b"), id="later"),
        # Torch and numpy do this: the interrupt reaches C code, which makes an ImportError of it.
        pytest.param(
            "torch",
            "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(9)\n"
            "except KeyboardInterrupt:\n    raise ImportError('initialisation failed') from None",
            ("cli", "average", "--help"),
            id="turned into another error",
        ),
    ],
)
def test_ctrl_c_while_a_command_imports_is_no_trace(
    tmp_path: Path, module: str, content: str, command: tuple[str, ...]
) -> None:
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text(content + "\n")
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    words = [sys.executable, "-m", f"fairseq_plugins.{command[0]}", *command[1:]]
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")


def test_a_command_that_runs_gets_ctrl_c_as_an_exception() -> None:
    asked = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    begun = "from fairseq_plugins.process import end_quietly, exit_code"
    code = f"{begun}; end_quietly(); {asked}; exit_code(lambda: exec('{asked}'))"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", f"import sys; sys.orig_argv = ['', '-m', 'fairseq_plugins']; {code}"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout == "False\nTrue\n"


def test_the_hook_for_ctrl_c_leaves_other_errors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: seen.append(error))
    monkeypatch.setattr(process, "_installed", False)
    end_quietly()
    raise_again()
    defect = RuntimeError("ours")
    sys.excepthook(RuntimeError, defect, None)
    assert seen == [(RuntimeError, defect, None)]
    with pytest.raises(SystemExit) as ended:
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert ended.value.code == 130


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_result_that_a_full_disk_has_not_taken_is_one_line_and_code_2(unbuffered: str, tmp_path: Path) -> None:
    """On /dev/full nothing can be written; the limit lets the first part of the help through, as a disk that fills."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    call = "from fairseq_plugins.cli.main import run; import sys; sys.argv[1:] = {!r}; run()"
    unwritten = "error: {}: nothing more can be written\n"
    for before, words, output, cause in (
        ("", ["--help"], Path("/dev/full"), "No space left on device"),
        ("", ["score", "--help"], Path("/dev/full"), "No space left on device"),
        (limit, ["--help"], tmp_path / "out", "File too large"),
    ):
        with open(output, "wb") as stream:
            done = subprocess.run(
                [sys.executable, "-c", before + call.format(words)],
                env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
                cwd=CHECKOUT,
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (2, unwritten.format(cause))
