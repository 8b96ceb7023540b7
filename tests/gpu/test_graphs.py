"""``--cuda-graphs`` on the pretended GPU: every number is that of eager training, bit for bit, or the log says why."""

import itertools
import logging
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig

from fairseq_plugins.core import recorded
from fairseq_plugins.core.layers import EncoderLayer
from fairseq_plugins.core.method import METHODS
from fairseq_plugins.training import cuda_graphs
from fairseq_plugins.training.cuda_graphs import ATTRIBUTE, Graphs
from tests import texts, toy
from tests.faults.exact import differences
from tests.gpu.faults import Fault, counts, is_noisy, planted, reads, sends
from tests.gpu.pretend import REAL, on_gpu
from tests.gpu.watching import parsed
from tests.language_model import text
from tests.representatives import slow_but

ADMIN = "admin_transformer"
SHAPES = 2
"""Shapes of the toy corpus, each in one batch of an epoch."""
PRECISIONS = ("--fp16", "--bf16", "--amp", "--amp --bf16", "--memory-efficient-fp16", "float32")

on_pretended = pytest.mark.skipif(REAL, reason="the fault would break the real GPU's context for the other tests")


class Seen(NamedTuple):
    """Gradient norm, sample size and losses of each update; the checkpoint; and the graphs' state at the end."""

    updates: list[Any]
    state: dict[str, Any]
    shapes: int
    batches: int
    replayed: int
    stopped: str
    warnings: list[str]


def train(
    data: Path, directory: Path, *flags: str, arch: str = ADMIN, updates: int = 6, layers: int = 1, parse: Any = parsed
) -> Seen:
    """Train with dropout everywhere; every update's own numbers, unrounded."""
    numbers: list[Any] = []
    kept: list[Trainer] = []
    warnings: list[str] = []
    report = Trainer._reduce_and_log_stats

    def listen(trainer: Trainer, outputs: Any, size: Any, norm: Any = None) -> Any:
        if norm is not None:
            kept[:] = [trainer]
            found = [{name: float(value) for name, value in output.items()} for output in outputs]
            numbers.append((float(norm), float(size), found))
        return report(trainer, outputs, size, norm)

    dropout = ("--dropout", "0.1", "--attention-dropout", "0.1", "--activation-dropout", "0.1")
    given = [flag for part in flags for flag in part.split() if flag != "float32"]
    common = f"--max-tokens 700 --fp16-init-scale 8 --ddp-backend legacy_ddp --length-grid 1 --decoder-layers {layers}"
    common += f" --encoder-layers {layers}" * (parse is parsed)
    config = parse(data, directory, *dropout, *common.split(), *given, arch=arch, updates=updates)
    config.common.cpu = False
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    with mock.patch.object(Trainer, "_reduce_and_log_stats", listen):
        for logger in (cuda_graphs.logger, recorded.logger):
            logger.addHandler(handler)
        toy.run_training(config)
    state = torch.load(directory / "checkpoint_last.pt", weights_only=False)
    graphs: Graphs | None = getattr(kept[0], ATTRIBUTE, None)
    if graphs is None:
        return Seen(numbers, state, 0, 0, 0, "", warnings)
    made = (len(graphs.graphs), graphs.counts["batches"], graphs.counts["replayed"])
    return Seen(numbers, state, *made, graphs.stopped, warnings)


def assert_same(eager: Seen, graphs: Seen) -> None:
    assert graphs.updates == eager.updates
    for part in ("model", "last_optimizer_state", "extra_state"):
        clocks = ("metrics", "previous_training_time")
        first, second = (
            {name: value for name, value in dict(seen.state[part]).items() if name not in clocks}
            for seen in (eager, graphs)
        )
        assert differences(first, second) == [], part


def same_by_graphs(data: Path, directory: Path, *flags: str, **settings: Any) -> Seen:
    """Train eagerly and by graphs, with the same numbers."""
    eager, graphs = (
        on_gpu(train, data, directory / (more or "eager"), *flags, more, **settings) for more in ("", "--cuda-graphs")
    )
    assert_same(eager, graphs)
    return graphs


def assert_replayed(data: Path, directory: Path, *flags: str, **settings: Any) -> Seen:
    """The numbers are the same, and every batch of a shape is replayed from its third on."""
    graphs = same_by_graphs(data, directory, *flags, **settings)
    assert (graphs.stopped, graphs.warnings) == ("", [])
    assert graphs.shapes == SHAPES
    assert graphs.replayed == graphs.batches - 2 * SHAPES
    return graphs


@pytest.mark.parametrize("method", slow_but(("sigma_reparam",), METHODS))
def test_every_method(method: str, toy_data: Path, tmp_path: Path) -> None:
    assert_replayed(toy_data, tmp_path, "--fp16", arch=f"{method}_transformer", layers=2)


@pytest.mark.parametrize("precision", slow_but(("--amp",), PRECISIONS[1:]))
def test_every_precision(precision: str, toy_data: Path, tmp_path: Path) -> None:
    assert_replayed(toy_data, tmp_path, precision)


FEATURES = {
    "moving average": "--bf16 --store-ema --ema-fp32 --ema-start-update 1 --ema-decay 0.9",
    "fused_adam": "--bf16 --optimizer fused_adam",
    "lists of weights": "--fp16 --fp16-no-flatten-grads --optimizer lamb",
    "tables for each stack": "--fp16 --weight-decay 0.1 --share-all-embeddings",
    "word dropout": "--fp16 --word-dropout 0.2",
    "alignment of the loss": "--fp16 --ignore-prefix-size 1",
    "loss by sentence": "--fp16 --criterion label_smoothed_cross_entropy_by_sentence",
    "chunked loss": "--fp16 --criterion chunked_label_smoothed_cross_entropy",
    "chunked loss, kept": "--bf16 --criterion chunked_label_smoothed_cross_entropy_with_diagnostics",
    "guard": "--fp16 --criterion label_smoothed_cross_entropy_with_diagnostics --divergence-action skip",
}


@pytest.mark.parametrize("feature", slow_but(("guard",), FEATURES))
def test_every_feature(feature: str, toy_data: Path, tmp_path: Path) -> None:
    assert_replayed(toy_data, tmp_path, FEATURES[feature])


def of_text(data: Path, directory: Path, *flags: str, arch: str, updates: int) -> DictConfig:
    return text.parse_training(data, directory, arch, "--max-update", str(updates), *flags)


BLOCKS = ("--bf16 --max-tokens 512", 3)
SENTENCES = ("--fp16 --max-tokens 300 --sample-break-mode eos --tokens-per-sample 31 --length-grid 1.1", 2)


@pytest.mark.parametrize(("flags", "shapes"), [BLOCKS, pytest.param(*SENTENCES, marks=pytest.mark.slow)])
def test_a_language_model(flags: str, shapes: int, characters: Path, tmp_path: Path) -> None:
    """Language models have graphs for blocks of one length, and for sentences on the grid."""
    graphs = same_by_graphs(characters, tmp_path, flags, arch="admin_transformer_lm", parse=of_text, updates=14)
    assert (graphs.warnings, graphs.shapes) == ([], shapes)
    assert graphs.replayed > 0


@pytest.mark.slow
def test_several_batches_an_update_whose_results_share_memory(toy_data: Path, tmp_path: Path) -> None:
    graphs = same_by_graphs(toy_data, tmp_path, "--bf16 --update-freq 3")
    assert (graphs.shapes, graphs.stopped) == (SHAPES, "")
    assert graphs.replayed > SHAPES


@pytest.mark.slow
def test_the_loss_scale_is_not_recorded(toy_data: Path, tmp_path: Path) -> None:
    """It overflows at first, and doubles every four updates."""
    flags = "--fp16 --fp16-init-scale 262144 --fp16-scale-window 4"
    graphs = assert_replayed(toy_data, tmp_path, flags, updates=20)
    assert graphs.batches > len(graphs.updates) == 20


@pytest.mark.slow
def test_an_update_that_is_recorded_is_eager(toy_data: Path, tmp_path: Path) -> None:
    flags = "--fp16 --criterion label_smoothed_cross_entropy_with_diagnostics --diagnostics-interval 5"
    graphs = same_by_graphs(toy_data, tmp_path, flags, updates=8)
    assert (graphs.shapes, graphs.replayed) == (SHAPES, 3)  # the fifth update has hooks
    entries = [(tmp_path / name / "recorder.jsonl").read_text() for name in ("eager", "--cuda-graphs")]
    assert entries[0] == entries[1]


@pytest.mark.slow
def test_a_training_stopped_and_resumed_is_the_uninterrupted_one(toy_data: Path, tmp_path: Path) -> None:
    whole = on_gpu(train, toy_data, tmp_path / "eager", "--fp16", updates=12)
    first = on_gpu(train, toy_data, tmp_path / "parts", "--fp16", "--cuda-graphs", updates=6)
    rest = on_gpu(train, toy_data, tmp_path / "parts", "--fp16", "--cuda-graphs", updates=12)
    assert rest.replayed == 2  # each shape is new to this process
    assert first.updates + rest.updates == whole.updates
    assert differences(rest.state["model"], whole.state["model"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "--reset-optimizer"])
def test_a_resumed_training_by_fused_adam(more: str, toy_data: Path, tmp_path: Path) -> None:
    seen = []
    for name in ("eager", "--cuda-graphs"):
        flags = ("--bf16 --optimizer fused_adam", name.replace("eager", ""))
        on_gpu(train, toy_data, tmp_path / name, *flags, updates=4)
        seen.append(on_gpu(train, toy_data, tmp_path / name, *flags, more, updates=12))
    assert_same(*seen)
    assert seen[1].replayed > 0


@pytest.mark.slow
def test_a_layer_in_evaluation_mode_is_set_back_before_each_update(toy_data: Path, tmp_path: Path) -> None:
    """fairseq's trainer sets it back, too; each batch that is not replayed has its dropout."""
    set_seed = Trainer._set_seed

    def evaluate(trainer: Trainer) -> None:
        trainer.get_model().encoder.layers[0].eval()
        set_seed(trainer)

    with mock.patch.object(Trainer, "_set_seed", evaluate):
        assert_replayed(toy_data, tmp_path, "--bf16", "--optimizer", "fused_adam")


# Faults that a graph must not hide ------------------------------------------------------------------------------------


def assert_eager(data: Path, directory: Path, why: str, *flags: str, **settings: Any) -> None:
    """For each fault, the numbers are those of eager training, and one line says why."""
    (warning,) = same_by_graphs(data, directory, *flags, **settings).warnings
    assert why in warning


@on_pretended
@pytest.mark.parametrize("fault", slow_but((reads,), (reads, sends)))
def test_a_layer_that_asks_or_sends_stays_eager(fault: Fault, toy_data: Path, tmp_path: Path) -> None:
    with planted(EncoderLayer, fault):
        assert_eager(toy_data, tmp_path, "the host waits for the GPU at ", "--bf16")


def test_a_layer_that_counts_is_found_before_its_first_replay(toy_data: Path, tmp_path: Path) -> None:
    with planted(EncoderLayer, counts):
        eager = on_gpu(train, toy_data, tmp_path / "eager", "--bf16")
        graphs = on_gpu(train, toy_data, tmp_path / "graphs", "--cuda-graphs", "--bf16")
    assert (graphs.shapes, graphs.replayed) == (0, 0)
    assert "a replay has other numbers" in graphs.warnings[0]
    assert graphs.updates[: SHAPES + 1] == eager.updates[: SHAPES + 1]


def test_a_replay_may_differ_as_much_as_eager_gradients_differ_by_themselves(toy_data: Path, tmp_path: Path) -> None:
    """The noise of the encoder's gradients hides no wrong gradient of another parameter."""
    replay = Graphs._replay

    def wrong(graphs: Graphs, *args: Any) -> Any:
        result = replay(graphs, *args)
        graphs._trainer.get_model().decoder.layers[0].final_layer_norm.weight.grad.mul_(1.001)
        return result

    with planted(EncoderLayer, is_noisy):
        graphs = on_gpu(train, toy_data, tmp_path / "noise", "--cuda-graphs")
        assert (graphs.shapes, graphs.replayed, graphs.warnings) == (SHAPES, graphs.batches - 2 * SHAPES, [])
        with mock.patch.object(Graphs, "_replay", wrong):
            refused = on_gpu(train, toy_data, tmp_path / "wrong", "--cuda-graphs")
    assert (refused.shapes, refused.replayed, len(refused.warnings)) == (0, 0, SHAPES)


@pytest.mark.slow
def test_long_sentences(tmp_path: Path) -> None:
    """Some attention kernels of a real GPU, all of cuDNN's among them, add up gradients in another order each time."""
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    for language in ("de", "en"):
        texts.write(tmp_path / "text" / f"train.{language}", [" ".join(toy.WORDS[:10] * 20)] * 8)
    data = toy.binarise_text(tmp_path, ["train"])
    sizes = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim 512", "attention-heads 8")]
    flags = (*sizes, "--attention-dropout 0 --max-tokens 850 --bf16 --optimizer fused_adam")
    graphs = on_gpu(train, data, tmp_path / "run", "--cuda-graphs", *flags)
    assert (graphs.shapes, graphs.replayed, graphs.warnings) == (1, graphs.batches - 2, [])


def test_one_shape_with_other_numbers_leaves_the_others_their_graphs(toy_data: Path, tmp_path: Path) -> None:
    alone = Graphs._alone
    shapes: list[torch.Size] = []

    def wrong(graphs: Graphs, compute: Any, sample: Any) -> Any:
        loss, *rest = alone(graphs, compute, sample)
        shapes.append(sample["target"].shape)
        return (2 * loss if sample["target"].shape == shapes[0] else loss, *rest)

    with mock.patch.object(Graphs, "_alone", wrong):
        graphs = same_by_graphs(toy_data, tmp_path, "--bf16", updates=8)
    assert (graphs.shapes, graphs.stopped) == (SHAPES - 1, "")
    assert graphs.replayed == 2 * (SHAPES - 1)
    (warning,) = graphs.warnings  # the shape is not recorded again
    assert "computes one shape of a batch without CUDA graphs: a replay has other numbers" in warning


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


@pytest.mark.slow
def test_out_of_memory_while_recording(toy_data: Path, tmp_path: Path) -> None:
    with mock.patch.object(Graphs, "_alone", out_of_memory):
        assert_eager(toy_data, tmp_path, "out of memory", "--bf16")


@pytest.mark.slow
def test_out_of_memory_later_gives_the_memory_of_the_graphs_back(toy_data: Path, tmp_path: Path) -> None:
    """An eager batch that does not fit next to the graphs is computed once more without them, with the same dropout."""
    compute = FairseqTask.train_step
    calls = itertools.count()

    def full(task: Any, *args: Any, **kwargs: Any) -> Any:
        result = compute(task, *args, **kwargs)
        if next(calls) == SHAPES + 1:  # the second batch of the second shape
            out_of_memory()
        return result

    eager = on_gpu(train, toy_data, tmp_path / "eager", "--bf16")
    with mock.patch.object(FairseqTask, "train_step", full):
        graphs = on_gpu(train, toy_data, tmp_path / "graphs", "--cuda-graphs", "--bf16")
    assert_same(eager, graphs)
    assert graphs.warnings == ["--cuda-graphs: the training goes on without CUDA graphs: out of memory"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--checkpoint-activations", "--checkpoint-activations"),
        ("--encoder-layerdrop 0.1", "--encoder-layerdrop or --decoder-layerdrop"),
        ("--report-accuracy", "--report-accuracy"),
        ("--criterion label_smoothed_cross_entropy_with_rdrop", "--criterion label_smoothed_cross_entropy_with_rdrop"),
    ],
)
def test_what_stands_in_the_way_is_said(flags: str, why: str, toy_data: Path, tmp_path: Path) -> None:
    seen = on_gpu(train, toy_data, tmp_path, "--cuda-graphs", *flags.split(), updates=1)
    assert seen.warnings == [f"--cuda-graphs has no effect: {why}"]
    assert len(seen.updates) == 1
