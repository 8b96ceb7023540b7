"""DenseFormer: after each layer a trained weighted average over its output and the outputs of all layers below."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.history import History
from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part
from fairseq_plugins.methods.shared.state_buffer import BufferedStates, with_state


class DepthWeightedAverage(History):
    """Mixes every ``dilation``-th state, the newest first, after every ``period``-th layer. Shapes ``(T, B, C)``.

    Starts as the identity, so as a plain Transformer. Entries of the weights that no mixture reads stay 0 and 1.
    Averages of all states, after each layer, are one product each (:mod:`fairseq_plugins.methods.shared.state_buffer`).
    Those with a dilation or a period are added up state by state.
    """

    def __init__(self, layers: int, dilation: int, period: int) -> None:
        super().__init__()
        self.dilation, self.period = dilation, period
        self.buffered = dilation == period == 1
        self.weight = nn.Parameter(torch.eye(layers + 1))

    def forward(self, states: list[Tensor]) -> Tensor:
        """Return the weighted sum of the states, ``(T, B, C)``."""
        if isinstance(states, BufferedStates):
            return states.mix()
        last = len(states) - 1
        mixture = states[last]
        if last == 0 or last % self.period != 0:
            return mixture
        row = self.weight[last].unbind(0)
        mixture = mixture * row[last]
        for number in range(last - self.dilation, -1, -self.dilation):
            mixture = torch.addcmul(mixture, states[number], row[number])
        return mixture

    def remember(self, states: list[Tensor], x: Tensor) -> list[Tensor]:
        """Append the layer's output X_i to the states."""
        return with_state(states, x, lambda: self.weight) if self.buffered else states + [x]


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse a period after which no mixture would be left."""
    period, layers = design.options.denseformer_period, design.layers
    if 0 < layers < period:
        return [f"--denseformer-period {period} is more than the {layers} layers of the {design.stack.value}"]
    return []


@part(
    Axis.LAYER_AGGREGATION,
    "denseformer",
    summary="a trained weighted average of the output of the layer below and of the outputs below that",
    options=(
        Option("denseformer_dilation", 1, "an average takes every so many-th output, the newest first", least=1),
        Option("denseformer_period", 1, "there is an average after every so many-th layer", least=1),
    ),
    parameters=(
        NewParameter(
            "history.weight",
            "(N+1, N+1)",
            "$`1`$ on the diagonal, 0 elsewhere; row $`i`$ is used after layer $`i`$, row 0 and what is right of the "
            "diagonal never",
        ),
    ),
    conflicts=conflicts,
    no_fold="stock fairseq has no layer that reads more than the one below it",
)
def build(design: StackDesign) -> History:
    """Build the averages of a stack."""
    return DepthWeightedAverage(design.layers, design.options.denseformer_dilation, design.options.denseformer_period)


method(
    "denseformer",
    title="DenseFormer",
    paper="Pagliardini et al., NeurIPS 2024, https://arxiv.org/abs/2402.02622",
    equation=(
        r"$`x_{i+1} = \sum_{j \leq i} a_{ij} X_j`$ is the input of layer $`i + 1`$ (section 3), $`a_{ii} = 1`$ and "
        "$`a_{ij} = 0`$ at first; $`X_0`$ is the embedding, $`X_i`$ the output of layer $`i`$, the layers are Pre-LN, "
        "and the last average goes through the LayerNorm on top of the stack"
    ),
    norm_position="pre",
    layer_aggregation="denseformer",
    base_init="fairseq",
    departures=(
        r"The released code ([DenseFormer](https://github.com/epfml/DenseFormer), revision c99a623) stores only the "
        r"weights that are used; here they are the rows of one matrix, as in DLCL, whose other entries stay as they "
        r"start. The code draws weights from $`\mathcal{N}(0, 0.02^2)`$, and divides the outputs of attention and "
        r"feed-forward by $`\sqrt{2 N}`$. Here the default is `--base-init fairseq`.",
        "With a period, the model of the experiments keeps only the outputs of the layers below an average. The "
        "released package keeps all outputs, as here.",
        "The paper is about language models; each stack of a translation model has its own averages here.",
    ),
)
