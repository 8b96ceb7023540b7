"""GTrans: the layers form groups, and the output of a stack is a trained mean of the groups' outputs."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.history import History
from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part


class GroupFusion(History):
    """The output of the layer below; on top, the fusion of the groups. Shapes ``(T, B, C)``."""

    def __init__(self, layers: int, group: int) -> None:
        super().__init__()
        self.layers, self.group = layers, group
        self.weight = nn.Parameter(torch.zeros(layers // group))

    def forward(self, states: list[Tensor]) -> Tensor:
        """Fuse if every layer has run."""
        if len(states) <= self.layers:
            return states[-1]
        fused = torch.zeros_like(states[-1])
        for state, gate in zip(states[self.group :: self.group], torch.sigmoid(self.weight), strict=True):
            fused = torch.addcmul(fused, state, gate / len(self.weight))
        return fused

    def remember(self, states: list[Tensor], x: Tensor) -> list[Tensor]:
        """Store the output of a layer, and forget the one below unless a group ends there."""
        last = len(states) - 1
        kept = states if last > 0 and last % self.group == 0 else [*states[:-1], x.new_empty(0)]
        return [*kept, x]


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse groups that leave layers on top that nothing reads."""
    group = design.options.gtrans_group
    layers = f"the {design.layers} layers of the {design.stack.value}"
    return [f"--gtrans-group must divide {layers}, not {group}"] if design.layers % group else []


part(
    Axis.LAYER_AGGREGATION,
    "gtrans",
    summary="the output of the layer below, and on top of the stack a trained mean of the outputs of groups of layers",
    options=(Option("gtrans_group", 1, "layers in a group", least=1),),
    parameters=(NewParameter("history.weight", "(G)", "0 for each of the G groups, whose factor is its sigmoid"),),
    conflicts=conflicts,
    no_fold="stock fairseq has no layer that reads more than the one below it",
)(lambda design: GroupFusion(design.layers, design.options.gtrans_group))


method(
    "gtrans",
    title="GTrans",
    paper="Yang et al., IEEE/ACM TASLP 2022, https://arxiv.org/abs/2207.14467",
    equation=(
        r"output $`\mathrm{LN}(\frac{1}{G} \sum_{g \leq G} \sigma(w_g) h_{gT})`$ of each stack with $`G`$ groups of "
        "$`T`$ layers; $`h_l`$ is the output of layer $`l`$, and the layers are Pre-LN"
    ),
    norm_position="pre",
    layer_aggregation="gtrans",
    base_init="fairseq",
    departures=(
        "The encoder of the released code ([GTrans](https://github.com/YuweiYin/GTrans), revision bd886c8) has this "
        "equation. The decoder has two forms. `sparse-without-ensemble` is this equation too. The default maps the "
        "output of each group to words and adds the log-probabilities, with trained weights. This form is not "
        "supported: it would change losses and search.",
        "The released architectures and recipe are Post-LN: `--norm-position post`. They have a LayerNorm on the "
        "fusion of the encoder, which is left out here.",
        "The released recipe of 60-36 layers has groups of 6 (`--encoder-group-layers`): `--gtrans-group 6`. Without "
        "the option, every layer is a group here, and all layers are one group there. The models have width 768, GELU "
        "and learned positions. A size that does not divide the depth is refused; the released code then leaves the "
        "top layers without gradients.",
        "A step and a search add one product for each group on top of each stack.",
    ),
)
