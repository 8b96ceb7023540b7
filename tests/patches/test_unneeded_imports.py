"""fairseq is imported without what few of its users need, and they get it."""

from __future__ import annotations

import pytest

from fairseq_plugins.patches.unneeded_imports import StandIn
from tests import processes

PROGRAM = """
import sys
import fairseq_plugins
from fairseq.criterions import sentence_prediction as criterion
from fairseq.tasks import audio_classification as task

assert not {"sklearn", "scipy"} & sys.modules.keys()
preds, labels = [0, 1, 1, 1], [0, 1, 0, 1]
print(criterion.acc_and_f1(criterion.np.array(preds), criterion.np.array(labels))["f1"])
print(criterion.matthews_corrcoef(preds, labels))
print(criterion.pearson_and_spearman(preds, labels)["pearson"])
print(*task.sklearn_metrics.roc_curve(labels, preds)[0])
"""


def test_a_stand_in_calls_the_real_function() -> None:
    assert StandIn("math").sqrt(4.0) == 2.0
    assert not hasattr(StandIn("math"), "__file__")


@pytest.mark.slow
def test_the_task_and_the_criterion_have_the_real_functions() -> None:
    """Of four predictions three are right: F1 2 * 2 / (2 * 2 + 1), correlations 1 / sqrt(3)."""
    ended = processes.python("-c", PROGRAM)
    assert ended.code == 0, ended.errors
    *numbers, rates = ended.output.splitlines()
    assert [float(number) for number in numbers] == pytest.approx([0.8, 3**-0.5, 3**-0.5])
    assert [float(rate) for rate in rates.split()] == [0.0, 0.5, 1.0]
