"""``--amp`` in bfloat16, on a CPU and on a GPU: products of matrices in half precision, everything else in float32.

fairseq's ``--amp`` runs the forward pass of a GPU in float16, with a scale for the loss, and trains on a CPU silently
in float32. Here ``--amp`` is bfloat16 on a CPU, and ``--amp --bf16`` on both. Weights, their gradients, the optimizer
and checkpoints stay in float32, unlike with ``--bf16`` alone; ``torch.autocast`` runs products of matrices in
bfloat16. Embeddings are in float32, and the sum of a float32 and a bfloat16 tensor is in float32: so the residual
stream and its layer norms are in float32, as are fairseq's softmax and its losses. bfloat16 has the range of float32,
so the loss needs no scale. Validation is in float32, as with fairseq's ``--amp``.

A CPU without instructions for bfloat16 (``avx512_bf16`` or ``amx_bf16`` in ``/proc/cpuinfo``, ``bf16`` on ARM) computes
the same in software, which takes 16 times as long as float32: the first line of the training's log says so.
"""

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.modules.checkpoint_activations import CheckpointFunction
from fairseq.optim import AMPOptimizer
from fairseq.trainer import Trainer
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_plugins.errors import UserError
from fairseq_plugins.processor import has_bf16
from fairseq_plugins.wrapping import wrap

logger = logging.getLogger(__name__)

DEVICES = ("cpu", "cuda")


def in_bf16(cfg: Any) -> bool:
    """Return whether fairseq's ``cfg`` means automatic mixed precision in bfloat16."""
    common = cfg.common
    return bool(common.amp and (common.bf16 or common.cpu or not torch.cuda.is_available()))


@contextlib.contextmanager
def half_products(device: str, dtype: torch.dtype = torch.bfloat16, *, keep_casts: bool = True) -> Iterator[None]:
    """Run the block under ``torch.autocast``, on a ``device`` of this type; ``keep_casts`` is its cache."""
    # On a CPU, torch's fused attention takes four times as long backwards in bfloat16 as its single products.
    attention = sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext()
    with torch.autocast(device, dtype, cache_enabled=keep_casts), attention:
        yield


def recompute_alike(forward: Callable[..., Any], ctx: Any, run: Callable[..., Any], *args: Any) -> Any:
    """``CheckpointFunction.forward``: layers that are computed again backwards have the precision of the first time.

    fairseq's ``--checkpoint-activations`` computes them in float32, with and without ``--amp``.
    """
    half = [(device, torch.get_autocast_dtype(device)) for device in DEVICES if torch.is_autocast_enabled(device)]

    def again(*inputs: Any, **named: Any) -> Any:
        with contextlib.ExitStack() as precisions:
            for device, dtype in half:
                # The input of a layer is a leaf here, and the cache would add its gradients up in half precision.
                precisions.enter_context(half_products(device, dtype, keep_casts=False))
            return run(*inputs, **named)

    return forward(ctx, again if half else run, *args)


def build_mixed(build: Callable[..., None], trainer: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
    """``Trainer.__init__`` that keeps float32 weights under ``--amp --bf16``, and runs the criterion under autocast.

    Raises:
        UserError: ``--memory-efficient-bf16`` with ``--amp``.
    """
    if not in_bf16(cfg):
        build(trainer, cfg, *args, **kwargs)
        return
    if cfg.common.memory_efficient_bf16 or cfg.common.memory_efficient_fp16:
        raise UserError("--amp keeps float32 weights, --memory-efficient-bf16 and -fp16 do not: drop one of the two")
    bf16, cfg.common.bf16 = cfg.common.bf16, False  # which would convert the weights
    try:
        build(trainer, cfg, *args, **kwargs)
    finally:
        cfg.common.bf16 = bf16
    # fairseq also asks for autocast on a GPU, and torch would answer that it disables autocast.
    warnings.filterwarnings("ignore", message="CUDA is not available or torch_xla", category=UserWarning)
    own = trainer.get_criterion()
    own.forward = functools.partial(_forward, trainer, own.forward)


def _forward(trainer: Trainer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run the criterion's forward pass, in training under autocast, for as long as the trainer has ``--amp``."""
    if not (trainer.get_criterion().training and trainer.cfg.common.amp):
        return forward(*args, **kwargs)
    with half_products(trainer.device.type):
        return forward(*args, **kwargs)


def keep_features(convert: Callable[..., Any], trainer: Trainer, sample: Any) -> Any:
    """``Trainer._fp_convert_sample``, which would round the features of speech for weights that are in float32."""
    return sample if trainer.cfg.common.amp else convert(trainer, sample)


def say_what_it_costs(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """``distributed.utils.call_main`` of a training whose bfloat16 the processor emulates: the first line says so."""
    common = cfg.common
    on_cpu = common.cpu or not torch.cuda.is_available()
    asked = "--amp" if common.amp else "--bf16" if common.bf16 else None
    if asked and on_cpu and has_bf16() is False and main.__module__ == "fairseq_cli.train":
        logger.warning(
            f"{asked}: this CPU has no instructions for bfloat16 and emulates it, which takes about 16 times as long "
            f"as float32: drop {asked} (fairseq-deep run --precision auto chooses by the CPU)"
        )
    return call_main(cfg, main, **kwargs)


def without_scale(build: Callable[..., AMPOptimizer], cfg: Any, params: Any, **kwargs: Any) -> AMPOptimizer:
    """``AMPOptimizer.build_optimizer`` that does not scale the loss in bfloat16."""
    optimizer = build(cfg, params, **kwargs)
    if in_bf16(cfg):
        scaler = torch.amp.GradScaler(enabled=False)
        # If a gradient is not finite, fairseq multiplies the scale by it and fails below a minimum, as float32 does.
        scaler._backoff_factor = 0.0
        optimizer._grad_scaler = scaler
    return optimizer


wrap(distributed_utils, "call_main", say_what_it_costs, order=5)  # the others change `main`
wrap(Trainer, "__init__", build_mixed, order=70)
wrap(Trainer, "_fp_convert_sample", keep_features)
wrap(AMPOptimizer, "build_optimizer", without_scale)
wrap(CheckpointFunction, "forward", recompute_alike)
