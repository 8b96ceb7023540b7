"""BranchNorm: Post-LN whose branches are multiplied by a factor that grows to 1 in the first updates."""

import torch
from torch import Tensor

from fairseq_plugins.core.method import Axis, Option, method, part
from fairseq_plugins.core.residual import Residual, at_each_site


def share(update: int, updates: int) -> float:
    """Return a_t of the update number ``update``, counted from 1; ``updates`` is T."""
    return min(1.0, update / updates)


class GrowingBranch(Residual):
    """stream + a_t * branch. Shapes ``(T, B, C)``.

    a_t is a buffer, so that a checkpoint of a training that has not reached T translates with the factor that its
    weights were trained with. fairseq tells every module that has a ``set_num_updates`` how many updates were made,
    before each one.
    """

    grown: Tensor

    def __init__(self, updates: int) -> None:
        super().__init__()
        self.updates = updates
        self.register_buffer("grown", torch.full((1,), share(1, updates)))

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Add the scaled branch to the stream."""
        return torch.addcmul(stream, branch, self.grown)

    def set_num_updates(self, num_updates: int) -> None:
        """Take the factor of the next update; ``num_updates`` have been made.

        Branches never shrink: a training that starts from trained weights counts its updates anew.
        """
        self.grown.clamp_(min=share(num_updates + 1, self.updates))

    def stream_scale(self) -> Tensor | None:
        """One, once the branch has its full size."""
        return torch.ones(1) if float(self.grown) == 1.0 else None


part(
    Axis.RESIDUAL,
    "branch_norm",
    summary="stream + a * branch, a growing from 0 to 1 with the updates",
    options=(Option("branch_norm_updates", 4000, "updates until the branches have their full size", least=1),),
    parameters=at_each_site(
        "grown",
        "(1)",
        "$`1 / T`$ with `--branch-norm-updates` $`T`$; grows by as much with each update, and ends at 1",
        buffer=True,
    ),
)(lambda sites, depth, design: {site: GrowingBranch(design.options.branch_norm_updates) for site in sites})


method(
    "branch_norm",
    title="BranchNorm",
    paper="Liu et al., Findings of ACL 2023, https://arxiv.org/abs/2305.02790",
    equation=(
        r"$`o = \mathrm{LN}(x + \alpha_t F(x))`$, $`\alpha_t = \min(1, t / T)`$ in update $`t`$; $`T = 4000`$, then "
        "Post-LN"
    ),
    norm_position="post",
    residual="branch_norm",
    departures=(
        "There is no released code, and only the abstract and summaries of the paper were at hand. Linear growth and "
        "$`T = 4000`$ come from notes on the paper.",
        r"Updates count from 1, so that no update has $`\alpha_t = 0`$, in which nothing inside of the branches would "
        "get a gradient.",
        r"A checkpoint holds $`\alpha_t`$: before update $`T`$ it translates with the factor of its training. An "
        "average of checkpoints holds the mean of their factors, which is 1 where all of them are past $`T`$.",
        r"`fairseq-deep fold` turns a model that is past $`T`$ into a stock Post-LN model; before, it refuses.",
        "The abstract names no initialisation; it is `--base-init xavier`, as of other deep translation models.",
    ),
)
