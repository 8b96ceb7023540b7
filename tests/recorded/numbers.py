"""The first updates of every method, and names and shapes of its weights. A refactoring must not change them."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor, nn

from tests import models

UPDATES = {"translation": 10, "language_model": 3, "speech_to_text": 3}
"""How many updates of each family are recorded. The layers of all families are the same classes."""
RATES = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
RATE_FLAGS = [word for name, rate in RATES.items() for word in (f"--{name.replace('_', '-')}", str(rate))]
BATCHES = 3
"""Number of different batches, used in turn."""
SUFFIXES = {"language_model": "_transformer_lm", "speech_to_text": "_s2t_transformer"}
HEADER = "family\tupdate\tloss\tgradient_norm"


class Update(NamedTuple):
    loss: float
    gradient_norm: float


# Models --------------------------------------------------------------------------------------------------------------


def architecture(family: str, case: str) -> str | None:
    """The architecture of a method in another family than translation, if it is one there."""
    model = ARCH_MODEL_REGISTRY[f"deep{SUFFIXES[family]}"]
    return case + SUFFIXES[family] if case in models.methods_of(model) else None


def families(case: str) -> list[str]:
    """The families that have ``case``; combinations of parts are recorded for translation only."""
    return ["translation", *(family for family in SUFFIXES if architecture(family, case))]


def build(family: str, case: str) -> nn.Module:
    if family == "translation":
        return models.build(*models.CASES[case], *RATE_FLAGS)
    return models.tiny(str(architecture(family, case)), **RATES)


def batches(family: str) -> list[tuple[tuple[Tensor, ...], Tensor]]:
    """Inputs and targets: made-up sentences, the same in every run."""
    if family == "language_model":
        return [((given,), target) for given, target in map(models.text, range(BATCHES))]
    make: Callable[..., models.Batch] = models.batch if family == "translation" else models.speech
    return [(made.inputs, made.target) for made in (make(seed=seed) for seed in range(BATCHES))]


# Updates -------------------------------------------------------------------------------------------------------------


def updates(family: str, model: nn.Module, count: int | None = None) -> list[Update]:
    """Train with Adam, with dropout drawn from one seed; return loss and gradient norm of each update."""
    data, pad = batches(family), models.dictionary().pad()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(2)
    seen = []
    for number in range(UPDATES[family] if count is None else count):
        inputs, target = data[number % BATCHES]
        optimizer.zero_grad()
        logits = model(*inputs)[0].float()
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        seen.append(Update(loss.item(), norm.item()))
    return seen


def losses_text(seen: dict[str, list[Update]]) -> str:
    """The updates of each family, with every digit."""
    rows = [
        f"{family}\t{number}\t{update.loss!r}\t{update.gradient_norm!r}"
        for family, some in seen.items()
        for number, update in enumerate(some, start=1)
    ]
    return "\n".join([HEADER, *rows]) + "\n"


def read_losses(text: str) -> dict[str, list[Update]]:
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return {
        family: [Update(float(loss), float(norm)) for _, _, loss, norm in some]
        for family, some in groupby(rows, key=lambda row: row[0])
    }


@cache
def random_numbers() -> str:
    """Some of the numbers that PyTorch draws for weights and dropout; builds without Intel's library draw others."""
    torch.manual_seed(1)
    ones = torch.ones(64)
    drawn = {
        "uniform": torch.rand(4).tolist(),
        "normal": [round(value, 4) for value in torch.randn(32)[:4].tolist()],
        "dropout": F.dropout(ones, 0.5).int().tolist(),
    }
    return "".join(f"{name}\t{' '.join(map(str, values))}\n" for name, values in drawn.items())


# Weights -------------------------------------------------------------------------------------------------------------


def weights_text(family: str, model: nn.Module) -> str:
    """Names and shapes of all entries of the state dict, in their order; a line is a module.

    A line with the family stands before them. What is not trained is marked as a buffer. Layers in a row that hold
    the same are one: ``layers.0-2``.
    """
    trained = dict(model.named_parameters(remove_duplicate=False))
    entries = [
        (name, "x".join(map(str, value.shape)) + ("" if name in trained else " buffer"))
        for name, value in model.state_dict().items()
    ]
    lines = [f"{module}\t{held}" for module, held in _modules(_layers_joined(entries))]
    return "\n".join([f"# {family}", *lines]) + "\n"


def _layers_joined(entries: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The entries; layers with the same entries are merged as ``first-last``."""
    runs: list[tuple[str, int, int, list[tuple[str, str]]]] = []
    for (stem, number), group in groupby(entries, key=lambda entry: _layer(entry[0])):
        inside = [(name.removeprefix(f"{stem}{number}."), shape) for name, shape in group]
        if runs and number >= 0 and runs[-1][0] == stem and runs[-1][2] == number - 1 and runs[-1][3] == inside:
            runs[-1] = (stem, runs[-1][1], number, inside)
        else:
            runs.append((stem, number, number, inside))
    for stem, first, last, inside in runs:
        prefix = "" if first < 0 else f"{stem}{first}." if first == last else f"{stem}{first}-{last}."
        yield from ((prefix + name, shape) for name, shape in inside)


def _layer(name: str) -> tuple[str, int]:
    """``encoder.layers.`` and the number of the layer, or no name and -1 outside the layers."""
    found = re.match(r"(\w+\.\w*layers\.)(\d+)\.", name)
    return (found[1], int(found[2])) if found else ("", -1)


def _modules(entries: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for module, group in groupby(entries, key=lambda entry: entry[0].rpartition(".")[0]):
        yield module, ", ".join(f"{name.rpartition('.')[2]} {shape}" for name, shape in group)
