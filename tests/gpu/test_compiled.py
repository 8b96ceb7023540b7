"""``--compile-layers`` with ``--cuda-graphs``: a graph holds compiled code, and its replay is the compiled update."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_plugins.core.layers import EncoderLayer
from fairseq_plugins.training import compiled_layers
from tests.gpu import compiled
from tests.gpu.faults import counts, planted
from tests.gpu.graphs import PretendedGraph
from tests.gpu.pretend import REAL, on_gpu, pretended
from tests.gpu.test_graphs import SHAPES, Seen, assert_same, train

LAYERS = 1
"""On each side of the toy model."""


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    if not REAL:
        monkeypatch.setattr(compiled_layers, "BACKEND", compiled.BACKEND)
        monkeypatch.setattr(compiled_layers, "has_triton_package", lambda: True)


@pytest.fixture
def of_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the encoder's layers alone, which takes a third of the time."""
    found = compiled_layers.layers_of
    monkeypatch.setattr(
        compiled_layers, "layers_of", lambda model: [one for one in found(model) if isinstance(one, EncoderLayer)]
    )


class Switched(nn.Linear):
    late = False

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x).tanh(), 0.5) * (0.5 if self.late else 1.0)


@pretended
def test_a_replay_calls_the_code_that_was_recorded() -> None:
    """And no code that was made later."""
    layer = Switched(6, 6).cuda()
    call = torch.compile(compiled_layers.run, fullgraph=True, backend=compiled_layers.BACKEND)

    def update(x: Tensor) -> tuple[Tensor, Tensor]:
        layer.zero_grad()
        call(layer, x).square().sum().backward()
        assert layer.weight.grad is not None
        return x, layer.weight.grad

    def fresh(seed: int) -> list[float]:
        torch.cuda.manual_seed(seed)
        values: list[float] = update(torch.full((4, 6), float(seed), device="cuda"))[1].flatten().tolist()
        return values

    fresh(1)
    graph = torch.cuda.CUDAGraph()
    place = torch.ones(4, 6, device="cuda")
    with torch.cuda.graph(graph):
        _, gradient = update(place)

    def replayed(seed: int) -> list[float]:
        torch.cuda.manual_seed(seed)
        place.fill_(float(seed))
        graph.replay()
        values: list[float] = gradient.flatten().tolist()
        return values

    assert [replayed(seed) for seed in (2, 3)] == [fresh(seed) for seed in (2, 3)]
    assert replayed(2) != replayed(3)
    before, layer.late = replayed(4), True
    assert replayed(4) == before != fresh(4)


def pair(data: Path, directory: Path, arch: str) -> tuple[Seen, Seen, int]:
    """An eager training and one by graphs, both compiled, and the pieces of code in each graph."""
    pieces, replay = [0], PretendedGraph.replay

    def count(graph: PretendedGraph) -> None:
        pieces[0] = sum(isinstance(call[0], compiled.Kernel) for call in graph.calls)
        replay(graph)

    with mock.patch.object(PretendedGraph, "replay", count):
        eager, graphs = (
            train(data, directory / name, "--bf16", "--compile-layers", *flags, arch=f"{arch}_transformer")
            for name, flags in (("eager", ()), ("graphs", ("--cuda-graphs",)))
        )
    return eager, graphs, pieces[0]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["admin", "hyper_connections"])
def test_a_training(arch: str, toy_data: Path, tmp_path: Path) -> None:
    """Forward and backward pass of each layer are pieces of code in the graph."""
    eager, graphs, pieces = on_gpu(pair, toy_data, tmp_path, arch)
    assert (graphs.warnings, graphs.shapes, graphs.replayed) == ([], SHAPES, graphs.batches - 2 * SHAPES)
    assert REAL or pieces == 2 * 2 * LAYERS
    assert_same(eager, graphs)


@pytest.mark.slow
def test_a_layer_that_counts_is_found(of_encoder: None, toy_data: Path, tmp_path: Path) -> None:
    """A number of Python is an argument of compiled code, and a graph has the one that was recorded."""
    with planted(EncoderLayer, counts):
        _, graphs, _ = on_gpu(pair, toy_data, tmp_path, "post_ln")
    assert (graphs.shapes, graphs.replayed) == (0, 0)
    assert "a replay has other numbers" in graphs.warnings[0]


@pytest.mark.slow
def test_code_that_is_made_after_the_recording_is_missing(of_encoder: None, toy_data: Path, tmp_path: Path) -> None:
    """The fault that ``test_a_training`` would show: from the first replay on, the numbers are others."""
    step = Trainer.train_step

    def switch(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        EncoderLayer.late = trainer.get_num_updates() >= 2 * SHAPES  # type: ignore[attr-defined]
        return step(trainer, *args, **kwargs)

    def fault(layer: Any, x: Tensor) -> Tensor:
        return x * (0.5 if layer.late else 1.0)

    with planted(EncoderLayer, fault), mock.patch.object(Trainer, "train_step", switch):
        eager, graphs, pieces = on_gpu(pair, toy_data, tmp_path, "post_ln")
    assert REAL or pieces == 2 * LAYERS
    assert graphs.updates[: 2 * SHAPES] == eager.updates[: 2 * SHAPES]
    assert graphs.updates[2 * SHAPES] != eager.updates[2 * SHAPES]
