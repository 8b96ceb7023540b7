"""Admin: adaptive initialisation. Post-LN whose stream is scaled by omega, measured on the first training batch."""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.core.calibration import Calibrated, population_variance
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import Residual, at_each_site, needs_norm_after


class AdminResidual(Calibrated):
    """omega * stream + branch, to be followed by LayerNorm. Shapes ``(T, B, C)``.

    omega, element-wise ``(C)`` or a scalar ``(1)``, is omega_profiled (buffer, measured by the ``rule``) plus
    omega_trained (parameter, starts at zero), which a frozen omega lacks.
    """

    omega_profiled: Tensor
    branch_variance: Tensor

    def __init__(self, size: int, rule: str, trained: bool) -> None:
        super().__init__()
        self.rule = rule
        self.register_buffer("omega_profiled", torch.ones(size))
        self.register_buffer("branch_variance", torch.zeros(1))
        self.omega_trained = nn.Parameter(torch.zeros(size)) if trained else None
        self.pending_omega = 1.0

    def stream_scale(self) -> Tensor:
        """omega, ``(C)`` or ``(1)``."""
        if self.omega_trained is not None:
            return self.omega_profiled + self.omega_trained
        return self.omega_profiled

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Scale the stream and add the branch."""
        return torch.addcmul(branch, stream, self.stream_scale())

    def observe(self, branch: Tensor, stream: Tensor, carried: float) -> float:
        """Set omega from the residuals below in the same stack; variances are over all elements, pads included.

        ``released``: omega_1 = 1; then omega_(i+1)^2 = Var(omega_i x_i) + Var(F_i). Each omega is in effect while those
        above are measured. With LayerNorm's unit variance that is omega_i^2 = Var(x_0) + sum_(j<i) Var(F_j).

        ``paper``: omega_i^2 = sum_(j<i) Var(F_j), measured with every omega at 1. omega_1 is 0, the empty sum.
        """
        variance = population_variance(branch)
        self.branch_variance.fill_(variance)
        if self.rule == "released":
            self.omega_profiled.fill_(carried)
            return math.sqrt(population_variance(self.omega_profiled * stream) + variance)
        # The chain starts from 1 at the bottom of a stack, so the sum below arrives as 1 + sum.
        self.pending_omega = math.sqrt(carried - 1.0)
        return carried + variance

    def settle(self) -> None:
        """Put the paper's omegas into effect once the whole network has been measured."""
        if self.rule == "paper":
            self.omega_profiled.fill_(self.pending_omega)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Load a plain Post-LN checkpoint, which has none of these entries, as calibrated, with omega = 1."""
        for key, value in self.state_dict().items():
            neutral = float(key not in ("omega_trained", "branch_variance"))
            state_dict.setdefault(f"{name}.{key}", torch.full_like(value, neutral))


@part(
    Axis.RESIDUAL,
    "admin",
    summary="omega * stream + branch, omega measured on the first training batch",
    options=(
        Option("admin_profile", "released", "rule for omega: the released code's or the text's", ("released", "paper")),
        Option("admin_omega", "trained", "train omega, or keep it as measured", choices=("trained", "frozen")),
        Option("admin_scale", "elementwise", "one omega for each dimension, or one for all", ("elementwise", "scalar")),
    ),
    conflicts=needs_norm_after,
    parameters=at_each_site("omega_trained", "(C)", "0; absent with `--admin-omega frozen`")
    + at_each_site("omega_profiled", "(C)", "1 until the first training batch has been measured", buffer=True)
    + at_each_site("branch_variance", "(1)", "0, then the measured variance of the branch", buffer=True)
    + at_each_site("calibrated", "(1)", "0, and 1 once the batch has been measured", buffer=True),
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build one omega for each residual connection."""
    size = design.width if design.options.admin_scale == "elementwise" else 1
    trained = design.options.admin_omega == "trained"
    return {site: AdminResidual(size, design.options.admin_profile, trained) for site in sites}


method(
    "admin",
    title="Admin",
    paper="Liu et al., EMNLP 2020, https://arxiv.org/abs/2004.08249",
    equation=(
        r"$`o = \mathrm{LN}(\omega \odot x + F(x))`$ (section 4); the i-th sub-layer of a stack starts from "
        r"$`\omega_1 = 1`$ and $`\omega_i^2 = \mathrm{Var}(x_0) + \sum_{j<i} \mathrm{Var}(F_j)`$ for $`i > 1`$"
    ),
    norm_position="post",
    residual="admin",
    departures=(
        r"The text gives $`\omega_i^2 = \sum_{j<i} \mathrm{Var}(F_j)`$, that is $`\omega_1 = 0`$; the released "
        "code starts at 1, counts the variance of the embeddings and measures with the omegas below at work. An "
        "author confirms the code "
        "([Transformer-Clinic#18](https://github.com/LiyuanLucasLiu/Transformer-Clinic/issues/18)), so it is "
        "the default; `--admin-profile paper` is the text.",
        "The released code profiles in a process of its own, on one device, through a file in the working "
        "directory, and then draws new weights. Here the first training forward profiles the very weights that "
        "are trained, on all devices together, and the result is stored in the checkpoint.",
        "The authors' five seeds on IWSLT'14 share the profile of seed 1111. Here each training has its own profile.",
        r"In the released code weight decay pulls $`\omega`$ to 0. Here it acts on the trained part, which starts "
        r"at 0, so that $`\omega`$ decays to its profile. With the decay of IWSLT'14, 0.0001, that is a "
        "difference of 0.3 % at the end of training.",
        r"Appendix C says that initial weights can be rescaled instead of adding $`\omega`$, with about the same "
        r"score and less stability in half precision. Rescaled weights are not supported.",
        r"Appendix C's formula for folding $`\omega`$ into cross-attention divides $`W_v`$ too, which is a "
        r"misprint: keys and values come from the encoder, so only $`W_q`$ is divided.",
    ),
)
