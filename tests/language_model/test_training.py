"""Language models under fairseq's ``language_modeling`` task: as stock where they are stock, and every method."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor, nn

from fairseq_plugins.checkpoints.fold import fold_checkpoint
from fairseq_plugins.core.calibration import Calibrated
from fairseq_plugins.core.language_model import LANGUAGE_MODEL, DeepTransformerLanguageModel
from fairseq_plugins.core.method import Axis
from fairseq_plugins.errors import UserError
from tests.language_model import text
from tests.models import language_modeling as task
from tests.models import methods_of, tiny, tokens
from tests.representatives import for_each

UPDATES = 12
ENDS = ("--decoder-input-dim", "16", "--decoder-output-dim", "16")
ADAPTIVE = (
    "--adaptive-input-cutoff",
    "8,14",
    "--adaptive-softmax-cutoff",
    "8,14",
    "--adaptive-input-factor",
    "2",
    "--adaptive-softmax-factor",
    "2",
    "--criterion",
    "adaptive_loss",
    "--ddp-backend",
    "legacy_ddp",  # as that criterion demands
)
METHODS = methods_of(DeepTransformerLanguageModel)
"""Every method that is a language model, and the model without one."""


def losses_and_weights(
    data: Path, save_dir: Path, arch: str, *flags: str
) -> tuple[list[float], dict[str, Tensor], dict[str, Any]]:
    """The unrounded loss of every update; weights and settings after the last."""
    losses: list[float] = []
    train_step = LanguageModelingTask.train_step

    def listen(task: LanguageModelingTask, *args: Any, **kwargs: Any) -> Any:
        result = train_step(task, *args, **kwargs)
        losses.append(result[0].item())
        return result

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LanguageModelingTask, "train_step", listen)
        path = text.train(data, save_dir, arch, "--max-update", str(UPDATES), *flags)
    state = torch.load(path, weights_only=True)
    return losses, state["model"], state["cfg"]["model"]


@pytest.mark.parametrize(
    ("ours", "stock", "flags"),
    [
        ("post_ln_transformer_lm", ("transformer_lm",), ()),
        pytest.param(
            "pre_ln_transformer_lm", ("transformer_lm", "--decoder-normalize-before"), (), marks=pytest.mark.slow
        ),
        (
            "pre_ln_transformer_lm",
            ("transformer_lm", "--decoder-normalize-before"),
            ("--share-decoder-input-output-embed", "--add-bos-token"),
        ),
        ("pre_ln_transformer_lm_wiki103", ("transformer_lm_wiki103",), ADAPTIVE),
    ],
    ids=["post_ln", "pre_ln", "pre_ln, tied", "wiki103"],
)
def test_losses_and_weights_are_those_of_stock(
    data: Path, tmp_path: Path, ours: str, stock: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    our_losses, our_weights, _ = losses_and_weights(data, tmp_path / "ours", ours, *flags)
    losses, weights, _ = losses_and_weights(data, tmp_path / "stock", *stock, *ENDS, *flags)
    assert len(losses) == len(set(losses)) == UPDATES, "the model was learning"
    assert our_losses == losses
    assert list(our_weights) == list(weights)
    trained = [name for name in weights if not name.endswith("_float_tensor")]  # never written, whatever was in memory
    assert [name for name in trained if not torch.equal(our_weights[name], weights[name])] == []


def log_probabilities(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """Of each target token, ``(B, T)``, in nats, from the logits by the definition of the softmax."""
    with torch.no_grad():
        logits = model(source)[0].double()
    return (logits - logits.logsumexp(dim=-1, keepdim=True)).gather(-1, target.unsqueeze(-1)).squeeze(-1)


def bits(model: nn.Module, task: LanguageModelingTask) -> tuple[float, int]:
    """Bits of the whole test split, and the number of its tokens."""
    task.load_dataset("test")
    dataset = task.dataset("test")
    total, count = 0.0, 0
    for index in range(len(dataset)):
        one = dataset[index]
        found = log_probabilities(model, one["source"].unsqueeze(0), one["target"].unsqueeze(0))
        total, count = total - float(found.sum()) / math.log(2), count + found.numel()
    return total, count


# The layers are those of translation; a language model's own are its embedding and its way through the layers.
@for_each("method", METHODS, Axis.ATTENTION, Axis.HISTORY)
def test_every_method_learns_and_is_evaluated(
    data: Path, tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    losses, _, settings = losses_and_weights(data, tmp_path, method + LANGUAGE_MODEL.suffix)
    assert all(map(math.isfinite, losses))
    # The sums are over the tokens of batches of one size.
    assert losses[-1] < losses[0]
    assert {type(value) for value in settings.values()} <= {str, int, float, bool, type(None)}
    checkpoint = tmp_path / "checkpoint_last.pt"
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    model.eval()
    assert all(float(one.calibrated) == 1.0 for one in model.modules() if isinstance(one, Calibrated))
    total, count = bits(model, task)
    with caplog.at_level(logging.INFO):
        result = text.evaluate(data, checkpoint)
    assert f"Evaluated {count:,} tokens" in caplog.text
    # A text of one-byte characters: every token is a byte of the file, the end of a line among them.
    written = (data.parent / "text" / "test.txt").read_bytes()
    assert count == len(written)
    assert result["loss"] == pytest.approx(total / len(written), rel=1e-5)
    assert result["perplexity"] == pytest.approx(2 ** (total / count), rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_incremental_equals_full(method: str) -> None:
    model, inputs = tiny(method + LANGUAGE_MODEL.suffix), tokens()[:2]
    model.train()
    model(inputs)  # what has to see data sees it
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        model.eval()
        full = model(inputs)[0]
        state: dict[str, dict[str, Tensor | None]] = {}
        prefixes = [inputs[:, :length] for length in range(1, inputs.size(1) + 1)]
        steps = [model.decoder(prefix, incremental_state=state)[0][:, -1] for prefix in prefixes]
    assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-5)
    assert not torch.allclose(full[:, 1], full[:, 2], atol=1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_beam_search_scores_are_those_of_a_full_forward(method: str) -> None:
    """Of every hypothesis that continues a prefix: a state that is not reordered with its beam would show here."""
    model, inputs = tiny(method + LANGUAGE_MODEL.suffix), tokens()[:2, :4]
    model.train()
    model(inputs)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.eval()
    words = task().target_dictionary
    search = SequenceGenerator([model], words, beam_size=3, max_len_b=9, normalize_scores=False)
    sample = {"net_input": {"src_tokens": inputs, "src_lengths": torch.tensor([4, 4])}}
    found = task().inference_step(search, [model], sample)
    assert [len(hypotheses) for hypotheses in found] == [3, 3]
    for prefix, hypotheses in zip(inputs, found, strict=True):
        for one in hypotheses:
            assert one["tokens"][:3].tolist() == prefix[1:].tolist()
            source = torch.cat([prefix[:1], one["tokens"][:-1]]).unsqueeze(0)
            scores = log_probabilities(model, source, one["tokens"].unsqueeze(0))[0]
            assert torch.allclose(scores.float(), one["positional_scores"], atol=1e-4)


def test_calibration_sees_the_first_batch() -> None:
    """omega_1 = 1, omega_2^2 = Var(x_0) + Var(F_1): Admin's rule, from the embedding on."""
    model, seen = tiny("admin_transformer_lm", dropout=0.0).train(), {}
    layer = model.decoder.layers[0]
    handle = layer.self_attn_residual.register_forward_pre_hook(lambda _, inputs: seen.update(f=inputs[0], x=inputs[1]))
    model(tokens())
    handle.remove()
    expected = math.sqrt(float(seen["x"].var(correction=0) + seen["f"].var(correction=0)))
    assert layer.self_attn_residual.omega_profiled.unique().tolist() == [1.0]
    assert layer.ffn_residual.omega_profiled.unique().tolist() == [pytest.approx(expected, rel=1e-5)]


@pytest.mark.slow
def test_a_resumed_training_is_the_uninterrupted_one(data: Path, tmp_path: Path) -> None:
    """Above all: what has seen data does not look at the first batch after the break."""
    arch = "admin_transformer_lm"
    text.train(data, tmp_path / "once", arch, "--max-update", "6")
    for updates in ("3", "6"):
        text.train(data, tmp_path / "twice", arch, "--max-update", updates)
    first, second = (
        torch.load(tmp_path / one / "checkpoint_last.pt", weights_only=True)["model"] for one in ("once", "twice")
    )
    assert first.keys() == second.keys()
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []
    assert {float(value) for name, value in first.items() if name.endswith(".calibrated")} == {1.0}


def test_only_translation_models_are_folded(data: Path, tmp_path: Path) -> None:
    checkpoint = text.train(data, tmp_path, "admin_transformer_lm", "--max-update", "1")
    with pytest.raises(UserError, match="'admin_transformer_lm' is not a translation model; only those can be folded"):
        fold_checkpoint(checkpoint, tmp_path / "folded.pt")
