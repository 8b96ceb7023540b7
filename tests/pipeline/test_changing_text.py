"""Text that changes while it is prepared: one line that names the file, and nothing of it is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_plugins.cli.main import main
from fairseq_plugins.pipeline.commands import Commands
from fairseq_plugins.text.__main__ import name_of
from tests import toy


@pytest.fixture
def text(tmp_path: Path) -> Path:
    for seed, name in enumerate(("train", "valid"), start=1):
        pairs = toy.sentence_pairs(20, seed, longest=5)
        for side, language in enumerate(("de", "en")):
            (tmp_path / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in pairs))
    return tmp_path


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Do something once, when a step has read its text; nothing is binarised, which takes seconds."""
    steps: dict[str, Callable[[], object]] = {}
    real = Commands.step

    def run(self: Commands, step: Callable[..., str | None], *files: object, **options: object) -> None:
        real(self, step, *files, **options)
        steps.pop(name_of(step), lambda: None)()

    def binarised(self: Commands, *words: object, **_: object) -> None:
        Path(str(words[words.index("--destdir") + 1])).mkdir()

    monkeypatch.setattr(Commands, "step", run)
    monkeypatch.setattr(Commands, "deep", binarised)
    return steps.__setitem__


PLAIN = ("--tokeniser", "none", "--subwords", "none", "--workers", "1")


def prepare(text: Path, *more: str) -> int:
    sets = ("--train", f"{text}/train", "--valid", *(more or (f"{text}/valid",)))
    return main(["prepare", f"{text}/out", *sets, "--source", "de", "--target", "en", *PLAIN])


def grow(path: Path) -> Callable[[], object]:
    return lambda: path.write_text(path.read_text() + "noch ein Satz\n")


def same_size_and_time(path: Path) -> Callable[[], object]:
    def change() -> None:
        found = path.stat()
        path.write_bytes(path.read_bytes()[:-2] + b"X\n")
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    return change


@pytest.mark.parametrize("change", [grow, same_size_and_time])
@pytest.mark.parametrize(
    ("step", "name", "made"),
    [("tokenise", "train.de", "work/tokens/train.de"), ("copy", "valid.de", "raw/valid.de")],
)
def test_changed_while_a_stage_reads_it(
    text: Path,
    after: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], Callable[[], object]],
    step: str,
    name: str,
    made: str,
) -> None:
    sets = () if step == "copy" else ("every-5th",)
    after(step, change(text / name))
    assert prepare(text, *sets) == 2
    line = f"error: {text}/{name}: changed while it was prepared; when it is whole, delete {text}/out and give the "
    assert capsys.readouterr().err == line + "command again\n"
    assert not (text / "out" / made).exists()
    assert list(text.rglob("*.partial")) == []


def test_changed_before_anything_was_made_the_same_command_prepares_it(
    text: Path, after: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    after("check", lambda: [grow(text / f"train.{language}")() for language in ("de", "en")])
    assert prepare(text) == 2
    line = f"error: {text}/train.de: changed while it was prepared; when it is whole, give the command again\n"
    assert capsys.readouterr().err == line
    assert prepare(text) == 0
    assert (text / "out" / "text" / "train.de").read_text().count("noch ein Satz\n") == 1


def test_a_file_that_is_only_touched_is_the_same(text: Path, after: Callable[..., None]) -> None:
    after("tokenise", lambda: os.utime(text / "train.de"))
    assert prepare(text) == 0


def test_the_settings_have_the_fingerprints_of_earlier_releases(
    text: Path, after: Callable[[str, Callable[[], object]], None]
) -> None:
    """Sixteen digits of SHA-256: with any others, a directory that was prepared before would be refused."""
    assert prepare(text) == 0
    lines = (text / "out" / "settings").read_text().splitlines()
    for name in ("train.de", "train.en", "valid.de", "valid.en"):
        assert f"{name}={hashlib.sha256((text / name).read_bytes()).hexdigest()[:16]}" in lines
