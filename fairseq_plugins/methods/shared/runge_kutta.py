"""The evaluations of a layer by Runge-Kutta methods of order 2 (Heun's) and 4, which the solvers combine."""

from torch import Tensor

from fairseq_plugins.core.solver import LayerFunction

FUNCTION = ("change", "what a layer adds to its input, or the whole layer with its residual connections")
"""Default and help of the option that says what is evaluated."""
STEPS = {2: (1.0,), 4: (0.5, 0.5, 1.0)}
"""How far the next evaluation goes along the last one, by order."""


def evaluations(layer: LayerFunction, x: Tensor, order: int, whole: bool) -> list[Tensor]:
    """Return F_1 = F(x), then F_i = F(x + a_i F_{i-1}), as many as the ``order``, 2 or 4, each ``(T, B, C)``.

    F is the ``whole`` layer, otherwise the layer less its input.
    """
    values: list[Tensor] = []
    for step in (0.0, *STEPS[order]):
        at = x + step * values[-1] if values else x
        values.append(layer(at) if whole else layer(at) - at)
    return values
