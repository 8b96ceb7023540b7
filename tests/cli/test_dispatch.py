"""What ``fairseq-deep`` makes of its arguments before, and instead of, handing them to fairseq."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError

from fairseq_plugins.cli import stock
from fairseq_plugins.cli.main import COMMANDS, main
from fairseq_plugins.errors import UserError

HERE = stock.USER_DIR


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command line that each of fairseq's commands would have seen; none of them is run."""
    seen: list[list[str]] = []
    for command in COMMANDS.values():
        module = ModuleType(command.module)
        module.cli_main = lambda: seen.append(list(sys.argv))  # type: ignore[attr-defined]
        module.main = lambda argv: seen.append([str(len(argv)), *argv])  # type: ignore[attr-defined]
        module._hydra_main = lambda cfg: 1.5  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, command.module, module)
    return seen


@pytest.fixture(autouse=True)
def _command_line_is_put_back() -> Iterator[None]:
    before = sys.argv
    yield
    assert sys.argv is before


@pytest.mark.parametrize(
    ("argv", "seen"),
    [
        (["generate", "data", "--beam", "5"], ["fairseq-deep generate", "--user-dir", HERE, "data", "--beam", "5"]),
        (["validate", "data"], ["fairseq-deep validate", "--user-dir", HERE, "--task", "translation", "data"]),
        (["validate", "data", "--task=mine"], ["fairseq-deep validate", "--user-dir", HERE, "data", "--task=mine"]),
        (["interactive", "data", f"--user-dir={HERE}/"], ["fairseq-deep interactive", "--user-dir", HERE, "data"]),
        (["eval-lm", "data"], ["fairseq-deep eval-lm", "--user-dir", HERE, "data"]),
        (
            ["train", "data", "-a", "admin_transformer"],
            ["fairseq-deep train", "--user-dir", HERE, "data", "-a", "admin_transformer"],
        ),
        (["train", "--help"], ["fairseq-deep train", "--user-dir", HERE, "--help"]),
        (["preprocess", "-s", "de"], ["fairseq-deep preprocess", "-s", "de"]),
        (["stock-score", "-r", "x"], ["fairseq-deep stock-score", "-r", "x"]),
        (["score", "h", "r"], ["2", "h", "r"]),
        (["average", "--output", "x"], ["2", "--output", "x"]),
        (["hydra-train", "-m", "a=b,c"], ["fairseq-deep hydra-train", "-m", "a=b,c"]),
    ],
)
def test_what_a_command_is_given(argv: Sequence[str], seen: list[str], calls: list[list[str]]) -> None:
    assert main(argv) == 0
    assert calls == [seen]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "error: no command given; one of: train, "),
        (["trian"], "error: unknown command 'trian' (did you mean 'train'?); legal: train, hydra-train, "),
        (["xyzzy"], "error: unknown command 'xyzzy'; legal: train, "),
        (
            ["generate", "data", "--user-dir", "mine"],
            "error: fairseq-deep gives fairseq its own user directory and cannot take 'mine' as well: "
            "write `import fairseq_plugins` in mine/__init__.py ",
        ),
    ],
)
def test_one_line_and_code_2(
    argv: Sequence[str], line: str, calls: list[list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    output, errors = capfd.readouterr()
    assert errors.startswith(line)
    assert errors.count("\n") == 1
    assert (output, calls) == ("", [])


def test_help_names_every_command_and_each_exists(capfd: pytest.CaptureFixture[str]) -> None:
    assert [name for name, command in COMMANDS.items() if importlib.util.find_spec(command.module) is None] == []
    assert main(["--help"]) == 0
    words = {line.split()[0] for line in capfd.readouterr().out.splitlines() if line.startswith("  ")}
    assert words == set(COMMANDS)


def test_take_option() -> None:
    def take(*argv: str) -> tuple[str | None, list[str]]:
        return stock.take_option(argv, "--long", "-x")

    assert take("a", "-x", "1", "b") == ("1", ["a", "b"])
    assert take("--long=1", "-x", "2") == ("2", [])
    assert take("--longer", "1") == (None, ["--longer", "1"])
    assert take("--long") == (None, [])


YAML = {
    "--config-name smal": "unknown --config-name 'smal' (did you mean 'small'?); legal values: a/b, latin, ",
    "--config-name=smal.yaml": "unknown --config-name 'smal.yaml' (did you mean 'small'?); legal",
    "--config-dir absent --config-name small": "--config-dir absent: no such directory",
    "--config-name model": "--config-name model: this is the name of a group of fairseq's settings; rename the file",
    "--confg-name small": "unknown option '--confg-name' (did you mean '--config-name'?); legal: ",
    "--config-name latin": "{}/latin.yaml: line 1: not UTF-8 (byte 0xe9)",
    "--config-name none": "{}/none.yaml: empty",
}


def test_a_yaml_file_that_is_not_there_or_no_text(
    calls: list[list[str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    for name in ("small.yaml", "a/b.yaml", "model.yaml", "notes.txt"):
        (tmp_path / name).write_text("common: {}\n")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    (tmp_path / "none.yaml").touch()
    for flags, line in YAML.items():
        assert main(["hydra-train", "--config-dir", str(tmp_path), *flags.split()]) == 2
        assert capfd.readouterr().err.startswith(f"error: {line.format(tmp_path)}")
    assert calls == []
    for name in ("small", "small.yaml", "a/b"):
        assert main(["hydra-train", "--config-dir", str(tmp_path), "--config-name", name]) == 0
    assert len(calls) == 3


UNFINISHED: Mapping[str, Mapping[str, Any]] = {
    "unknown model._name 'admin_transfromer' (did you mean 'admin_transformer'?); legal: ": {
        "model": {"_name": "admin_transfromer"}
    },
    "unknown optimizer._name 'adma' (did you mean 'adam": {"optimizer": {"_name": "adma"}},
    "unknown criterion._name 'cross_entrpy' (did you mean 'cross_entropy'?); legal values: adapt": {
        "criterion": "cross_entrpy"
    },
    "unknown task._name 'transaltion' (did you mean 'translation'": {"task": {"_name": "transaltion"}},
    "unknown group of settings 'optimisation' (did you mean 'optimization'?); legal values: _name, ": {
        "optimisation": {"lr": [1]}
    },
    "task.data is missing": {"task": {"data": "???"}, "model": {"_name": "admin_transformer"}},
}
"""How the line begins about what a YAML file has."""


class TestInHydra:
    """Hydra would turn each of these into a trace and code 1."""

    def test_user_directory_is_put_into_the_config(self) -> None:
        job = stock._in_hydra(lambda cfg: cfg.common.user_dir)
        assert job(OmegaConf.create({"common": {"user_dir": None}})) == HERE

    def test_mistakes_end_the_program(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        def raising(error: Exception) -> Callable[[object], None]:
            def job(cfg: object) -> None:
                raise error

            return job

        def in_job(more: Mapping[str, Any], job: Callable[[object], None]) -> str:
            with pytest.raises(SystemExit) as ended:
                stock._in_hydra(job)(OmegaConf.create({"common": {"user_dir": None}, **more}))
            assert ended.value.code == 2
            return capfd.readouterr().err

        assert in_job({}, raising(UserError("no such norm"))) == "error: no such norm\n"
        unknown = ConfigAttributeError("Key 'encoder_lyers' not in 'Config'\n    full_key: encoder_lyers")
        said = "error: Key 'encoder_lyers' not in 'Config'; full_key: encoder_lyers\n"
        assert in_job({}, raising(unknown)) == said
        for line, more in UNFINISHED.items():
            assert in_job(more, lambda cfg: pytest.fail("the job ran")).startswith(f"error: {line}")
        assert "cannot take" in in_job({"common": {"user_dir": str(tmp_path)}}, lambda cfg: pytest.fail("the job ran"))

    @pytest.mark.parametrize(
        ("mode", "chdir", "returns"),
        [(RunMode.RUN, None, True), (RunMode.RUN, True, False), (RunMode.MULTIRUN, None, False)],
    )
    def test_directory_of_the_job(
        self, mode: RunMode, chdir: bool | None, returns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runtime = SimpleNamespace(mode=mode, job=SimpleNamespace(chdir=chdir), runtime=SimpleNamespace(cwd=HERE))
        monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
        monkeypatch.setattr(HydraConfig, "get", lambda: runtime)
        monkeypatch.chdir(tmp_path)
        job = stock._in_hydra(lambda cfg: Path.cwd())
        assert job(OmegaConf.create({"common": {"user_dir": None}})) == (Path(HERE) if returns else tmp_path)


def test_a_deleted_directory_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[list[str]]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["fsck", "checkpoints"]) == 2
    assert capsys.readouterr().err == "error: the current directory has been deleted: change to another one\n"
    assert calls == []
