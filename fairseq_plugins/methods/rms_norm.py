"""RMSNorm: a norm that divides by the root of the mean square, and neither subtracts the mean nor adds a bias."""

import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.norm import NormFactory, needs_norms
from fairseq_plugins.methods.shared.precision import at_least_float32


class RootNorm(nn.RMSNorm):
    """g * x / (RMS(x) + eps) for ``(..., C)``, as in the authors' code for PyTorch; the root is in float32 or wider."""

    eps: float

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``(..., C)`` by the root mean square."""
        root = torch.linalg.vector_norm(at_least_float32(x), dim=-1, keepdim=True) * x.size(-1) ** -0.5
        return (x / (root + self.eps)).type_as(x) * self.weight


@part(
    Axis.NORM_TYPE,
    "rms_norm",
    summary="RMSNorm at every place of `--norm-position` and on top: no mean is subtracted, and there is no bias",
    options=(
        Option("rms_norm_epsilon", 1e-5, "what RMSNorm adds to the mean square", least=1e-30),
        Option("rms_norm_epsilon_in", "square", "whether it adds to the square or to its root", ("square", "root")),
    ),
    conflicts=needs_norms,
    no_fold="stock fairseq has LayerNorms alone",
)
def build(site: Site | None, design: StackDesign) -> NormFactory:
    """Use RMSNorm at every place."""
    kind = RootNorm if design.options.rms_norm_epsilon_in == "root" else nn.RMSNorm
    return lambda width: kind(width, eps=design.options.rms_norm_epsilon)


method(
    "rms_norm",
    title="RMSNorm",
    paper="Zhang and Sennrich, NeurIPS 2019, https://arxiv.org/abs/1910.07467",
    equation=(
        r"$`o = x + F(g \odot x / \mathrm{RMS}(x))`$, $`\mathrm{RMS}(x)^2 = \frac{1}{d} \sum_i x_i^2`$ (equation 4); "
        "one more on top of each stack"
    ),
    norm_position="pre",
    norm_type="rms_norm",
    base_init="fairseq",
    departures=(
        r"The text has no $`\epsilon`$; implementations add one to the mean square. Here `--rms-norm-epsilon` is "
        r"LayerNorm's by default. The authors' code for PyTorch (revision 2e726f1) adds 1e-8 to the root, which moves "
        r"logits by about 2e-5: `--rms-norm-epsilon-in root --rms-norm-epsilon 1e-8`.",
        "The paper's Transformer is a Post-LN model, `--norm-position post --norm-type rms_norm`; this architecture is "
        "Pre-LN, as the models that took the module up.",
        "RMSNorm replaces the LayerNorms of `--norm-position`. The norms of `--layernorm-embedding`, a history and a "
        "second stream remain LayerNorms.",
    ),
)
