"""R-Drop logs twice the ``nll_loss``, so the square of the perplexity, because it computes each sentence twice.

The tokens are counted once. ``loss``, which is the objective, remains the sum over both. Not reported upstream so far.
"""

from collections.abc import Callable
from typing import Any

from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion


def log_one_pass(forward: Callable[..., Any], criterion: Any, *args: Any, **kwargs: Any) -> Any:
    """``RdropLabelSmoothedCrossEntropyCriterion.forward``."""
    loss, sample_size, output = forward(criterion, *args, **kwargs)
    if criterion.rdrop_alpha > 0:
        output["nll_loss"] = output["nll_loss"] / 2
    return loss, sample_size, output


WRAPPED = ((RdropLabelSmoothedCrossEntropyCriterion, "forward", log_one_pass),)
