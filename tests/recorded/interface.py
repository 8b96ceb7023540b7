"""The names that users type: commands, options, architectures, and flags of models, criteria and optimizers."""

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES

from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.tools.text import __main__ as corpora

HYDRA = "hydra-train"
"""The one command without our options: it has Hydra's."""
EXTENDED = ("criterion", "optimizer", "lr_scheduler")
"""The registries of fairseq to which this package adds."""


def texts() -> Iterator[tuple[str, str]]:
    yield "architectures.txt", _lines(name for name, model in ARCH_MODEL_REGISTRY.items() if _ours(model))
    yield "commands.tsv", _rows({name: [HYDRA] if name == HYDRA else _options(cli.main, name) for name in cli.COMMANDS})
    yield "corpora_steps.tsv", _rows({name: _options(corpora.main, name) for name in corpora.STEPS})
    yield "models.tsv", _rows({name: flags_of(model) for name, model in MODEL_REGISTRY.items() if _ours(model)})
    extensions = {f"{kind} {name}": one for kind in EXTENDED for name, one in REGISTRIES[kind]["registry"].items()}
    yield "extensions.tsv", _rows({name: flags_of(one) for name, one in extensions.items() if _ours(one)})


def _lines(names: Iterable[str]) -> str:
    """Sorted, because the order of flags does not matter."""
    return "".join(f"{name}\n" for name in sorted(names))


def _rows(flags: dict[str, list[str]]) -> str:
    return _lines(f"{owner}\t{flag}" for owner, some in flags.items() for flag in some)


def _ours(registered: type) -> bool:
    """Whether a registered class is from this package, or extended by it."""
    return any(one.__module__.startswith("fairseq_plugins") for one in registered.__mro__)


def _options(main: Callable[[Sequence[str]], int], name: str) -> list[str]:
    """Every option of a command with its short form, and every positional argument."""
    shown: list[argparse.ArgumentParser] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "print_help", lambda self, file=None: shown.append(self))
        with contextlib.suppress(SystemExit):
            main([name, "--help"])
    return [" ".join(action.option_strings) or action.dest for action in shown[0]._actions]


def flags_of(registered: Any) -> list[str]:
    """The flags that a model, criterion, optimizer or schedule brings, with their defaults and choices."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    if hasattr(registered, "add_args"):
        registered.add_args(parser)
    else:
        gen_parser_from_dataclass(parser, registered.__dataclass())
    return [_described(action) for action in parser._actions]


def _described(action: argparse.Action) -> str:
    words = [" ".join(action.option_strings)]
    if action.default is not None and action.default != argparse.SUPPRESS:
        words.append(f"default={action.default}")
    if action.choices is not None:
        words.append(f"choices={','.join(map(str, action.choices))}")
    return "\t".join(words)
