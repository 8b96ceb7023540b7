"""Language models under fairseq's ``language_modeling`` task: as stock where they are stock, and every method."""

import logging
import math

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor, nn

from fairseq_plugins.core.calibration import Calibrated
from fairseq_plugins.core.language_model import LANGUAGE_MODEL, DeepTransformerLanguageModel
from tests.language_model import text
from tests.models import language_modeling as task
from tests.models import methods_of
from tests.representatives import slow_but
from tests.toy import losses_of

UPDATES = 12
METHODS = methods_of(DeepTransformerLanguageModel)
"""Every method that is a language model, and the model without one."""


def log_probabilities(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """Log-probabilities of the target tokens, ``(B, T)``, in nats, from the logits by the definition of the softmax."""
    with torch.no_grad():
        logits = model(source)[0].double()
    return (logits - logits.logsumexp(dim=-1, keepdim=True)).gather(-1, target.unsqueeze(-1)).squeeze(-1)


def bits(model: nn.Module, task: LanguageModelingTask) -> tuple[float, int]:
    task.load_dataset("test")
    dataset = task.dataset("test")
    total, count = 0.0, 0
    for index in range(len(dataset)):
        block = dataset[index]
        scores = log_probabilities(model, block["source"].unsqueeze(0), block["target"].unsqueeze(0))
        total, count = total - float(scores.sum()) / math.log(2), count + scores.numel()
    return total, count


# The layers are those of translation; a language model's own are its embedding and its way through the layers.
@pytest.mark.parametrize("method", slow_but(("admin", "dlcl", "realformer"), METHODS))
def test_every_method_learns_and_is_evaluated(characters, tmp_path, method, caplog):
    arch = method + LANGUAGE_MODEL.suffix
    losses, state = losses_of(
        LanguageModelingTask, lambda: text.train(characters, tmp_path, arch, "--max-update", str(UPDATES))
    )
    settings = state["cfg"]["model"]
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
        result = text.evaluate(characters, checkpoint)
    assert f"Evaluated {count:,} tokens" in caplog.text
    # A text of one-byte characters: every token is a byte of the file, the end of a line among them.
    written = (characters.parent / "text" / "test.txt").read_bytes()
    assert count == len(written)
    assert result["loss"] == pytest.approx(total / len(written), rel=1e-5)
    assert result["perplexity"] == pytest.approx(2 ** (total / count), rel=1e-5)


def test_fairseq_interactive_reads_lines() -> None:
    """Each without its end, and behind the end of another: the search continues it."""
    lines = task().build_dataset_for_inference([torch.tensor([7, 8, 2]), torch.tensor([9, 2])], [3, 2])
    assert [line["net_input.src_tokens"].tolist() for line in map(lines.__getitem__, range(2))] == [[2, 7, 8], [2, 9]]
