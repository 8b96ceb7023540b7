"""ODE Transformer: each encoder layer is evaluated two or four times, as in a Runge-Kutta method."""

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part
from fairseq_plugins.core.solver import LayerFunction, Solver, only_encoders
from fairseq_plugins.methods.shared.runge_kutta import FUNCTION, evaluations

PAPER = "Li et al., ACL 2022, https://arxiv.org/abs/2203.09176"
STANDARD = {2: (1 / 2, 1 / 2), 4: (1 / 6, 1 / 3, 1 / 3, 1 / 6)}
"""The coefficients of the numerical methods, by order."""


class RungeKutta(Solver):
    """y + sum_i gamma_i F_i. Shapes ``(T, B, C)``; :func:`evaluations` has the other arguments.

    Its ``coefficients`` are ``gate``, ``trained`` or ``standard``; the first two for order 2.
    """

    def __init__(self, width: int, order: int, coefficients: str, whole: bool) -> None:
        super().__init__()
        self.order, self.whole = order, whole
        self.gate = nn.Linear(2 * width, 1) if coefficients == "gate" else None
        self.gamma = nn.Parameter(torch.ones(order)) if coefficients == "trained" else None
        if self.gate is not None:
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def forward(self, layer: LayerFunction, x: Tensor, past: list[Tensor]) -> Tensor:
        """Evaluate the layer ``order`` times and add up the results."""
        values = evaluations(layer, x, self.order, self.whole)
        if self.gate is not None:
            gate = torch.sigmoid(self.gate(torch.cat(values, dim=-1))).type_as(x)
            return x + torch.lerp(values[1], values[0], gate)
        for value, factor in zip(values, STANDARD[self.order] if self.gamma is None else self.gamma, strict=True):
            x = x + factor * value
        return x


WHOLE = Option("ode_function", *FUNCTION, choices=("change", "layer"))
NO_FOLD = "stock fairseq evaluates each layer once"


part(
    Axis.SOLVER,
    "ode",
    summary="two evaluations of each layer, added up as in a Runge-Kutta method of order 2",
    options=(
        Option("ode_coefficients", "gate", "weights: a gate, trained numbers, or 1/2", ("gate", "trained", "standard")),
        WHOLE,
    ),
    parameters=(
        NewParameter(
            "solver.gate.weight",
            "(1, 2C)",
            "drawn from Xavier's uniform rule; with `--ode-coefficients trained` there is `solver.gamma` instead, (2)",
        ),
        NewParameter("solver.gate.bias", "(1)", "0"),
    ),
    conflicts=only_encoders,
    no_fold=NO_FOLD,
)(lambda design: RungeKutta(design.width, 2, design.options.ode_coefficients, design.options.ode_function == "layer"))


part(
    Axis.SOLVER,
    "ode_rk4",
    summary="four evaluations of each layer, added up as in a Runge-Kutta method of order 4",
    options=(WHOLE,),
    conflicts=only_encoders,
    no_fold=NO_FOLD,
)(lambda design: RungeKutta(design.width, 4, "standard", design.options.ode_function == "layer"))


DEPARTURES = (
    "The introduction of the paper writes a layer as $`y + F(y)`$, so $`F`$ is what it adds to its input: that is the "
    "default. The released code ([ODE-Transformer](https://github.com/libeineu/ODE-Transformer), revision bcf51e8) "
    "takes the whole layer with its residual connections for $`F`$, so even order 1 would be "
    r"$`2 y + \ldots`$: `--ode-function layer`.",
    "The decoder is plain, as in the released code: a search keeps one cache for each attention. Language models have "
    "no encoder and are refused.",
    "The released code does not run: a colon is missing; then order 4 and `standard` stop with an error, and before "
    "bcf51e8 order 2 with the gate too. The released recipes also mix the layers of both stacks by DLCL, "
    "`--layer-aggregation dlcl`. They have a rate of 0.002, and 0.9 and 0.997 as Adam's betas. Their relative "
    "positions up to 8 are not supported.",
    "A training step evaluates each encoder layer two or four times, and keeps more for the backward pass. A search "
    "does so once a sentence; its steps cost nothing more.",
)
method(
    "ode",
    title="ODE Transformer, RK2",
    paper=PAPER,
    equation=(
        "encoder $`y' = y + g F_1 + (1 - g) F_2`$ with $`F_1 = F(y)`$, $`F_2 = F(y + F_1)`$ (section 3), $`F`$ what a "
        r"Pre-LN layer adds to its input and $`g = \sigma(W [F_1, F_2] + b)`$; the decoder is Pre-LN"
    ),
    norm_position="pre",
    solver="ode,euler",
    departures=(*DEPARTURES, "One gate or one pair of numbers serves all layers, as in the released code."),
)
method(
    "ode_rk4",
    title="ODE Transformer, RK4",
    paper=PAPER,
    equation=(
        r"encoder $`y' = y + \frac{1}{6} (F_1 + 2 F_2 + 2 F_3 + F_4)`$ with $`F_1 = F(y)`$, $`F_2 = F(y + \frac{1}{2} "
        r"F_1)`$, $`F_3 = F(y + \frac{1}{2} F_2)`$, $`F_4 = F(y + F_3)`$ (section 3); the decoder is Pre-LN"
    ),
    norm_position="pre",
    solver="ode_rk4,euler",
    departures=DEPARTURES,
)
