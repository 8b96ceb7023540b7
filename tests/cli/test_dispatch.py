"""``fairseq-deep`` reads its arguments before, and instead of, handing them to fairseq."""

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


def test_what_a_command_is_given(calls: list[str]) -> None:
    for words in GIVEN:
        assert main(words.split()) == 0
    assert calls == list(GIVEN.values())


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
    names = ("--encoder-layers", "--norm-position", "--admin-omega")
    assert [name for name in names if f"\n  {name} " not in shown] == []
