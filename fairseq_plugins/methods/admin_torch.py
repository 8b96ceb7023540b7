"""Admin-Torch: Admin without profiling. One omega for a whole stack, from its number of sub-layers alone."""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import Residual, at_each_site, needs_norm_after


class AdminTorchResidual(Residual):
    """omega * stream + branch, ``(T, B, C)``; a trained omega is a parameter ``(C)``, else it is a buffer ``(1)``."""

    omega: Tensor

    def __init__(self, omega: float, width: int, trained: bool) -> None:
        super().__init__()
        if trained:
            self.omega = nn.Parameter(torch.full((width,), omega))
        else:
            self.register_buffer("omega", torch.full((1,), omega))

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Scale the stream and add the branch."""
        return torch.addcmul(branch, stream, self.omega)

    def stream_scale(self) -> Tensor:
        """omega, ``(C)`` or ``(1)``."""
        return self.omega


@part(
    Axis.RESIDUAL,
    "admin_torch",
    summary="omega * stream + branch, omega from the number of sub-layers of the stack",
    options=(
        Option("admin_torch_change", "logn", "how the output change of a stack grows", ("logn", "constant", "linear")),
        Option("admin_torch_omega", "fixed", "one constant, or C trained numbers", ("fixed", "trained")),
    ),
    conflicts=needs_norm_after,
    parameters=at_each_site(
        "omega",
        "(1)",
        r"$`\sqrt{(n + 1) / \ln(n + 1) - 1}`$ for the $`n`$ sub-layers of the stack, or as `--admin-torch-change` "
        "says; with `--admin-torch-omega trained` a parameter of shape `(C)`",
        buffer=True,
    ),
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build an omega for each residual connection, all equal at first, from the number n of sub-layers of the stack.

    ``logn``: omega^2 = (n + 1) / ln(n + 1) - 1; ``constant``: omega^2 = n; ``linear``: omega = 1, which is Post-LN.
    Their names say how the output change of a new stack after a change of its weights grows with n.
    """
    n = design.layers * len(sites)
    squares = {"logn": (n + 1) / math.log(n + 1) - 1, "constant": n, "linear": 1.0}
    omega = math.sqrt(squares[design.options.admin_torch_change])
    trained = design.options.admin_torch_omega == "trained"
    return {site: AdminTorchResidual(omega, design.width, trained) for site in sites}


method(
    "admin_torch",
    title="Admin-Torch",
    paper="Liu et al., EMNLP 2020, https://arxiv.org/abs/2004.08249",
    equation=(
        r"$`o = \mathrm{LN}(\omega x + F(x))`$; $`\omega^2 = (n + 1) / \ln(n + 1) - 1`$ for $`n`$ sub-layers, so that "
        r"the output changes by $`O(\log n)`$; $`\omega^2 = n`$ for $`O(1)`$ and $`\omega = 1`$ for $`O(n)`$"
    ),
    norm_position="post",
    residual="admin_torch",
    departures=(
        r"The paper measures an $`\omega`$ for every sub-layer (`admin`). `admin_torch` is the authors' later package "
        r"[admin-torch](https://github.com/microsoft/admin-torch), which uses no data. The package keeps $`\omega`$ "
        r"fixed by default; the authors' scripts and best scores train $`\omega`$: `--admin-torch-omega trained`.",
        r"The package leaves $`n`$ to its user. Here it is the number of residual sub-layers of the stack: "
        r"$`2N`$ in the encoder, $`3M`$ in the decoder, $`2M`$ in a decoder with merged attention or without "
        "cross-attention. The authors' fork of fairseq, which may have counted otherwise and drawn other initial "
        "weights, was not found.",
    ),
)
