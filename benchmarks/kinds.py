"""The operations of a training step by kind; imports nothing but torch, since other toolkits' processes use it, too."""

from collections import Counter
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

KINDS = {
    "products": ("mm", "linear", "matmul", "einsum"),
    "attention": ("scaled_dot_product", "flash_attention", "softmax", "cumsum"),
    "norms": ("layer_norm", "rms_norm", "linalg", "mean", "var", "norm"),
    "dropout": ("dropout", "bernoulli"),
    "sums and factors": ("add", "mul", "div", "sub", "relu", "threshold", "sum", "where", "sqrt", "pow", "tanh", "erf"),
    "copies": ("copy", "clone", "cat", "stack", "fill", "zero", "empty", "contiguous", "index", "gather", "embedding"),
}
"""Kinds of operations, each by parts of their names; the first kind with such a part counts."""
OPTIMIZER = "optimizer"
LOSS = "log_softmax"
REST = "calls"
"""Autograd and torch's own bookkeeping. What Python does between the operations is in no event, and in no column."""


def kind_of(name: str) -> str:
    """The column of an operation."""
    short = name.removeprefix("aten::").lower()
    if "adam" in short:
        return OPTIMIZER
    if short.startswith(("autograd::", "torch::autograd::")):
        return REST
    if LOSS in short or "nll" in short:
        return "loss"
    return next((kind for kind, parts in KINDS.items() if any(part in short for part in parts)), REST)


def kinds_of(step: Callable[[], None]) -> Counter[str]:
    """Milliseconds of one step by kind. An optimizer of many operations is one kind, too."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as found:
        step()
    spent: Counter[str] = Counter()
    for event in found.events():
        own = event.self_cpu_time_total / 1000
        inside, above = False, event
        while above is not None and not inside:
            inside, above = "Optimizer.step" in above.name, above.cpu_parent
        spent[OPTIMIZER if inside else kind_of(event.name)] += own
    return spent
