"""DLCL: dynamic linear combination of layers. A layer's input is a trained mixture of all outputs below it.

Legend: T time, B batch, C width, L layers; y_0 is the output of the embedding and y_k that of layer k.
"""

from typing import Any

import torch
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.history import History
from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part
from fairseq_plugins.methods.shared.state_buffer import BufferedStates, with_state

PAPER = "Wang et al., ACL 2019, https://arxiv.org/abs/1906.01787"


def initial_weights(states: int, window: int, start: str) -> Tensor:
    """Return the weights of a new model, ``(states, states)``: row l mixes y_0 to y_l.

    Entries that are used, the last ``window`` up to the diagonal, start as the ``average``, 1 / (their number), or at
    ``one``. All others are 0 and remain 0.
    """
    used = torch.ones(states, states).tril().triu(1 - window)
    return used if start == "one" else used / used.sum(dim=1, keepdim=True)


class LinearCombination(History):
    """The weights W and the L LayerNorms of one stack. Shapes ``(T, B, C)``.

    Mixtures of all states by scalars are one product each (:mod:`fairseq_plugins.methods.shared.state_buffer`). Others
    are sums, state by state.

    Args:
        layers: L.
        width: C.
        size: C for a weight in each dimension, 1 for scalars.
        window: number of states in a mixture, the newest ones.
        normalised: take the softmax of the used weights of each row.
        start: ``average`` or ``one``, see :func:`initial_weights`.
        is_pre: normalise the states, as under Pre-LN, and not their mixtures.
    """

    def __init__(
        self, layers: int, width: int, size: int, window: int, normalised: bool, start: str, is_pre: bool
    ) -> None:
        super().__init__()
        self.window, self.normalised, self.is_pre = window, normalised, is_pre
        self.buffered = size == 1 and window > layers
        self.weight = nn.Parameter(initial_weights(layers + 1, window, start).unsqueeze(2).repeat(1, 1, size))
        self.layer_norms = nn.ModuleList(LayerNorm(width) for _ in range(layers))

    def forward(self, states: list[Tensor]) -> Tensor:
        """Multiply the states by the row of W for their number: ``(T, B, C)``; under Post-LN then normalise.

        The mixture of y_0 alone has number -1, hence no LayerNorm.
        """
        if isinstance(states, BufferedStates):
            mixture = states.mix()
        else:
            row = len(states) - 1
            first = max(0, len(states) - self.window)
            weights = self.weight[row, first : row + 1]
            if self.normalised:
                weights = torch.softmax(weights, dim=0)
            factors = weights.unbind(0)
            mixture = states[first] * factors[0]
            for number in range(1, len(factors)):
                mixture = torch.addcmul(mixture, states[first + number], factors[number])
        return mixture if self.is_pre else self.normalise(mixture, len(states) - 2)

    def remember(self, states: list[Tensor], x: Tensor) -> list[Tensor]:
        """Store y_k, under Pre-LN LN_k(y_k), k the number of states so far; forget states that are not read again."""
        if self.is_pre:
            x = self.normalise(x, len(states) - 1)
        if self.buffered:
            return with_state(states, x, self.all_weights)
        kept = states + [x]
        out_of_sight = len(states) - self.window
        if out_of_sight >= 0:
            kept[out_of_sight] = x.new_empty(0)
        return kept

    def all_weights(self) -> Tensor:
        """Return W of a history without a window, ``(L+1, L+1)``; entries above the diagonal are undefined."""
        weights = self.weight.squeeze(2)
        if not self.normalised:
            return weights
        later = torch.ones_like(weights, dtype=torch.bool).triu(1)
        return torch.softmax(weights.masked_fill(later, float("-inf")), dim=1)

    def normalise(self, x: Tensor, number: int) -> Tensor:
        """Apply LayerNorm ``number``, from 0, to ``x``; there is none of number -1."""
        return self.layer_norms[number](x) if number >= 0 else x


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse norm places without an equation, and options that contradict each other."""
    problems = []
    norm = design.choice(Axis.NORM_POSITION)
    if norm not in ("pre", "post"):
        problems.append(
            f"--layer-aggregation dlcl mixes outputs of LayerNorms: it needs --norm-position pre or post, not {norm}"
        )
    if design.options.dlcl_normalised == "yes" and design.options.dlcl_init == "one":
        problems.append("--dlcl-normalised yes starts as the average whatever --dlcl-init says: drop --dlcl-init one")
    if design.options.dlcl_normalised == "yes" and design.options.dlcl_window == 1:
        problems.append(
            "--dlcl-window 1 leaves each mixture one weight, which --dlcl-normalised yes makes 1: drop one of the two"
        )
    return problems


@part(
    Axis.LAYER_AGGREGATION,
    "dlcl",
    summary="a trained mixture of the outputs of all layers below, normalised before it under `--norm-position pre` "
    "and after it under `--norm-position post`",
    options=(
        Option("dlcl_window", 0, "how many of the newest outputs enter a mixture; 0: all", least=0),
        Option("dlcl_weights", "scalar", "one weight an output, or one for each dimension", ("scalar", "dimension")),
        Option("dlcl_normalised", "no", "take the softmax of the weights of each mixture", choices=("no", "yes")),
        Option("dlcl_init", "average", "mixtures start as averages, or with all weights at one", ("average", "one")),
    ),
    parameters=(
        NewParameter(
            "history.weight",
            "(N+1, N+1, 1)",
            "$`1 / (l + 1)`$ in row $`l`$ up to column $`l`$, from 0, and 0 to the right, never used; with "
            "`--dlcl-init one` 1; with `--dlcl-window n` $`1 / n`$ in the last n columns up to $`l`$; `(N+1, N+1, C)` "
            "with `--dlcl-weights dimension`",
        ),
        NewParameter("history.layer_norms.I.weight", "(C)", "1"),
        NewParameter("history.layer_norms.I.bias", "(C)", "0"),
    ),
    conflicts=conflicts,
    no_fold="stock fairseq has no layer that reads more than the one below it",
)
def build(design: StackDesign) -> History:
    """Build the form for the norm place of the stack."""
    options = design.options
    return LinearCombination(
        design.layers,
        design.width,
        size=design.width if options.dlcl_weights == "dimension" else 1,
        window=options.dlcl_window or design.layers + 1,
        normalised=options.dlcl_normalised == "yes",
        start=options.dlcl_init,
        is_pre=design.choice(Axis.NORM_POSITION) == "pre",
    )


_EXTRAS = (
    "Weights for groups of dimensions, dropout of mixtures and fixed weights, as released, are not supported.",
    "In the released code a window only decides which weights start at zero, and training may change them, unless the "
    "weights are normalised; the start at one ignores it. Here nothing outside the window ever enters a mixture.",
)
method(
    "dlcl",
    title="DLCL",
    paper=PAPER,
    equation=(
        r"$`x_{l+1} = \sum_{k \leq l} W_{l+1,k} \mathrm{LN}_k(y_k)`$ is the input of layer $`l + 1`$ (section 4); "
        "$`y_0 = x_0`$ is not normalised, $`y_k`$ is the output of layer $`k`$, the layers are Pre-LN, and the last "
        "mixture goes through the LayerNorm on top of the stack"
    ),
    norm_position="pre",
    layer_aggregation="dlcl",
    departures=_EXTRAS,
)
method(
    "dlcl_post_ln",
    title="DLCL Post-LN",
    paper=PAPER,
    equation=(
        r"$`x_{l+1} = \mathrm{LN}_{l+1}(\sum_{k \leq l} W_{l+1,k} y_k)`$ is the input of layer $`l + 1`$ (section 4); "
        "$`x_1 = W_{1,0} x_0`$ without a LayerNorm, $`y_k`$ is the output of layer $`k`$, and the layers are Post-LN"
    ),
    norm_position="post",
    layer_aggregation="dlcl",
    departures=(
        *_EXTRAS,
        "Where the released code normalises $`y_0`$, it does so twice in this form; here that LayerNorm is "
        "`--layernorm-embedding`, once and before the dropout.",
        "The B2T paper compares this form, with the released code (6.1.2), which draws weights as `--base-init "
        "xavier` does.",
    ),
)
