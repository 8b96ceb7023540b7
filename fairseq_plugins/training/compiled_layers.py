"""``--compile-layers``, YAML ``common: {compile_layers: true}``: torch.compile makes few kernels of those of a layer.

Compiled code rounds in another order, and draws other random numbers for dropout. With ``--cuda-graphs`` the graphs
record its kernels. All layers share it, so a deep model takes no longer to compile; torch makes a piece of code for
each kind of call. Validation, a search, and an update in which a module has a new hook run the layer as ever.
"""

import functools
import logging
import re
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from fairseq.trainer import Trainer
from torch import Tensor, nn
from torch.fx.experimental import _config as symbols
from torch.utils._triton import has_triton_package

from fairseq_plugins.core.layers import Layer, contiguous_output
from fairseq_plugins.core.recorded import NewHooks, out_of_memory, why
from fairseq_plugins.wrapping import wrap

logger = logging.getLogger(__name__)

BACKEND: Any = "inductor"
"""Maker of kernels; tests have one that needs no GPU."""


def layers_of(model: nn.Module) -> list[Layer]:
    """Return the layers of ``model`` that can be compiled."""
    return [module for module in model.modules() if isinstance(module, Layer)]


def run(layer: Any, *args: Any) -> Any:
    """Call a layer. torch compiles this function, and its code is that of all layers."""
    return layer._call_impl(*args)


class CompiledLayers:
    """Compiled code in place of the calls of a model's layers. Torch keeps it out of copies and checkpoints."""

    def __init__(self, model: nn.Module) -> None:
        self.eager: set[type] = set()  # classes of layers that cannot be compiled
        self._hooked = NewHooks(model.modules())
        # Sizes that are equal by chance, sentences of a batch and heads, are not the same size.
        symbols.use_duck_shape = False  # type: ignore[attr-defined]
        torch._dynamo.config.recompile_limit = 64  # pieces of code; torch stops at 8
        # A concatenation is part of the kernel that reads it, not one kernel for each of its tensors.
        torch._inductor.config.force_pointwise_cat = True
        # Otherwise an error in the backward pass would come when it is too late to run the layer as ever.
        torch._functorch.config.force_non_lazy_backward_lowering = True
        self._run: Callable[..., Any] = torch.compile(run, fullgraph=True, dynamic=True, backend=BACKEND)
        for layer in layers_of(model):
            layer._compiled_call_impl = functools.partial(self._call, layer)

    def _call(self, layer: Any, *args: Any) -> Any:
        """Call a layer, compiled if this is a step of a training; a dictionary is the cache of a search."""
        training = layer.training and torch.is_grad_enabled() and not any(isinstance(value, dict) for value in args)
        if not training or type(layer) in self.eager or self._hooked:
            return layer._call_impl(*args)
        # Code is made for an order of strides, which in the first layer of a stack is another.
        pieces = [contiguous_output(value) if isinstance(value, Tensor) else value for value in args]
        try:
            return self._run(layer, *pieces)
        except Exception as error:  # torch and compilers raise many kinds; a fault of the layer itself comes again
            if out_of_memory(error):
                raise
            reason = re.split(r" Hint: | from user code: | Set TORCH| Skipped frames", why(error))[0]
        self.eager.add(type(layer))
        logger.warning("--compile-layers: each %s stays eager: %s", type(layer).__name__, textwrap.shorten(reason, 300))
        return layer._call_impl(*args)


def attach(build: Callable[[Trainer], None], trainer: Trainer) -> None:
    """``Trainer._build_optimizer`` that also has the layers compiled, if the user asks for that."""
    build(trainer)
    cfg, model = trainer.cfg, trainer.get_model()
    if not getattr(cfg.common, "compile_layers", False):
        return
    obstacles = {
        "there is no GPU, and on a CPU an update would take 1.4 times as long": not trainer.cuda,
        "Triton is missing (pip install triton)": BACKEND == "inductor" and not has_triton_package(),
        "--checkpoint-activations": getattr(cfg.model, "checkpoint_activations", False),
        "--ddp-backend fully_sharded": cfg.distributed_training.ddp_backend == "fully_sharded",
        f"--arch {cfg.model._name} has no layers of this package": not layers_of(model),
    }
    if any(obstacles.values()):
        reasons = "; ".join(reason for reason, stands in obstacles.items() if stands)
        logger.warning("--compile-layers has no effect: %s", reasons)
    else:
        CompiledLayers(model)


wrap(Trainer, "_build_optimizer", attach, order=-5)
