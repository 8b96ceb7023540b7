"""Chunked loss: the stock criterion's loss, log and gradients, with no tensor of all the logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.training import chunked_loss
from tests import models, processes, toy
from tests.refusals import refused
from tests.representatives import slow_but
from tests.search.searching import sample_of

PLAIN, SMOOTHED = "cross_entropy", "label_smoothed_cross_entropy"
WORDS = models.WORDS
PAD = models.dictionary().pad()
TABLE = "decoder.output_projection.weight"


@pytest.fixture(autouse=True)
def five_tokens_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the small batches need several chunks, the last of them shorter."""
    monkeypatch.setattr(chunked_loss, "LOGITS", 5 * WORDS)


def criterion(name: str, **settings: Any) -> Any:
    if SMOOTHED in name:
        settings = {"label_smoothing": 0.1, **settings}
    return CRITERION_REGISTRY[name](models.task(), sentence_avg=False, **settings)


def sample(language_model: bool = False) -> dict[str, Any]:
    """Sentences of which some have pads."""
    given = sample_of(models.batch())
    if language_model:
        text, target = models.text()
        given = {"net_input": {"src_tokens": text}, "target": target}
    return {**given, "ntokens": int(given["target"].ne(PAD).sum())}


def gradients(one: Any, model: nn.Module, given: dict[str, Any], scale: float = 1.0) -> dict[str, Tensor]:
    model.zero_grad()
    loss, size, _ = one(model, given)
    (loss * scale / size).backward()
    return {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None}


def far(found: Tensor, wanted: Tensor) -> float:
    """Distance relative to the length of ``wanted``, both in double precision."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30))


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in values.values()])


TIED = {"share_decoder_input_output_embed": True}
MODELS = {
    "separate tables": ("transformer", {}),
    "tied": ("transformer", TIED),
    "all tied": ("transformer", {"share_all_embeddings": True}),
    "fixup": ("fixup_transformer", TIED),
    "dsinit_matt": ("dsinit_matt_transformer", {}),
    "language model": ("rezero_transformer_lm", {}),
}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "smoothed": (SMOOTHED, {}),
    "not smoothed": (SMOOTHED, {"label_smoothing": 0.0}),
    "much smoothed": (SMOOTHED, {"label_smoothing": 0.6, "report_accuracy": True}),
    "prefix": (SMOOTHED, {"ignore_prefix_size": 2, "report_accuracy": True}),
}


PAIRS = [(case, name) for case in MODELS for name in SETTINGS if case == "separate tables" or name == "much smoothed"]


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_loss_log_and_gradients_are_those_of_the_stock_criterion(case: str, name: str) -> None:
    arch, tables = MODELS[case]
    kind, settings = SETTINGS[name]
    model = models.tiny(arch, **tables, dropout=0.0)
    given = sample(language_model=case == "language model")
    stock, chunked = (criterion(prefix + kind, **settings) for prefix in ("", "chunked_"))
    wanted, found = (one(model, given) for one in (stock, chunked))
    assert found[0].item() == pytest.approx(wanted[0].item(), rel=1e-6)
    assert found[2].keys() == wanted[2].keys()
    for key, value in wanted[2].items():
        assert float(found[2][key]) == pytest.approx(float(value), rel=1e-6), key
    usual, ours = (gradients(one, model, given) for one in (stock, chunked))
    assert ours.keys() == usual.keys()
    # 40 additions in another order move the last of 24 bits by some units.
    assert far(flat(ours), flat(usual)) < 1e-6
    assert TABLE not in usual or far(ours[TABLE], usual[TABLE]) < 1e-6
    assert "output_layer" not in vars(model.decoder)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.bfloat16, 1.0), (torch.float16, 128.0), (torch.float16, 2.0**16)])
def test_half_precision_is_as_near_to_single_as_the_stock_criterion(dtype: torch.dtype, scale: float) -> None:
    """With the scale of ``--fp16``'s loss; the table's rows of rare words have small gradients, which must not be 0."""
    model, given = models.tiny("transformer", dropout=0.0).to(dtype), sample()
    single = models.tiny("transformer", dropout=0.0)
    single.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    exact = gradients(criterion(SMOOTHED), single, given)
    found, stock = (
        {key: value / scale for key, value in gradients(criterion(prefix + SMOOTHED), model, given, scale).items()}
        for prefix in ("chunked_", "")
    )
    for name in (TABLE, "decoder.layers.1.fc2.weight", "encoder.layers.0.fc1.weight"):
        assert far(found[name], exact[name]) < 1.5 * far(stock[name], exact[name]), name
    loss, wanted = (criterion(prefix + SMOOTHED)(model, given)[0] for prefix in ("chunked_", ""))
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)


def test_under_autocast_the_table_has_a_gradient_in_float32() -> None:
    model, given = models.tiny("transformer", dropout=0.0), sample()
    exact = gradients(criterion(SMOOTHED), model, given)
    with torch.autocast("cpu", torch.bfloat16):
        stock, found = (gradients(criterion(prefix + SMOOTHED), model, given) for prefix in ("", "chunked_"))
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}
    assert far(flat(found), flat(exact)) < 1.2 * far(flat(stock), flat(exact)) < 0.03  # bfloat16 rounds to 2^-9
    assert far(found[TABLE], exact[TABLE]) < 1.2 * far(stock[TABLE], exact[TABLE])


class Largest(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, Tensor):
                self.numbers = max(self.numbers, one.untyped_storage().nbytes() // one.element_size())
        return result


def test_no_tensor_has_all_logits() -> None:
    words, tokens = 3000, 3 * 40
    model = models.tiny("transformer", source=words, target=words, share_all_embeddings=True)
    draw = torch.Generator().manual_seed(1)
    target = torch.randint(4, words, (3, 40), generator=draw)
    given = {**sample_of(models.batch(3, longest=41)), "target": target, "ntokens": tokens}
    largest = {}
    for prefix in ("", "chunked_"):
        one = CRITERION_REGISTRY[prefix + SMOOTHED](models.task(words, words), sentence_avg=False, label_smoothing=0.1)
        with Largest() as seen:
            gradients(one, model, given)
        largest[prefix] = seen.numbers
    assert largest[""] == tokens * words
    assert largest["chunked_"] == words * 16  # the table and its gradient


def test_a_batch_of_pads_has_no_loss() -> None:
    model, given = models.tiny("transformer", dropout=0.0), sample()
    given["target"] = torch.full_like(given["target"], PAD)
    loss, _, log = criterion("chunked_" + SMOOTHED, report_accuracy=True)(model, given)
    loss.backward()
    assert (loss.item(), log["total"], log["n_correct"]) == (0, 0, 0)
    assert model.decoder.output_projection.weight.grad.abs().sum() == 0


def test_another_output_layer_is_refused_in_one_line() -> None:
    biased = models.tiny("transformer")
    biased.decoder.output_projection = nn.Linear(16, WORDS)
    adaptive = models.tiny("transformer", adaptive_softmax_cutoff="8,16", decoder_output_dim=16)
    for model in (adaptive, biased, nn.Linear(2, 2)):
        assert "a linear map without bias" in refused(criterion("chunked_" + SMOOTHED), model, sample())


def moved(found: dict[str, Tensor], wanted: dict[str, Tensor], start: dict[str, Tensor]) -> float:
    """Distance between two trainings relative to the way they went."""
    return float((flat(found) - flat(wanted)).norm() / (flat(wanted) - flat(start)).norm())


COMMON = ("--no-epoch-checkpoints", "--optimizer", "sgd", "--lr", "0.05", "--report-accuracy")


def test_a_training_changes_to_it_and_makes_the_stock_updates(toy_data: Path, tmp_path: Path) -> None:
    """The optimizer is sgd, since Adam's first steps make a sign of a gradient that is nearly 0."""
    start = toy.weights_of(toy.train_toy(toy_data, tmp_path / "start", *COMMON, "--max-update", "1"))
    stock = toy.weights_of(toy.train_toy(toy_data, tmp_path / "stock", *COMMON, "--max-update", "9"))
    for update, name in ((3, SMOOTHED), (6, f"{SMOOTHED}_in_chunks_with_diagnostics"), (9, f"chunked_{SMOOTHED}")):
        path = toy.train_toy(toy_data, tmp_path / "mixed", *COMMON, "--max-update", str(update), "--criterion", name)
    assert moved(toy.weights_of(path), stock, start) < 1e-5
    assert (tmp_path / "mixed" / "recorder.jsonl").is_file()


BACKENDS = {
    "find unused": ("--ddp-backend", "pytorch_ddp", "--find-unused-parameters"),
    "tied": ("--ddp-backend", "pytorch_ddp", "--find-unused-parameters", "--share-all-embeddings"),
    "default": ("--ddp-backend", "pytorch_ddp"),
    "legacy": ("--ddp-backend", "legacy_ddp", "--share-all-embeddings"),
}


@pytest.mark.parametrize("backend", slow_but(("find unused",), BACKENDS))
def test_two_processes_make_the_stock_updates(backend, toy_data, tmp_path, monkeypatch):
    processes.fork_ranks(monkeypatch)
    found = {}
    for prefix, updates in (("", 1), ("", 4), ("chunked_", 4)):
        directory = tmp_path / f"{prefix}{updates}"
        flags = (*COMMON, *BACKENDS[backend], "--criterion", prefix + SMOOTHED)
        flags = (*flags, "--max-update", str(updates), "--distributed-world-size", "2")
        distributed_utils.call_main(toy.parse_training(toy_data, directory, *flags), train.main)
        found[prefix, updates] = toy.weights_of(directory / "checkpoint_last.pt")
    assert moved(found["chunked_", 4], found["", 4], found["", 1]) < 1e-5
