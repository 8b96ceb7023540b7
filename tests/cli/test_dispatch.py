"""What ``fairseq-deep`` makes of its arguments before, and instead of, handing them to fairseq."""

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from fairseq_plugins.tools.cli.main import COMMANDS, main
from fairseq_plugins.tools.cli.stock import USER_DIR


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line that each of fairseq's commands would have seen; none of them is run."""
    seen: list[str] = []
    for command in COMMANDS.values():
        module = ModuleType(command.module)
        module.cli_main = lambda: seen.append(" ".join(sys.argv))  # type: ignore[attr-defined]
        module.main = lambda argv: seen.append(" ".join([str(len(argv)), *argv]))  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, command.module, module)
    return seen


@pytest.fixture(autouse=True)
def _command_line_is_put_back() -> Iterator[None]:
    before = sys.argv
    yield
    assert sys.argv is before


GIVEN = {
    "generate data --beam 5 -s de": f"fairseq-deep generate --user-dir {USER_DIR} data --beam 5 -s de",
    f"interactive data --user-dir={USER_DIR}/": f"fairseq-deep interactive --user-dir {USER_DIR} data",
    "train --help": f"fairseq-deep train --user-dir {USER_DIR} --help",
    "preprocess -s de": "fairseq-deep preprocess -s de",
    "score h r": "2 h r",
    "average --output x": "2 --output x",
    "hydra-train -m a=b,c": "2 -m a=b,c",
}
REFUSED = {
    "": "error: no command given; one of: train, ",
    "trian": "error: unknown command 'trian' (did you mean 'train'?); legal: train, hydra-train, ",
    "xyzzy": "error: unknown command 'xyzzy'; legal: train, ",
    "generate data --user-dir mine": (
        "error: fairseq-deep gives fairseq its own user directory and cannot take 'mine' as well: "
        "write `import fairseq_plugins` in mine/__init__.py "
    ),
    "generate data --user-dir": "error: argument --user-dir: expected one argument",
}


def test_what_a_command_is_given(calls: list[str]) -> None:
    for words in GIVEN:
        assert main(words.split()) == 0
    assert calls == list(GIVEN.values())


def test_one_line_and_code_2(calls: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    for words, line in REFUSED.items():
        assert main(words.split()) == 2
        output, errors = capfd.readouterr()
        assert (errors.startswith(line), errors.count("\n"), output) == (True, 1, ""), errors
    assert calls == []


def test_help_names_every_command_and_each_exists(capfd: pytest.CaptureFixture[str]) -> None:
    assert [name for name, command in COMMANDS.items() if importlib.util.find_spec(command.module) is None] == []
    assert main(["--help"]) == 0
    words = {line.split()[0] for line in capfd.readouterr().out.splitlines() if line.startswith("  ")}
    assert words == set(COMMANDS)


def test_help_with_an_architecture_lists_its_options(capfd: pytest.CaptureFixture[str]) -> None:
    """fairseq prints the help before it has added them."""
    with pytest.raises(SystemExit) as ended:
        main(["train", "--arch", "admin_transformer", "--help"])
    shown = capfd.readouterr().out
    assert ended.value.code == 0
    assert [
        name for name in ("--encoder-layers", "--norm-position", "--admin-omega") if f"\n  {name} " not in shown
    ] == []
