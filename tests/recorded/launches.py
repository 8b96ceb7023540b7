"""Kernels that one update launches, and how often its host waits, eager and with ``--cuda-graphs``.

Counted on the pretended GPU of ``tests/gpu``, in ``Trainer.train_step``. What a graph launches counts as one launch,
and stands in a column of its own. Views and tensors without numbers launch nothing.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq.trainer import Trainer

from tests import toy
from tests.gpu import pretend, watching
from tests.gpu.graphs import PretendedGraph

FILE = "launches.tsv"
ARCH = "pre_ln_transformer"
DEPTHS = (6, 18, 100)
"""Layers on each side."""
PRECISIONS = ("--fp16", "--bf16 --optimizer fused_adam", "--bf16")
HEADER = "layers\tflags\teager\teager waits\toutside of the graph\twaits outside\tin the graph"
FREE = ("empty", "detach", "alias", "_unsafe_view")
UPDATES = 3
"""Batches of one shape: the first trains, the second is recorded, the third is replayed."""


def launches(func: Any) -> bool:
    return not (func.is_view or any(word in str(func) for word in FREE))


def counted(data: Path, directory: Path, layers: int, flags: str) -> tuple[Counter[str], int, int]:
    """Train; return the launches of the last update by operation, its waits, and the launches of its graph."""
    seen: Counter[str] = Counter()
    found: list[tuple[Counter[str], int, int]] = []
    look, train_step, replay = pretend._look, Trainer.train_step, PretendedGraph.replay
    inside = [0]

    def listen(func: Any, *args: Any) -> None:
        seen[str(func)] += launches(func)
        look(func, *args)

    def replayed(graph: PretendedGraph) -> None:
        seen["replay of a graph"] += 1
        inside[0] = sum(launches(call[0]) for call in graph.calls)
        replay(graph)

    def update(*args: Any, **kwargs: Any) -> Any:
        seen.clear()
        pretend.SEEN.forget()
        inside[0] = 0
        result = train_step(*args, **kwargs)
        waits = sum(pretend.SEEN.reads.values()) + sum(pretend.SEEN.sends.values())
        found.append((+seen, waits, inside[0]))
        return result

    common = "--dropout 0.1 --max-tokens 2000 --fp16-init-scale 8 --ddp-backend legacy_ddp".split()
    sizes = ("--encoder-layers", str(layers), "--decoder-layers", str(layers))
    config = watching.parsed(data, directory, *common, *sizes, *flags.split(), arch=ARCH, updates=UPDATES)
    config.common.cpu, config.checkpoint.no_save = False, True
    with (
        mock.patch.object(pretend, "_look", listen),
        mock.patch.object(PretendedGraph, "replay", replayed),
        mock.patch.object(Trainer, "train_step", update),
    ):
        toy.run_training(config)
    return found[-1]


def rows(depths: Iterable[int], precisions: Iterable[str] = PRECISIONS) -> Iterator[str]:
    """Lines of the table, without its header."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = toy.binarise(directory, {"train": 40, "valid": 4})
        for layers in depths:
            for flags in precisions:
                eager, waits, _ = pretend.on_gpu(counted, data, directory / "run", layers, flags)
                graph, still, inside = pretend.on_gpu(
                    counted, data, directory / "run", layers, f"{flags} --cuda-graphs"
                )
                numbers = (eager.total(), waits, graph.total(), still, inside)
                yield "\t".join(map(str, (f"{layers}-{layers}", flags, *numbers)))


def text(depths: Iterable[int] = DEPTHS) -> str:
    return "\n".join([HEADER, *rows(depths)]) + "\n"
