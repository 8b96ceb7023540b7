"""Command lines of typed functions: a parameter of a step is a file, a keyword-only one an option."""

import re
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fairseq_plugins.errors import flag
from fairseq_plugins.files import require_no_input
from fairseq_plugins.options import OneLineParser, at_least, finite

TextStep = Callable[..., str | None]
"""A step of the preparation of text; it returns the line that it says, if any."""
OUTPUTS = {"output", "outputs", "rest", "taken", "kept", "directory"}
"""Names of the parameters that are written."""


def value_of(annotation: Any, least: int = 1) -> dict[str, Any]:
    """Return argparse's settings for a value: a number of at least ``least``, a path, a choice; ``X | None`` is X."""
    if get_origin(annotation) in (Union, UnionType):
        [annotation] = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation)}
    metavar = {int: "N", float: "X", Path: "FILE"}.get(annotation, "LANG")
    return {"type": {int: at_least(least), float: finite}.get(annotation, annotation), "metavar": metavar}


def parser_of(name: str, step: TextStep) -> OneLineParser:
    """The parser of a step: several files are a ``Sequence`` or a tuple; a switch that is on has ``--no-NAME``."""
    documentation = step.__doc__ or ""
    described = dict(re.findall(r"^ +(\w+): (.+)$", documentation, re.MULTILINE))
    parser = OneLineParser(
        prog=f"python -m fairseq_plugins.tools.text {name}", description=documentation.split("\n\n")[0]
    )
    for parameter in signature(step, eval_str=True).parameters.values():
        annotation, default = parameter.annotation, parameter.default
        settings: dict[str, Any] = {"help": described.get(parameter.name)}
        if parameter.kind is not Parameter.KEYWORD_ONLY:
            collection = get_origin(annotation)
            count: Any = len(get_args(annotation)) if collection is tuple else "+" if collection else None
            parser.add_argument(parameter.name, type=Path, nargs=count, metavar=parameter.name.upper(), **settings)
            continue
        settings |= {"required": True} if default is Parameter.empty else {"default": default}
        if annotation is bool:
            settings |= {"action": "store_const", "const": not default}
        elif get_origin(annotation) is Sequence:
            settings |= {"action": "append", "default": [], "metavar": "PATTERN"}
        else:
            settings |= value_of(annotation)
        option = flag(f"no_{parameter.name}" if default is True else parameter.name)
        parser.add_argument(option, dest=parameter.name, **settings)
    return parser


def call(name: str, step: TextStep, argv: Sequence[str]) -> str | None:
    """Call a step with the words of a command line, and return its line; a UserError if it would write an input."""
    values = vars(parser_of(name, step).read(argv))
    parameters = signature(step).parameters
    files = {key: values.pop(key) for key in parameters if parameters[key].kind is not Parameter.KEYWORD_ONLY}
    inputs = [value for value in values.values() if isinstance(value, Path)]
    outputs: list[Path] = []
    for key, given in files.items():
        (outputs if key in OUTPUTS else inputs).extend(given if isinstance(given, list) else [given])
    for output in outputs:
        require_no_input(output, inputs)
    return step(*files.values(), **values)
