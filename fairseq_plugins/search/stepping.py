"""A model of an ensemble, one step of a search at a time.

The hypotheses of a sentence share the encoder's output. The first step runs on sentences, since all are equal.

Legend: N sentences still in the batch, K hypotheses of a sentence, W of them so far (1 at the first step, K after it),
S source time, V words.
"""

from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.search.hypotheses import Ancestry, matching
from fairseq_plugins.search.step_attention import DecodingState, has_steps

HERE_AND_FAIRSEQ = ("fairseq", "fairseq_plugins")


def reads_source_once(decoder: nn.Module | None) -> bool:
    """Whether :class:`Member` can run the decoder; fairseq's own search runs any other.

    It reads the encoder's output at its first step only, and shares it between hypotheses.
    """
    if not isinstance(decoder, TransformerDecoderBase) or decoder.cross_self_attention:
        return False
    attentions = [module for module in decoder.modules() if isinstance(module, MultiheadAttention)]
    ours = all(type(module).__module__.split(".")[0] in HERE_AND_FAIRSEQ for module in (decoder, *decoder.layers))
    return ours and all(has_steps(module) or getattr(module, "beams_share_source", False) for module in attentions)


class Member:
    """One model of the ensemble during the search of one batch.

    Args:
        model: in eval mode.
        net_input: of fairseq's sample.
        ancestry: of the hypotheses, shared by the ensemble.
        beam: K.
    """

    def __init__(self, model: Any, net_input: dict[str, Any], ancestry: Ancestry, beam: int) -> None:
        self.model, self.decoder, self.beam = model, model.decoder, beam
        self.encoder = getattr(model, "encoder", None)
        self.source = None if self.encoder is None else self.encoder.forward_torchscript(net_input)
        self.state = DecodingState(ancestry)
        movable = [module for module in self.decoder.modules() if hasattr(module, "reorder_incremental_state")]
        self.movable = [module for module in movable if module is not self.decoder and not has_steps(module)]
        self.graphs: Any = None  # the ``StepGraphs`` that compute steps, if there are any
        self.room: Any = None  # where they compute

    def step(self, previous: Tensor, temperature: float) -> Tensor:
        """Return log-probabilities of the next word, ``(N * W, V)``.

        Args:
            previous: the words so far, ``(N * W, T)``.
            temperature: divides the logits.
        """
        if self.graphs is not None and previous.size(1) > 1:
            return self.graphs.step(self, previous, temperature)
        return self.compute(previous, temperature)

    def compute(self, previous: Tensor, temperature: float) -> Tensor:
        """Do the work of :meth:`step` eagerly."""
        inputs = {} if self.encoder is None else {"encoder_out": self.source}
        # No layer has the number -1, hence no layer returns its attention weights.
        output, extra = self.decoder(previous, **inputs, incremental_state=self.state, alignment_layer=-1)[:2]
        last = output[:, -1:]
        if temperature != 1:
            last = last / temperature
        return self.model.get_normalized_probs((last, extra), log_probs=True, sample=None)[:, -1]

    def expand(self, sentences: int, device: torch.device) -> None:
        """Go from sentences to hypotheses, after the first step."""
        if self.source is not None:
            # All that the layers still need is in their caches.
            first = self.source["encoder_out"][0]
            self.source = {name: [] if name != "encoder_out" else [first[:0].clone()] for name in self.source} | {
                name: self.source[name] for name in ("encoder_padding_mask", "src_lengths") if name in self.source
            }
        if self.beam > 1:
            order = torch.arange(sentences, device=device).repeat_interleave(self.beam)
            self._move(order, with_source=True)

    def follow(self, rows: Tensor, staying: list[int] | None, index: Tensor | None) -> None:
        """Let hypotheses continue others, and sentences leave.

        Args:
            rows: which of the rows so far each row continues.
            staying: numbers of the sentences that stay, ascending; None if all do.
            index: the same on the device.
        """
        if self.beam > 1 or staying is not None:
            self._move(rows, with_source=staying is not None)
        if staying is not None and index is not None:
            for cached in (*self.state.target.values(), *self.state.source.values()):
                cached.keep(staying, index)
            self.state.source_bias = matching(self.state.source_bias, index)
            self.room = None

    def _move(self, order: Tensor, with_source: bool) -> None:
        for module in self.movable:
            module.reorder_incremental_state(self.state, order)
        if with_source and self.encoder is not None:
            self.source = self.encoder.reorder_encoder_out(self.source, order)
