"""``python -m tests.recorded.record [NAME ...]``: write the numbers of this revision, to compare with ``git diff``.

A NAME restricts the work to the files whose path contains it: ``fading`` for a method, ``interface`` for the options.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

import fairseq_plugins  # noqa: F401  (registers the methods)
from fairseq_plugins.files import write_whole
from tests import models
from tests.recorded import checkpoints, interface, launches, numbers

HERE = Path(__file__).parent


def everything(names: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Every text that is recorded, by its path below this directory; or those that one of ``names`` is in."""

    def wanted(path: str) -> bool:
        return not names or any(name in path for name in names)

    if wanted("random_numbers.tsv"):
        yield "random_numbers.tsv", numbers.random_numbers()
    for case in filter(wanted, models.CASES):
        built = {family: numbers.build(family, case) for family in numbers.families(case)}
        weights = [numbers.weights_text(family, model) for family, model in built.items()]
        yield f"weights/{case}.tsv", "".join(weights)
        seen = {family: numbers.updates(family, model) for family, model in built.items()}
        yield f"losses/{case}.tsv", numbers.losses_text(seen)
    folders = {"interface": interface.texts, "checkpoints": checkpoints.texts}
    for folder in filter(wanted, folders):
        for name, text in folders[folder]():
            yield f"{folder}/{name}", text
    if wanted(launches.FILE):
        yield launches.FILE, launches.text()


def main(names: Sequence[str]) -> int:
    """Write the files that differ; without ``names``, also delete those without a source."""
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    texts = dict(everything(names))
    for name, text in texts.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)
            print(name)
    for name in recorded() if not names else ():
        if name not in texts:
            (HERE / name).unlink()
            print(f"{name}: removed")
    return 0


def recorded() -> list[str]:
    folders = ("losses", "weights", "interface")
    return [str(path.relative_to(HERE)) for folder in folders for path in sorted((HERE / folder).glob("*"))]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
