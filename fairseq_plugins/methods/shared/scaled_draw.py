"""The two draws of DeepNet and of Sub-LN: Xavier's normal rule, as in their papers, or what torchscale draws."""

from torch import nn


def draw(linear: nn.Linear, gain: float, rule: str) -> None:
    """Draw the weights ``(out, in)`` and the biases of a linear map, in place.

    Args:
        linear: the map.
        gain: the factor in the text and in the code.
        rule: ``paper``: N(0, gain^2 * 2 / (fan_in + fan_out)), biases 0; ``released``: ``gain`` times what
            ``nn.Linear`` draws, biases too (torchscale 4d1e0e8, which never calls its attention's own rule).
    """
    if rule == "released":
        linear.reset_parameters()
        for parameter in (linear.weight, linear.bias):  # a map with a norm inside has more
            if parameter is not None:
                parameter.mul_(gain)
        return
    nn.init.xavier_normal_(linear.weight, gain=gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
