"""PCformer: a Runge-Kutta method predicts the next state, one more evaluation of the layer corrects it.

The predictor weights the evaluations by an exponential moving average; the corrector is a multistep method over the
states of the layers below.
"""

from typing import Any

import torch
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part
from fairseq_plugins.core.norm import layer_norm_parameters
from fairseq_plugins.core.solver import LayerFunction, Solver, only_encoders
from fairseq_plugins.errors import flag
from fairseq_plugins.methods.shared.runge_kutta import FUNCTION, evaluations


class PredictorCorrector(Solver):
    """The predictor and the corrector of a stack; ``order`` and ``whole`` are those of :func:`evaluations`."""

    def __init__(self, layers: int, width: int, order: int, whole: bool) -> None:
        super().__init__()
        self.order, self.whole = order, whole
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        used = torch.ones(layers + 1, layers + 1).tril()
        average = used / used.sum(dim=1, keepdim=True)
        self.before = nn.Parameter(average)
        self.after = nn.Parameter(average.clone())
        self.prediction_norms = nn.ModuleList(LayerNorm(width) for _ in range(layers))
        self.state_norms = nn.ModuleList(LayerNorm(width) for _ in range(layers))

    def predict(self, layer: LayerFunction, x: Tensor) -> Tensor:
        """Return the prediction P, ``(T, B, C)``."""
        weight: Tensor = self.alpha
        prediction = x
        for value in reversed(evaluations(layer, x, self.order, self.whole)):
            prediction = torch.addcmul(prediction, weight, value)
            weight = weight * (1 - self.alpha)
        return prediction

    def forward(self, layer: LayerFunction, x: Tensor, past: list[Tensor]) -> Tensor:
        """Predict, evaluate the layer at a mixture with the prediction, and mix its result with the states below."""
        depth = len(past)
        prediction = self.prediction_norms[depth - 1](self.predict(layer, x))
        evaluated = layer(mixture([*past, prediction], self.before[depth]))
        past.append(self.state_norms[depth - 1](evaluated))
        return mixture(past, self.after[depth])


def mixture(states: list[Tensor], weights: Tensor) -> Tensor:
    """Return the sum of the states by the first of the weights, ``(T, B, C)``."""
    total, *further = [state * weight for state, weight in zip(states, weights, strict=False)]
    for one in further:
        total = total + one
    return total


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse decoders, extra streams, and settings that cannot be combined with mixtures of normalised states."""
    needs = f"--solver {design.choice(Axis.SOLVER)} mixes normalised states of all layers: it needs"
    problems = [
        f"{needs} {flag(axis.value)} {wanted}, not {design.choice(axis)}"
        for axis, wanted in ((Axis.NORM_POSITION, "pre"), (Axis.LAYER_AGGREGATION, "last"))
        if design.choice(axis) != wanted
    ]
    for name in ("encoder_layerdrop", "encoder_layers_to_keep"):
        if getattr(config, name, None):
            problems.append(f"{needs} every layer's output, and cannot be combined with {flag(name)}")
    return only_encoders(design, config) + problems


@part(
    Axis.SOLVER,
    "pcformer",
    summary="two or four evaluations of each layer predict its output, and one more corrects it",
    options=(
        Option("pcformer_order", "2", "number of evaluations for the prediction", choices=("2", "4")),
        Option("pcformer_function", *FUNCTION, choices=("change", "layer")),
    ),
    parameters=(
        NewParameter("solver.alpha", "(1)", "0.5"),
        *(
            NewParameter(
                f"solver.{name}",
                "(N+1, N+1)",
                r"$`1/(m + 1)`$ in row $`m`$ up to column $`m`$, from 0, and 0 in the others, which no mixture reads; "
                f"weights of the mixture {name} the last evaluation",
            )
            for name in ("before", "after")
        ),
        *layer_norm_parameters("solver.prediction_norms.I", "solver.state_norms.I"),
    ),
    conflicts=conflicts,
    no_fold="stock fairseq evaluates each layer once",
)
def build(design: StackDesign) -> Solver:
    """Build the solver of a stack; all its layers share alpha."""
    options = design.options
    whole = options.pcformer_function == "layer"
    return PredictorCorrector(design.layers, design.width, int(options.pcformer_order), whole)


method(
    "pcformer",
    title="PCformer",
    paper="Li et al., NeurIPS 2024, https://arxiv.org/abs/2411.03042",
    equation=(
        r"encoder $`P = y + \sum_{i \leq n} \alpha (1 - \alpha)^{n - i} F_i`$ with the $`F_i`$ of ODE Transformer, "
        r"then $`y' = \sum_{k \leq m} w_{mk} c_k`$ with $`c_m = \mathrm{LN}_m(L(\sum_{k < m} v_{mk} c_k + v_{mm} "
        r"\mathrm{LN}'_m(P)))`$ at layer $`m`$, whose function is $`L`$; $`c_0`$ is the embedding, $`n`$ is 2 or 4, "
        "and the decoder is Pre-LN"
    ),
    norm_position="pre",
    solver="pcformer,euler",
    base_init="fairseq",
    departures=(
        "The corrector is that of the released code "
        "([Neurips-PCformer](https://github.com/rangehow/Neurips-PCformer), revision 6806f97): a special case of DLCL "
        "before and after the last evaluation. The translation code comments out the second set of weights but reads "
        "it, and stops with an error. Here these weights follow the released language model.",
        "$`F`$ is what a layer adds to its input, as in ODE Transformer; the released code takes the whole layer: "
        "`--pcformer-function layer`. The released options for LayerNorms on the evaluations (`--rk-norm`) and for an "
        "alpha of each layer or dimension are not supported.",
        "The decoder evaluates each layer once, as in the released code for translation, whose recipes also mix its "
        "layers by DLCL: `--layer-aggregation last,dlcl`. A search keeps one cache for each attention. Language "
        "models have no encoder and are refused.",
        "The released translation code draws weights as `--base-init fairseq` does. Order 4 is used for WMT and order "
        "2 for IWSLT. Architectures `relative_...` have relative positions, which are not supported.",
        "A training step evaluates each encoder layer three times, with order 4 five times. A search does so once a "
        "sentence; its steps cost nothing more.",
    ),
)
