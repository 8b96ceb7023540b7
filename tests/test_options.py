"""Mistakes on a command line: one line, the nearest option, no page of usage."""

from fairseq_plugins.options import OneLineParser
from tests.refusals import refused

MISTAKES = {
    "--outptu a": "unknown option '--outptu' (did you mean '--output'?); legal: --help, --output, --best",
    "--out=a": "unknown option '--out' (did you mean '--output'?); legal: --help, --output, --best",
    "--best 1": "the following arguments are required: --output (see x --help)",
    "--output a --best x": "--best x: not a whole number",
    "--output a -b": "unexpected: '-b' (see x --help)",
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
    lines = [line for line in parser.format_help().splitlines() if " text" in line or "one" in line]
    shown = [" ".join(line.split()[2:]) for line in lines]
    assert shown[-6:-3] == ["text (default: 0)", "text (default: 1 2)", "text"]
    assert shown[-3:] == ["text", "text (default: on)", "default: one"]
