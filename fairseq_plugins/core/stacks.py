"""The encoder and the decoder: fairseq's own, with the package's loop over the layers.

History, attention logits, extra streams and solvers need loops of their own. They track fairseq 0.12's
``TransformerEncoderBase.forward_scriptable`` and ``TransformerDecoderBase.extract_features_scriptable``; a test holds
them equal to stock bit for bit.

Legend: T time, S source time, B batch, C width, H heads.
"""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.distributed import fsdp_wrap
from fairseq.models import FairseqEncoder
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.layers import Carried, DecoderLayer, EncoderLayer, contiguous_output
from fairseq_plugins.core.method import Axis
from fairseq_plugins.core.norm import stock_top_norm, top_norm
from fairseq_plugins.core.word_dropout import WordDropout

HAS_PADS = "has_pads"
"""Attribute of a batch of tokens: whether it has pads, where the host knows this (``training/host_pads.py``)."""


def has_pads(tokens: Tensor, pads: Tensor) -> bool:
    """Return whether ``tokens`` has pads, which are the true elements of ``pads``; both ``(B, T)``.

    Asks the device only if the host does not know: a GPU answers when its queue of kernels is empty.
    """
    known: bool | None = getattr(tokens, HAS_PADS, None)
    return bool(pads.any()) if known is None else known


def wrap(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wrap a layer for activation checkpointing and FSDP, as fairseq does."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


def assemble(stack: Any, design: StackDesign, has_top: bool = True) -> None:
    """Add the modules around the layers of a stack. Call after fairseq's constructor.

    Args:
        stack: an encoder or a decoder.
        design: its design.
        has_top: whether the stack may have a norm on top.
    """
    stack.dropout_module.p = design.embedding_dropout
    stack.history = design.parts[Axis.LAYER_AGGREGATION].build(design)
    top = top_norm(design)
    if top is not None and top is not stock_top_norm and has_top:
        stack.layer_norm = top(design.width)
    stack.side_stream = design.parts[Axis.RESIDUAL].extra_streams(design)  # the name in checkpoints
    stack.solver = design.parts[Axis.SOLVER].build(design)
    design.parts[Axis.REPARAM].ends(stack)


def finish(stack: Any, x: Tensor, carried: Carried) -> Tensor:
    """Return the output of ``stack``, ``(T, B, C)``, from its last state and the tensors of its last layer."""
    if carried.extra is not None:
        x = stack.side_stream.finish(x, carried.extra)
    return x if stack.layer_norm is None else stack.layer_norm(x)


class EncoderLoop(FairseqEncoder):
    """Mixin with the loop over an encoder's layers. List it before the fairseq class among the bases."""

    def run_layers(self, x: Tensor, encoder_padding_mask: Tensor | None, outputs: list[Tensor], keep: bool) -> Tensor:
        """Map the embedding to the output of the stack.

        Args:
            x: the embedding, ``(T, B, C)``.
            encoder_padding_mask: ``(B, T)``, true for pads, or None.
            outputs: gets the output of each layer, ``(T, B, C)``, if ``keep``.
            keep: whether to fill ``outputs``.

        Returns:
            the output of the stack, ``(T, B, C)``.
        """
        carried: Sequence[Tensor | None] = Carried(extra=self.side_stream.start(x) if self.side_stream else None)
        states: list[Tensor] = [x]
        past: list[Tensor] = [x]
        for layer in self.layers:
            x = self.history(states)
            if self.solver is None:
                x, *carried = layer(x, encoder_padding_mask, *carried)
            else:
                x, *carried = self.solved(layer, x, past, encoder_padding_mask, *carried)
            states = self.history.remember(states, x)
            if keep:
                outputs.append(x)
        return finish(self, self.history(states), Carried(*carried))

    def solved(self, layer: Any, x: Tensor, past: list[Tensor], pads: Tensor | None, *below: Tensor | None) -> Any:
        """Let the solver evaluate a layer, always with ``below``; return the state and the last :class:`Carried`."""
        above: Sequence[Tensor | None] = below

        def evaluate(at: Tensor) -> Tensor:
            nonlocal above
            output, *above = layer(at, pads, *below)
            return output

        return contiguous_output(self.solver(evaluate, x, past)), *above


def depths_of(cfg: Any) -> list[int]:
    """Return the depths of the layers of a stack, from the lowest; ``cfg`` is fairseq's ``EncDecBaseConfig``.

    Layers that are kept of a trained stack have the depths of their training.
    """
    kept = cfg.layers_to_keep
    return sorted(int(number) + 1 for number in kept.split(",")) if kept else list(range(1, cfg.layers + 1))


class Encoder(EncoderLoop, TransformerEncoderBase):
    """Stock encoder built from a design; ``cfg`` is fairseq's nested ``TransformerConfig``."""

    def __init__(self, cfg: Any, dictionary: Dictionary, embed_tokens: nn.Module, design: StackDesign) -> None:
        # fairseq's constructor builds the layers without their numbers and runs nn.Module's constructor first.
        self.design, self._depths = design, depths_of(cfg.encoder)
        super().__init__(cfg, dictionary, embed_tokens)
        assemble(self, design)
        self.word_dropout = WordDropout(design.options.word_dropout)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        """Build the next layer up."""
        return wrap(EncoderLayer(cfg, self.design, self._depths.pop(0)), cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode ``src_tokens`` of shape ``(B, T)``; arguments and result are those of fairseq's encoder."""
        encoder_padding_mask = src_tokens.eq(self.padding_idx)
        padded = has_pads(src_tokens, encoder_padding_mask)

        if token_embeddings is None:
            token_embeddings = self.embed_tokens(src_tokens)
        x, encoder_embedding = self.forward_embedding(src_tokens, self.word_dropout(token_embeddings))
        if padded:
            x = x * (1 - encoder_padding_mask.unsqueeze(-1).type_as(x))
        x = x.transpose(0, 1)

        encoder_states: list[Tensor] = []
        if return_all_hiddens:
            encoder_states.append(x)

        x = self.run_layers(x, encoder_padding_mask if padded else None, encoder_states, return_all_hiddens)
        lengths = src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).reshape(-1, 1).contiguous()
        return {
            "encoder_out": [x],  # T B C
            "encoder_padding_mask": [encoder_padding_mask],  # B T
            "encoder_embedding": [encoder_embedding],  # B T C
            "encoder_states": encoder_states,  # each T B C
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths],
        }


class Decoder(TransformerDecoderBase):
    """Stock decoder built from a design; ``cfg`` is fairseq's nested ``TransformerConfig``."""

    def __init__(
        self,
        cfg: Any,
        dictionary: Dictionary,
        embed_tokens: nn.Module,
        design: StackDesign,
        no_encoder_attn: bool = False,
    ) -> None:
        self.design, self._depths = design, depths_of(cfg.decoder)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)
        assemble(self, design, has_top=not cfg.no_decoder_final_norm)
        self.word_dropout = WordDropout(design.options.word_dropout, keep_first=True)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        """Build the next layer up."""
        return wrap(DecoderLayer(cfg, self.design, self._depths.pop(0), no_encoder_attn), cfg)

    def embed(
        self, prev_output_tokens: Tensor, incremental_state: dict[str, dict[str, Tensor | None]] | None
    ) -> Tensor:
        """Embed tokens and positions, with dropout: ``(B, T)`` to ``(T, B, C)``; T = 1 with a cache."""
        positions: Tensor | None = None
        if self.embed_positions is not None:
            positions = self.embed_positions(prev_output_tokens, incremental_state=incremental_state)
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            if positions is not None:
                positions = positions[:, -1:]
        x = self.embed_scale * self.word_dropout(self.embed_tokens(prev_output_tokens.contiguous()))
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x).transpose(0, 1)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Features of ``prev_output_tokens``, ``(B, T)``; arguments and result are those of fairseq's decoder."""
        if alignment_layer is None:
            alignment_layer = self.num_layers - 1
        source, source_pads = (
            encoder_out[name][0] if encoder_out is not None and encoder_out[name] else None
            for name in ("encoder_out", "encoder_padding_mask")
        )
        x = self.embed(prev_output_tokens, incremental_state)
        # (T, T), minus infinity above the diagonal, and (B, T); each if needed.
        future_mask: Tensor | None = None
        if incremental_state is None and not full_context_alignment:
            future_mask = self.buffered_future_mask(x).contiguous()
        new = prev_output_tokens if incremental_state is None else prev_output_tokens[:, -1:]
        padded = new.eq(self.padding_idx)
        pads = padded if has_pads(prev_output_tokens, padded) else None

        attn: Tensor | None = None
        carried: Sequence[Tensor | None] = Carried(extra=self.side_stream.start(x) if self.side_stream else None)
        inner_states: list[Tensor | None] = [x]
        states: list[Tensor] = [x]
        for idx, layer in enumerate(self.layers):
            x, weights, *carried = layer(
                self.history(states),
                source,
                source_pads,
                incremental_state,
                future_mask,
                pads,
                idx == alignment_layer,
                *carried,
            )
            states = self.history.remember(states, x)
            inner_states.append(x)
            if weights is not None and idx == alignment_layer:
                attn = weights.float().to(x)[:alignment_heads].mean(dim=0)  # B T S, by default of all heads
        x = finish(self, self.history(states), Carried(*carried)).transpose(0, 1)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}
