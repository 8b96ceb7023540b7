"""Every command that a page shows names options, scripts and configurations that exist."""

import argparse
import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from fairseq import options

from tests.docs.test_links import PAGES, ROOT

STOCK: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "train": options.get_training_parser,
    "generate": options.get_generation_parser,
    "interactive": options.get_interactive_generation_parser,
    "eval-lm": options.get_eval_lm_parser,
    "validate": options.get_validation_parser,
    "preprocess": options.get_preprocessing_parser,
}
"""The parsers of fairseq's commands, whose flags depend on the architecture and the task."""
USER_DIR = str(ROOT / "fairseq_plugins")


def recorded(name: str) -> dict[str, set[str]]:
    """Flags of each command by a recorded file."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "tests/recorded/interface" / name).read_text(encoding="utf-8").splitlines():
        command, words = line.split("\t")[:2]
        found.setdefault(command, set()).update(words.split())
    return found


FLAGS, STEPS = recorded("commands.tsv"), recorded("corpora_steps.tsv")


def shown(page: Path) -> Iterator[list[str]]:
    """The commands of a page's blocks of shell, without those that are answered by an error."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in (block for language, block in fenced if language in ("", "bash", "console")):
        lines = block.replace("\\\n", " ").replace('"$(python -m fairseq_plugins)"', USER_DIR).splitlines()
        if any(line.startswith("$ ") for line in lines):
            answered = zip(lines, [*lines[1:], ""], strict=True)
            lines = [line[2:] for line, answer in answered if line[:2] == "$ " and not answer.startswith("error: ")]
        for line in lines:
            yield from commands(line)


def commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without variables before them and dots for further words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a drawing, or a file
        return
    for piped, part in itertools.groupby(words, lambda word: set(word) <= set("|&;")):
        command = [word for word in part if word != "..."]
        command = list(itertools.dropwhile(lambda word: re.fullmatch("[A-Z_]+=.*", word), command))
        if command and not piped:
            yield command


def fault(words: list[str]) -> str:
    """The mistake in a command; empty if there is none, or if it is another program's command."""
    program, *rest = words
    path = rest[0] if program == "python" else program
    if re.fullmatch(r"(scripts|benchmarks|docs)/.*\.(sh|py)", path):
        return "" if (ROOT / path).is_file() else f"{path}: no such file"
    if words[:2] == ["python", "-m"]:
        return of_module(*rest[1:])
    if program == "fairseq-deep" and rest and not rest[0].startswith("-"):
        return of_command(*rest)
    return of_command(program.removeprefix("fairseq-"), *rest) if re.match("fairseq-(?!deep)", program) else ""


def given(arguments: Sequence[str]) -> set[str]:
    return {word.partition("=")[0] for word in arguments if re.match("--[a-z]", word)} - {"--help"}


def of_module(name: str, *arguments: str) -> str:
    if name == "fairseq_plugins.tools.text" and arguments and not arguments[0].startswith("-"):
        unknown = given(arguments) - STEPS.get(arguments[0], set())
        return f"no such: {arguments[0]} {unknown}" if unknown or arguments[0] not in STEPS else ""
    return "" if find_spec(name) else f"no module {name}"


def of_command(name: str, *arguments: str) -> str:
    lost = [word for word in arguments if word.startswith("configs/") and not (ROOT / word).exists()]
    if lost or name not in FLAGS:
        return f"no such: {lost or name}"
    if name not in STOCK:
        unknown = given(arguments) - FLAGS[name] if name != "hydra-train" else set()
        return f"{name}: unknown {unknown}" if unknown else ""
    if not arguments or "--help" in arguments or (name == "train" and "--arch" not in arguments):
        return ""
    parser = STOCK[name]()
    read = parser.parse_args if name == "preprocess" else lambda words: options.parse_args_and_arch(parser, words)
    try:
        read(list(arguments))
    except (SystemExit, ValueError) as error:
        return f"{name}: {error}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shown_commands_exist(page: Path) -> None:
    assert [(problem, *words) for words in shown(page) if (problem := fault(words))] == []
