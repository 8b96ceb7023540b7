"""Read test sets from the files of a command line: one system, several with their runs, or several test sets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.scoring.forms import Forms, Text
from fairseq_plugins.scoring.text import read_sentences, require_equal_counts


def sets_of(args: argparse.Namespace) -> dict[str, Forms]:
    """Return the test sets by name; without ``--set`` there is one, with an empty name.

    Raises:
        UserError: the three ways to name files are mixed, one is incomplete, or a file cannot be scored.
    """
    ways = [bool(args.files), bool(args.systems or args.references), bool(args.sets)]
    if sum(ways) != 1:
        raise UserError(
            f"{'no files' if not any(ways) else 'files in more than one way'}: give HYP REF, or --systems NAME=HYP ... "
            "--references REF ..., or --set NAME HYP REF ..."
        )
    if args.sets:
        return _several(args)
    if args.files:
        if len(args.files) < 2:
            raise UserError(f"{args.files[0]}: no reference given: fairseq-deep score HYP REF")
        systems, references = {Path(args.files[0]).name: [Path(args.files[0])]}, [Path(name) for name in args.files[1:]]
    else:
        if not (args.systems and args.references):
            raise UserError("--systems and --references must be used together")
        systems, references = systems_of(args.systems), args.references
    tokens = _tokens(args, systems)
    return {"": Forms(_read(systems, references), tokens, args.language_pair)}


def files_of(args: argparse.Namespace) -> list[Path]:
    """Return every file that the command line names as text to score."""
    sets = [file for _, *files in args.sets or () for file in files]
    named = [*args.files, *(args.systems or ()), *sets, *(args.tokenised_hypotheses or ())]
    systems = systems_of(named) if named else {}
    given = (args.references or (), args.tokenised_references or (), *systems.values())
    return [path for paths in given for path in paths]


def _several(args: argparse.Namespace) -> dict[str, Forms]:
    if args.tokenised_hypotheses or args.tokenised_references:
        raise UserError("--set takes plain text: --tokenised-hypotheses and --tokenised-references are for one set")
    found: dict[str, Forms] = {}
    for name, *files in args.sets:
        if name in found:
            raise UserError(f"--set {name} is given twice")
        named = [file for file in files if _is_named(file)]
        rest = [file for file in files if not _is_named(file)]
        hypotheses, references = (named, rest) if named else (rest[:1], rest[1:])
        if not hypotheses or not references:
            raise UserError(f"--set {name}: give its name, HYP (or NAME=HYP ...) and REF")
        systems = systems_of(hypotheses) if named else {"hypotheses": [Path(hypotheses[0])]}
        found[name] = Forms(_read(systems, [Path(file) for file in references]), None, args.language_pair)
    return found


def _is_named(argument: str) -> bool:
    """Return whether this is NAME=HYP rather than a file with an equals sign in its name."""
    return "=" in argument and not Path(argument).exists()


def systems_of(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """Read ``NAME=HYP[,HYP...]`` as the files of every system; without ``NAME=`` the file's name is the system's."""
    systems: dict[str, list[Path]] = {}
    for argument in arguments:
        name, equals, files = argument.partition("=")
        if not equals or Path(argument).exists():
            name, files = Path(argument).name, argument
        if not name or not files:
            raise UserError(f"--systems {argument}: must be NAME=HYP or NAME=HYP1,HYP2,...")
        whole = Path(files).exists()
        systems.setdefault(name, []).extend([Path(files)] if whole else [Path(file) for file in files.split(",")])
    return systems


def _tokens(args: argparse.Namespace, systems: Mapping[str, Sequence[Path]]) -> Text | None:
    given, references = args.tokenised_hypotheses, args.tokenised_references
    if not given and not references:
        return None
    if not (given and references):
        raise UserError(
            "--tokenised-hypotheses and --tokenised-references must be used together: one tokeniser must make both"
        )
    named = len(systems) > 1 or any(_is_named(argument) for argument in given)
    files = systems_of(given) if named else {next(iter(systems)): [Path(file) for file in given]}
    return _read(files, references)


def _read(systems: Mapping[str, Sequence[Path]], references: Sequence[Path]) -> Text:
    """Read all files, and refuse unequal counts by the names of the files rather than of the systems."""
    paths = [*(path for files in systems.values() for path in files), *reversed(references)]
    read: dict[Path, list[str]] = {}
    problems: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            read[path] = read_sentences(path)
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(problems)
    require_equal_counts({str(path): sentences for path, sentences in read.items()})
    return Text(
        {name: [read[path] for path in files] for name, files in systems.items()}, [read[path] for path in references]
    )
