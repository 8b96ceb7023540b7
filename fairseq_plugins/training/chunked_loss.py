"""Cross-entropy, with label smoothing or without, that never holds a float for each token and word of the vocabulary.

For N target tokens and V words stock fairseq keeps the logits, their log-softmax and the gradients of both: four
tensors of N x V numbers, at V = 32,000 by far the largest of a training. Here the output layer and the loss take some
tokens at a time. They compute the logits, the loss and the gradients of the decoder's output and of the table, and
forget the logits. Loss, log and flags are those of fairseq's criterion without the prefix, up to rounding.
fairseq's loss is (1 - eps - e) nll + e smooth with e = eps / (V - 1), where smooth is minus the sum of all
log-probabilities. For logits z = W x and a target y, the coefficients of the log-partition add up to 1, so that

    loss = nll + e (V z_y - x . sum of W's rows),    its gradient by z = softmax(z) - (1 - eps - e) 1_y - e

Neither needs a sum over the logits, and the constant e no pass over them: it contributes e times the sum of the
table's rows to the gradient of a token, and e times the sum of all tokens to that of every row.

The model computes its loss itself: in a forward pass the decoder's output layer returns losses in place of logits. So
the table is used inside ``forward``, where PyTorch's ``DistributedDataParallel`` looks for it. The classes keep the
names of those that they extend: fairseq compares the names on resume, so a training may change to them and back.
"""

import math
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_plugins.errors import UserError

LOGITS = 2**24
"""Maximum number of logits in memory at a time: 64 MiB in float32."""
LOGITS_ON_GPU = 2**25
"""The same on a GPU, where a chunk of fewer than a thousand tokens takes less time than its launches."""
FLOAT16_SCALE = 2.0**15
"""Factor of probabilities in float16, whose smallest number is 6e-8; the scale of the loss is not known yet."""
LOSS, NLL, RIGHT = range(3)
"""Numbers that the output layer returns."""


class OutputAndLoss(torch.autograd.Function):
    """Output layer and loss of some tokens. Only the first number of the result has a gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        counted: Tensor,
        epsilon: float,
        accuracy: bool,
        dtype: torch.dtype,
        train: bool,
    ) -> Tensor:
        """Compute losses; if they are to be trained on, gradients too.

        Args:
            ctx: autograd's context.
            features: output of the decoder (N, C), 0 for tokens without a loss.
            weight: weight of the output layer (V, C).
            target: the correct words (N,).
            counted: whether a token has a loss (N,).
            epsilon: label smoothing.
            accuracy: also find the tokens that the model ranks first.
            dtype: of the products of matrices.
            train: whether a backward pass may follow.

        Returns:
            Sums over the tokens of smoothed loss, negative log-likelihood and 1 for each word that is ranked first:
            (3,) in float32.
        """
        vocab_size, tokens = len(weight), len(target)
        smoothing = epsilon / (vocab_size - 1)
        scale = FLOAT16_SCALE if dtype == torch.float16 else 1.0
        size = min(max(1, (LOGITS_ON_GPU if features.is_cuda else LOGITS) // vocab_size), max(1, tokens))
        hidden, matrix, target = features.to(dtype), weight.to(dtype), target.unsqueeze(1)
        of_target = hidden.new_empty(tokens, 1)
        lprob, right = torch.empty_like(of_target, dtype=torch.float32), torch.zeros((), device=features.device)
        hidden_sum, weight_sum = (values.sum(dim=0, dtype=torch.float32) for values in (hidden, matrix))
        if train:  # each gradient begins with the constant of the smoothing
            of_features = (weight_sum * (-smoothing * scale)).repeat(tokens, 1)
            of_weight = (hidden_sum * (-smoothing * scale)).repeat(vocab_size, 1)
        logits = hidden.new_empty(size, vocab_size)
        in_float32 = logits if dtype == torch.float32 else torch.empty_like(logits, dtype=torch.float32)
        for start in range(0, tokens, size):
            chunk = slice(start, start + size)
            y = target[chunk]
            scores, lprobs = logits[: len(y)], in_float32[: len(y)]
            torch.mm(hidden[chunk], matrix.t(), out=scores)
            torch.gather(scores, 1, y, out=of_target[chunk])
            torch.log_softmax(scores, dim=1, dtype=torch.float32, out=lprobs)
            torch.gather(lprobs, 1, y, out=lprob[chunk])
            if accuracy:
                right += (lprobs.argmax(dim=1) == y.squeeze(1)).mul(counted[chunk]).sum()
            if train:
                if scale != 1:
                    lprobs += math.log(scale)
                by_logits = torch.exp(lprobs, out=scores)
                by_target = (lprob[chunk].exp() - (1 - epsilon - smoothing)) * scale
                by_logits.scatter_(1, y, by_target.to(dtype))
                add_product(of_features[chunk], by_logits, matrix)
                add_product(of_weight, by_logits.t(), hidden[chunk])
        lprob_sum, target_sum = ((values.squeeze(1).float() * counted).sum() for values in (lprob, of_target))
        if train:
            ctx.save_for_backward(of_features, of_weight)
            ctx.scale, ctx.types = scale, (features.dtype, weight.dtype)
        loss = smoothing * (vocab_size * target_sum - torch.dot(hidden_sum, weight_sum)) - lprob_sum
        return torch.stack([loss, -lprob_sum, right])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of features and weight.

        Args:
            ctx: autograd's context.
            gradient: of the forward pass's result; the numbers after the first have none.
        """
        factor = gradient[LOSS] / ctx.scale
        gradients = (
            torch.mul(total, factor, out=torch.empty_like(total, dtype=dtype))
            for total, dtype in zip(ctx.saved_tensors, ctx.types, strict=True)
        )
        return *gradients, *(6 * [None])


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left @ right``, in half precision or not, to a matrix in float32: one sum over all chunks."""
    if left.is_cuda and left.dtype != total.dtype:
        total += torch.mm(left, right, out_dtype=total.dtype)
    elif left.dtype == torch.bfloat16:
        total += torch.mm(left, right)
    else:  # float16 would overflow
        total.addmm_(left.to(total.dtype), right.to(total.dtype))


def output_projection(model: nn.Module) -> tuple[TransformerDecoderBase, Tensor]:
    """Return the decoder of ``model`` and the weight of its output layer (V, C).

    Raises:
        UserError: the output layer is not a linear map without bias.
    """
    decoder = getattr(model, "decoder", None)
    layer = getattr(decoder, "output_projection", None)  # None with an adaptive softmax
    if isinstance(decoder, TransformerDecoderBase) and type(layer) is nn.Linear and layer.bias is None:
        if type(decoder).output_layer is TransformerDecoderBase.output_layer:
            return decoder, layer.weight
    raise UserError(
        "--criterion chunked_NAME needs a Transformer decoder whose output layer is a linear map without bias "
        "(no --adaptive-softmax-cutoff): drop chunked_"
    )


class Chunked(FairseqCriterion):
    """Mixin for criteria; listed before the extended class.

    ``compute_loss`` and ``compute_accuracy`` of an extended class get the result of the output layer.
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
            raise NotImplementedError("criteria chunked_NAME have no losses of single tokens")
        decoder, weight = output_projection(model)

        def losses(features: Tensor) -> Tensor:
            kind = features.device.type
            dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
            target = sample["target"]
            words = self._words(target)
            if features.is_cuda:  # which would be asked for the number of words, and a CUDA graph cannot be
                features = features.masked_fill(~words.unsqueeze(2), 0).flatten(0, 1)
                target, words = target.flatten(), words.flatten()
            else:
                features, target, words = features[words], target[words], words[words]
            with torch.autocast(kind, enabled=False):
                return OutputAndLoss.apply(
                    features, weight, target, words, self.eps, self.report_accuracy, dtype, torch.is_grad_enabled()
                )

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


@register_criterion("chunked_cross_entropy", dataclass=CrossEntropyCriterionConfig)
@register_criterion("cross_entropy_in_chunks", dataclass=CrossEntropyCriterionConfig)  # the name in older checkpoints
class ChunkedCrossEntropy(Chunked, CrossEntropyCriterion):
    """Cross-entropy in chunks, ``--criterion chunked_cross_entropy``."""


@register_criterion("chunked_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
@register_criterion("label_smoothed_cross_entropy_in_chunks", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class ChunkedLabelSmoothedCrossEntropy(Chunked, LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy in chunks, ``--criterion chunked_label_smoothed_cross_entropy``."""

    def compute_accuracy(self, model: Any, net_output: Any, sample: Any) -> tuple[Tensor, Tensor]:
        """Return the number of words that the model ranks first, and of all words."""
        return net_output[0][RIGHT], self._words(sample["target"]).sum()


# fairseq compares the names of criteria when a training is resumed.
ChunkedCrossEntropy.__name__ = CrossEntropyCriterion.__name__
ChunkedLabelSmoothedCrossEntropy.__name__ = LabelSmoothedCrossEntropyCriterion.__name__
