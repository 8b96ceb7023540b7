"""Mistakes on a command line: one line, the nearest option, no page of usage."""

import pytest

from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tools.cli.main import main
from tests.refusals import refused

MISTAKES = {
    "--outptu a": "unknown option '--outptu' (did you mean '--output'?); legal: --help, --output, --best",
    "--out=a": "unknown option '--out' (did you mean '--output'?); legal: --help, --output, --best",
    "--best 1": "the following arguments are required: --output (see x --help)",
    "--output a --best x": "--best x: not a whole number",
    "--output a -b": "unexpected: '-b' (see x --help)",
}
OF_COMMANDS = {
    "average --last-epoch 2": "unknown option '--last-epoch' (did you mean '--last-epochs'?); legal: ",
    "average --last-updates 1 --last-epochs 2": "argument --last-epochs: not allowed with argument --last-updates",
    "fold a.pt b.pt --froce": "unknown option '--froce' (did you mean '--force'?); legal: ",
}


def test_a_mistake_is_one_line() -> None:
    parser = OneLineParser(prog="x")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--output", required=True)
    parser.add_argument("--best", type=int)
    for line, message in MISTAKES.items():
        assert refused(parser.read, line.split()) == message
    assert parser.read(["--output", "a", "--", "--best"]).files == ["--best"]


def test_the_help_shows_defaults_once() -> None:
    parser = OneLineParser(prog="x")
    for name, default in {"--size": 0, "--seeds": [1, 2], "--none": None, "--off": False, "--on": True}.items():
        parser.add_argument(name, default=default, help="text")
    parser.add_argument("--named", default=1, help="default: one")
    shown = [
        " ".join(line.split()[2:]) for line in parser.format_help().splitlines() if " text" in line or "one" in line
    ]
    assert shown[-6:] == [
        "text (default: 0)", "text (default: 1 2)", "text", "text", "text (default: on)", "default: one",
    ]  # fmt: skip


def test_every_command_of_ours_reads_its_options_so(capsys: pytest.CaptureFixture[str]) -> None:
    for command, line in OF_COMMANDS.items():
        assert main(command.split()) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"error: {line}")
        assert said.err.count("\n") == 1
