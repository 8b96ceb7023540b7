"""sigma-Reparam: every matrix is divided by its spectral norm and multiplied by a trained scalar.

The spectral norm sigma(W) is v^T W u, with u and v the singular vectors of the largest singular value. They are found
once from a decomposition of the first weight. From then on one power iteration in each forward pass of the training
follows W: ``v = W u / |W u|``, ``u = W^T v / |W^T v|``. Gradients flow through W, also that of sigma, but not through
u and v. The gammas bound the logits of an attention, which then cannot collapse to a single word by growing weights.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.linear_maps import AffineMap, replace_maps
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, method, part
from fairseq_plugins.methods.shared.precision import without_autocast

GAMMA = Option("sigma_gamma", "one", "first gamma: 1, or the first weight's spectral norm", ("one", "norm"))
SMALLEST = 1e-4
"""Smaller spectral norms count as this one: some initialisations start matrices at zero."""
STD = Option("sigma_std", 0.02, "standard deviation of the first weights of --init sigma")


class _ScaledProduct(torch.autograd.Function):
    """gamma / sigma W x + b, the factor inside the products: the scaled matrix is neither made nor kept.

    Shapes: x ``(..., in)``, weight ``(out, in)``, bias ``(out)``, gamma ``(1)``, sigma ``()``, v ``(out)``, u ``(in)``;
    ``dtype`` is that of the products.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gamma: Tensor,
        sigma: Tensor,
        v: Tensor,
        u: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.sigma, ctx.shape = sigma.item(), x.shape
        ctx.factor = gamma.item() / ctx.sigma
        rows = x.reshape(-1, x.size(-1)).to(dtype)
        ctx.save_for_backward(rows, weight, v, u)
        start = weight.new_zeros(len(weight)) if bias is None else bias
        # A copy of the product, since fairseq's attention multiplies its queries in place.
        product = rows.new_empty(*x.shape[:-1], len(weight))
        torch.addmm(
            start.to(dtype), rows, weight.to(dtype).t(), alpha=ctx.factor, out=product.view(len(rows), len(weight))
        )
        return product

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, v, u = ctx.saved_tensors
        by_rows = gradients[0].reshape(-1, len(weight))
        by_matrix = torch.mm(by_rows.t(), rows).to(weight.dtype)
        # No number leaves its tensor here: a diagnosis asks for the gradients of many outputs at once (vmap).
        by_gamma = torch.dot(by_matrix.view(-1), weight.view(-1)) / ctx.sigma
        by_norm = by_gamma * (-ctx.factor if ctx.sigma > SMALLEST else 0.0)
        return (
            torch.addmm(rows, by_rows, weight.to(rows.dtype), beta=0, alpha=ctx.factor).view(ctx.shape),
            torch.addr(by_matrix, v.to(weight.dtype) * by_norm, u.to(weight.dtype), beta=ctx.factor),
            by_rows.sum(0) if ctx.needs_input_grad[2] else None,
            by_gamma.view(1),
            *(None,) * 4,
        )


class SpectralLinear(AffineMap):
    """gamma / sigma(W) W x + b, W ``(out, in)`` and b ``(out)``.

    Args:
        linear: the map that it replaces.
        starts_at_norm: whether gamma starts at the spectral norm of the first weight, not at 1.
    """

    u: Tensor

    def __init__(self, linear: nn.Linear, starts_at_norm: bool) -> None:
        super().__init__(linear)
        self.gamma = nn.Parameter(torch.ones(1))
        self.register_buffer("u", torch.full((linear.in_features,), linear.in_features**-0.5))
        self.starts_at_norm = starts_at_norm
        self.is_fixed = False

    def weight_is_drawn(self) -> None:
        """Find u by a decomposition, and start gamma."""
        weight = self.weight.double()
        tall = self.out_features >= self.in_features
        # Eigenvalues of the smaller product with itself take a third of the time of a singular value decomposition.
        squares, vectors = torch.linalg.eigh(weight.t() @ weight if tall else weight @ weight.t())
        u = F.normalize(vectors[:, -1] if tall else weight.t() @ vectors[:, -1], dim=0)
        self.u.copy_(torch.where(u.any(), u, self.u))
        norm = float(squares[-1].clamp(min=0).sqrt())
        self.gamma.fill_(max(norm, SMALLEST) if self.starts_at_norm else 1.0)

    def matrix(self) -> Tensor:
        """Scale the weight, in its type."""
        if self.is_fixed:
            return self.weight
        sigma, _, _ = self._follow(self.weight)
        return self.weight * (self.gamma.float() / sigma).to(self.weight.dtype)

    def _follow(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Make one power iteration for ``weight`` ``(out, in)`` from u, in float32, under autocast too.

        Returns:
            the norm ``()``, v ``(out)`` and the new u ``(in)``; for a weight of zeros :data:`SMALLEST` and zeros.
        """
        with without_autocast(weight.device.type):
            weight = weight.float()
            v = torch.mv(weight.detach(), self.u.float())
            v = v / torch.linalg.vector_norm(v).clamp(min=1e-12)
            # u has the direction of W^T v, so v^T W u is its length: a product less, and the same gradient, v u^T.
            along_u = torch.mv(weight.t(), v)
            length = torch.linalg.vector_norm(along_u)
            u = along_u.detach() / length.detach().clamp(min=1e-12)
        # Layers that are computed again in the backward pass must start from the same u as the first time.
        if self.training and torch.is_grad_enabled():
            self.u.copy_(torch.where(u.any(), u, self.u))
        return length.clamp(min=SMALLEST), v, u

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)``."""
        # On a GPU the factor would only be known after waiting for the device; compiled code cannot read it at all.
        if self.is_fixed or x.is_cuda or torch.compiler.is_compiling():
            return F.linear(x, self.matrix(), self.bias)
        sigma, v, u = self._follow(self.weight.detach())
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        with without_autocast(device):
            product: Tensor = _ScaledProduct.apply(  # type: ignore[no-untyped-call]
                x, self.weight, self.bias, self.gamma, sigma, v, u, dtype
            )
        return product

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Scale the weight once: fairseq calls this before it translates with a loaded model."""
        with torch.no_grad():
            self.weight.copy_(self.eval().matrix())
        self.is_fixed = True


MAPS = tuple(
    f"{site.value}.{name}" for site in (Site.SELF, Site.CROSS) for name in ("k_proj", "v_proj", "q_proj", "out_proj")
)


@part(
    Axis.REPARAM,
    "sigma",
    summary="the weight over its spectral norm, times a trained scalar gamma",
    options=(GAMMA,),
    parameters=tuple(
        new
        for name in (*MAPS, "fc1", "fc2")
        for new in (
            NewParameter(f"{name}.gamma", "(1)", "1; with `--sigma-gamma norm` the spectral norm of the first weight"),
            NewParameter(
                f"{name}.u",
                "(F)" if name == "fc2" else "(C)",
                "drawn: the first right singular vector of the first weight; then one power iteration a forward pass",
                buffer=True,
            ),
        )
    ),
)
def reparametrise(layer: nn.Module, design: StackDesign) -> None:
    """Every linear map of the layer."""
    replace_maps(layer, lambda linear: SpectralLinear(linear, design.options.sigma_gamma == "norm"), design)


@part(
    Axis.INIT,
    "sigma",
    summary="sigma-Reparam's: every matrix of a layer from a normal distribution of one deviation",
    options=(STD,),
)
def draw(weights: StackWeights, design: StackDesign) -> None:
    """Draw as ``timm``'s ``trunc_normal_`` in the authors' code; its bounds are a hundred deviations away."""
    for layer in weights.layers:
        for _, linear in linear_maps(layer):
            nn.init.normal_(linear.weight, std=design.options.sigma_std)


method(
    "sigma_reparam",
    title="σReparam",
    paper="Zhai et al., ICML 2023, https://arxiv.org/abs/2303.06296",
    equation=(
        r"$`x_{l+1} = \mathrm{LN}(x_l + F(x_l))`$, each matrix of $`F`$ replaced by $`\frac{\gamma}{\sigma(W)} W`$ "
        r"with its spectral norm $`\sigma(W)`$ and a trained $`\gamma`$"
    ),
    reparam="sigma",
    init="sigma",
    departures=(
        "The text starts each gamma at 1. So does the authors' code for speech, with matrices of standard deviation "
        "0.1. Their code for pictures and translation has a deviation of 0.02 and starts gamma at the spectral norm "
        "of the first weight, which keeps the weight as it is: `--sigma-gamma norm`.",
        "The default deviation is 0.02, and `--sigma-std` sets it; which one translation had could not be read. With "
        "gamma at 1 it does not change the outputs of a new model, only how fast its matrices turn.",
        "The code converts every linear map of a network. Here these are the maps of the layers; embeddings and the "
        "output layer, which shares their table in most recipes, stay as they are.",
        "Biases are 0 at first, as in the authors' JAX code; their PyTorch code leaves them as `nn.Linear` draws them.",
        "The spectral norm is computed in float32 at any precision. A search scales each matrix once.",
    ),
)
