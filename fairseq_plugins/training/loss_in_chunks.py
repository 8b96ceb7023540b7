"""Cross-entropy, with label smoothing or without, that never holds a float for each token and word of the vocabulary.

For N target tokens and V words stock fairseq keeps the logits, their log-softmax and the gradients of both: four
tensors of N x V numbers, at V = 32,000 by far the largest of a training. Here the output layer and the loss take some
tokens at a time. They compute the logits, the loss and the gradients of the decoder's output and of the table, and
forget the logits::

    fairseq-train data-bin --user-dir "$(python -m fairseq_plugins)" --arch admin_transformer \
        --criterion label_smoothed_cross_entropy_in_chunks --label-smoothing 0.1 ...

or in YAML ``criterion: {_name: label_smoothed_cross_entropy_in_chunks, label_smoothing: 0.1}``; likewise
``cross_entropy_in_chunks``. Loss, log and flags are those of fairseq's criterion without the suffix, up to rounding.
fairseq's loss is (1 - eps - e) nll + e smooth with e = eps / (V - 1), where smooth is minus the sum of all
log-probabilities. Its gradient by the logits z of a token with target y is

    softmax(z) - (1 - eps - e) 1_y - e

since the coefficients of the log-partition add up to (1 - eps - e) + e V = 1. The constant e contributes e times the
sum of the table's rows to the gradient of a token, and e times the sum of all tokens to that of every row: it needs no
pass over the logits.

The model computes its loss itself: in a forward pass the decoder's output layer returns losses in place of logits. So
the table is used inside ``forward``, where PyTorch's ``DistributedDataParallel`` looks for it. The classes keep the
names of those that they extend: fairseq compares the names on resume, so a training may change to them and back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_plugins.errors import UserError

SUFFIX = "_in_chunks"
LOGITS = 2**24
"""Maximum number of logits in memory at a time: 64 MiB in float32."""
LOGITS_ON_GPU = 2**25
"""The same on a GPU, where a chunk of fewer than a thousand tokens leaves most of the card idle."""
LOSS, NLL, RIGHT = range(3)
"""Rows of what the output layer returns."""


class Settings(NamedTuple):
    """Settings of a pass over the tokens.

    Attributes:
        epsilon: label smoothing.
        accuracy: also find the tokens that the model ranks first.
        dtype: of the products of matrices.
    """

    epsilon: float
    accuracy: bool
    dtype: torch.dtype


class OutputAndLoss(torch.autograd.Function):
    """Output layer and loss of some tokens. Only the first row of the result has a gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        table: Tensor,
        target: Tensor,
        counted: Tensor | None,
        settings: Settings,
        train: bool,
    ) -> Tensor:
        """Compute losses; if they are to be trained on, gradients too.

        Args:
            ctx: autograd's context.
            features: output of the decoder (N, C).
            table: weight of the output layer (V, C).
            target: the right words (N,).
            counted: 1 for each token that has a loss, else 0, (N,) in float32; None if all have.
            settings: what to compute.
            train: whether a backward pass may follow.

        Returns:
            Sums over the tokens of smoothed loss, negative log-likelihood and 1 for each word that is ranked first:
            (3,) in float32.
        """
        ctx.settings = settings
        ctx.save_for_backward(features, table, target, counted)
        # The scale of --fp16's loss arrives with the backward pass; without it, small gradients would be zero. So they
        # are computed there.
        at_once = train and settings.dtype != torch.float16
        done = Pass(features, table, target, counted, settings, at_once)
        ctx.gradients = (done.of_features, done.of_table) if at_once else None
        return done.losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of features and table.

        Args:
            ctx: autograd's context.
            gradient: of the forward pass's result; the rows other than the first have none.
        """
        features, table, target, counted = ctx.saved_tensors
        factor = gradient[LOSS]
        if ctx.gradients is not None:
            of_features, of_table = (gradient * factor for gradient in ctx.gradients)
        else:
            done = Pass(features, table, target, counted, ctx.settings, True, factor.float())
            of_features, of_table = done.of_features, done.of_table
        return of_features.to(features.dtype), of_table.to(table.dtype), None, None, None, None


class Pass:
    """One pass over all tokens, some at a time.

    Args:
        features: (N, C).
        table: (V, C).
        target: (N,).
        counted: (N,), or None.
        settings: what to compute.
        train: whether to compute gradients.
        factor: multiplies the gradients, in float32.

    Attributes:
        losses: sums over the tokens, (3,) in float32.
        of_features: gradient of the features, in float32.
        of_table: gradient of the table, in float32.
    """

    def __init__(
        self,
        features: Tensor,
        table: Tensor,
        target: Tensor,
        counted: Tensor | None,
        settings: Settings,
        train: bool,
        factor: Tensor | None = None,
    ) -> None:
        words = table.shape[0]
        self.smoothing = settings.epsilon / (words - 1)
        self.right = 1.0 - settings.epsilon - self.smoothing
        self.settings = settings
        # What the gradient of each token is multiplied by.
        factors = counted if factor is None else factor.expand(len(target)) if counted is None else counted * factor
        losses = torch.zeros(3, len(target), device=features.device)
        rows, weight = features.to(settings.dtype), table.to(settings.dtype)
        if train:
            self.of_features = torch.empty_like(features, dtype=torch.float32)
            # A sum over chunks: half precision would round it in each.
            self.of_table = torch.zeros_like(table, dtype=torch.float32)
        size = max(1, (LOGITS_ON_GPU if features.is_cuda else LOGITS) // words)
        logits = rows.new_empty(min(size, len(target)), words)
        for start in range(0, len(target), size):
            chunk = slice(start, start + size)
            scores = torch.mm(rows[chunk], weight.t(), out=logits[: len(target[chunk])])
            if scores.dtype == torch.float32:
                lprobs = torch.log_softmax(scores, dim=1, out=scores)
            else:
                lprobs = F.log_softmax(scores, dim=1, dtype=torch.float32)
            losses[:, chunk] = self._losses(lprobs, target[chunk])
            if train:
                by = None if factors is None else factors[chunk].unsqueeze(1)
                self._add_gradients(chunk, lprobs, target[chunk], rows[chunk], weight, by)
        self.losses = (losses if counted is None else losses * counted).sum(dim=1)
        if train and self.smoothing:
            words_sum = self.smoothing * weight.sum(dim=0, dtype=torch.float32)
            if factors is not None:
                words_sum, rows = factors.unsqueeze(1) * words_sum, rows * factors.unsqueeze(1)
            self.of_features.sub_(words_sum)
            self.of_table.sub_(self.smoothing * rows.sum(dim=0, dtype=torch.float32))

    def _losses(self, lprobs: Tensor, target: Tensor) -> Tensor:
        nll = -lprobs.gather(1, target.unsqueeze(1)).squeeze(1)
        loss = self.right * nll - self.smoothing * lprobs.sum(dim=1) if self.smoothing else nll
        right = lprobs.argmax(dim=1).eq(target).float() if self.settings.accuracy else torch.zeros_like(nll)
        return torch.stack([loss, nll, right])

    def _add_gradients(
        self, chunk: slice, lprobs: Tensor, target: Tensor, rows: Tensor, weight: Tensor, factors: Tensor | None
    ) -> None:
        """Add the gradients of a chunk, except for the constant of the smoothing; overwrites ``lprobs``."""
        by_logits = lprobs.exp_()
        by_logits.scatter_add_(1, target.unsqueeze(1), by_logits.new_full((len(target), 1), -self.right))
        if factors is not None:
            by_logits.mul_(factors)
        by_logits = by_logits.to(self.settings.dtype)
        if self.settings.dtype == torch.float32:
            torch.mm(by_logits, weight, out=self.of_features[chunk])
            self.of_table.addmm_(by_logits.t(), rows)
        else:
            self.of_features[chunk] = torch.mm(by_logits, weight)
            self.of_table.add_(torch.mm(by_logits.t(), rows))


def output_projection(model: nn.Module) -> tuple[TransformerDecoderBase, Tensor]:
    """Return the decoder of ``model`` and the weight of its output layer (V, C).

    Raises:
        UserError: the output layer is not a linear map without bias.
    """
    decoder = getattr(model, "decoder", None)
    layer = getattr(decoder, "output_projection", None)  # None beside an adaptive softmax
    if isinstance(decoder, TransformerDecoderBase) and type(layer) is nn.Linear and layer.bias is None:
        if type(decoder).output_layer is TransformerDecoderBase.output_layer:
            return decoder, layer.weight
    raise UserError(
        f"--criterion NAME{SUFFIX} needs a Transformer decoder whose output layer is a linear map without bias "
        f"(no --adaptive-softmax-cutoff): drop {SUFFIX}"
    )


class InChunks(FairseqCriterion):
    """Mixin for criteria; listed before the extended class.

    ``compute_loss`` and ``compute_accuracy`` of an extended class get what the output layer has computed.
    """

    eps: float = 0.0
    ignore_prefix_size: int = 0
    report_accuracy: bool = False

    def forward(self, model: Any, sample: Any, reduce: bool = True) -> Any:
        """Run the extended criterion, with a model that returns losses; fairseq asks for their sum alone.

        Raises:
            UserError: the output layer of the model is not supported.
        """
        if not reduce:
            raise NotImplementedError(f"criteria NAME{SUFFIX} have no losses of single tokens")
        decoder, table = output_projection(model)

        def losses(features: Tensor) -> Tensor:
            kind = features.device.type
            dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
            target = sample["target"]
            words, counted = self._words(target), None
            if features.is_cuda:  # which would be asked for the number of words, and a CUDA graph cannot be
                counted = words.flatten().float()
                features, target = features.flatten(0, 1), target.flatten()
            else:
                features, target = features[words], target[words]
            settings = Settings(self.eps, self.report_accuracy, dtype)
            with torch.autocast(kind, enabled=False):
                return OutputAndLoss.apply(features, table, target, counted, settings, torch.is_grad_enabled())

        decoder.output_layer = losses
        try:
            return super().forward(model, sample, reduce)
        finally:
            del decoder.output_layer

    def _words(self, target: Tensor) -> Tensor:
        """Return which tokens of ``target`` (B, T) have a loss."""
        words = target.ne(self.padding_idx)
        words[:, : self.ignore_prefix_size] = False
        return words

    def compute_loss(self, model: Any, net_output: Any, sample: Any, reduce: bool = True) -> tuple[Tensor, Tensor]:
        """Return the sums of loss and negative log-likelihood; only the first has a gradient."""
        losses = net_output[0]
        return losses[LOSS], losses[NLL].detach()


@register_criterion(f"cross_entropy{SUFFIX}", dataclass=CrossEntropyCriterionConfig)
class CrossEntropyInChunks(InChunks, CrossEntropyCriterion):
    """``--criterion cross_entropy_in_chunks``."""


@register_criterion(f"label_smoothed_cross_entropy{SUFFIX}", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class LabelSmoothedCrossEntropyInChunks(InChunks, LabelSmoothedCrossEntropyCriterion):
    """``--criterion label_smoothed_cross_entropy_in_chunks``."""

    def compute_accuracy(self, model: Any, net_output: Any, sample: Any) -> tuple[Tensor, Tensor]:
        """Return the number of words that the model ranks first, and of all words."""
        return net_output[0][RIGHT], self._words(sample["target"]).sum()


# fairseq compares the names of criteria when a training is resumed.
CrossEntropyInChunks.__name__ = CrossEntropyCriterion.__name__
LabelSmoothedCrossEntropyInChunks.__name__ = LabelSmoothedCrossEntropyCriterion.__name__
